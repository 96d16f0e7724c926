"""The coordinator: who is in a group, who may commit a task's offsets, and which are committed.

Start at ``core`` (the rules, pure), then ``server`` (gRPC), ``sharding`` (which groups are served
here), ``backends`` (where the data is kept) and ``__main__`` (start and wiring).
"""
