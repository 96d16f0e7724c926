"""The log: one interface, implemented in memory, in SQLite and on Kafka."""
