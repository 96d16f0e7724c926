"""The pure core of the coordinator service: who is in which group, under which generation.

Start at ``machine`` (which event goes where), then ``rebalance`` (from one generation to the next),
``joining`` and ``serving`` (the rules of each call), ``group`` (one group's state and invariants).
"""
