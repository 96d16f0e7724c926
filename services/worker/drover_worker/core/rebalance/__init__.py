"""This worker in the group: its membership, and the strategy that moves work on a rebalance."""
