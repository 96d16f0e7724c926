"""HTTP APIs as sources and sinks."""
