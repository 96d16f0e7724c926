"""Installed plugins of Kafka Connect that are written in Java: their folders, classes, settings."""
