"""The shell around a log-backed machine: order, timers, watchers."""
