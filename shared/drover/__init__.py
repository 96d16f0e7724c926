"""Drover: connectors, run as Spark tasks, over a fleet of workers."""

__version__ = "0.1.0"
