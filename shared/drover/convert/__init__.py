"""Converters: between the bytes of topics and structured keys, values and headers."""
