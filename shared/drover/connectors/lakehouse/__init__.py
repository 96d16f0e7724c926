"""Topics into tables of Delta Lake and Apache Iceberg."""
