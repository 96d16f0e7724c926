"""Group membership of this worker, and the strategies that assign work in a rebalance."""
