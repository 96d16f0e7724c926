"""What connectors may reach: files, hosts, and settings of client libraries."""
