"""Change data capture from PostgreSQL."""
