"""How commands show connectors, failures, previews and records."""
