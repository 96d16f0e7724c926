"""Values that all layers share; imports only the standard library and ``drover.errors``."""
