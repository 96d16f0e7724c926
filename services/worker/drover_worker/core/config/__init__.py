"""The config log: the worker's view of it, and the writes that the herder makes by itself."""
