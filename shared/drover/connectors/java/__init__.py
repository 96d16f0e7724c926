"""Connectors, converters and transforms that are plugins of Kafka Connect, written in Java."""
