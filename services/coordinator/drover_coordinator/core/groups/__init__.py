"""Group membership by Kafka's classic protocol.

Start at ``machine`` (routes events), then ``rebalance`` (from one generation to the next). Each
call has a module: ``join``, ``sync``, ``heartbeat``, ``leave``, ``watch``, ``group_offsets``,
``listing``, ``deletion``. ``group`` holds one group's state and invariants. The rules are in
docs/coordinator-rules.md.
"""
