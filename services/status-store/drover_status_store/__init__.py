"""The status store: one log of what is running, and watches on it.

Start at ``core.status_state``, the fold of the log and the rules for late reports, then
``core.machine``, which decides writes. ``server`` is the gRPC shell around them.
"""
