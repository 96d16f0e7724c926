"""The coordinator: group membership, claims of tasks, and committed offsets.

Read ``core`` first (the rules, pure), then ``server`` (gRPC), ``sharding`` (which groups this
process serves), ``backends`` (storage) and ``__main__`` (start and wiring).
"""
