"""Settings of connectors, converters and transforms: their names, types and rules.

Parsing reports all errors of a config at once.
"""
