"""Connector plugins: finding their classes, calling their code under a time limit."""
