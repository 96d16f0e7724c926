"""Durable logs of keyed records."""
