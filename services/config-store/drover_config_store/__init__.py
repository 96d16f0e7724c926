"""The config store: one log of what should run, and watches on it.

Start at ``core.config_state``, the fold of the log, then ``core.machine``, which decides writes;
``core.records`` says how the log looks. ``server`` is the gRPC shell around them.
"""
