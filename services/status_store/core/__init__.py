"""The pure core of the status_store service."""
