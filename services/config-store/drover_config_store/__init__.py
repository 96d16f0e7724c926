"""The config store: the log of connector configs, task configs and target states, and watches.

Read ``core.records`` first (the log's format), then ``core.config_state`` (the fold of the log) and
``core.machine`` (which decides writes). ``server`` is the gRPC shell.
"""
