"""The coordinator: who is in a group, who may commit a task's offsets, and which are committed.

Start at ``core`` (the rules, pure), then ``server`` (gRPC), ``offsets`` (claims and offsets in the
data store), ``records`` (what the group log holds) and ``__main__`` (how it is wired).
"""
