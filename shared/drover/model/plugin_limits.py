"""How many milliseconds calls of plugins may last where a worker sets no limits."""

PLUGIN_CALL_TIMEOUT_MS = 30_000
PLUGIN_POLL_TIMEOUT_MS = 60_000
