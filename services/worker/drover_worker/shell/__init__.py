"""The herder process around its pure core: the loop, calls to other services, the engine."""
