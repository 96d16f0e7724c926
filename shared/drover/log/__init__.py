"""The log: one protocol, several kinds of storage."""
