"""The status_store service."""
