"""Tasks: the runners of sources and sinks, and what records pass through."""
