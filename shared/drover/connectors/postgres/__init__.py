"""Change capture from PostgreSQL."""
