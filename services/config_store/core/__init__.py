"""The pure core of the config_store service."""
