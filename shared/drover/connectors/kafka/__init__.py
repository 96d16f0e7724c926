"""Topics of other Kafka clusters."""
