"""The config_store service."""
