"""Connector plugins: find their classes, call their code under time limits."""
