"""Settings of connectors, converters and transforms: their names, types and rules, and parsing that
finds every fault at once.
"""
