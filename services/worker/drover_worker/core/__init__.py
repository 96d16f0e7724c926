"""The pure core of the worker service."""
