"""The config log: the worker's view of it, and the herder's own writes."""
