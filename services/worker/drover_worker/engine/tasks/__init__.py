"""Tasks: the runners of sources and sinks, and the path of their records."""
