"""The status store: the log of connector and task statuses, and watches on it.

Read ``core.rules`` first (which record of a key is current), then ``core.status_state`` (the fold
of the log) and ``core.machine`` (which decides writes). ``server`` is the gRPC shell.
"""
