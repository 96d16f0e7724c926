"""The pure core of the coordinator service."""
