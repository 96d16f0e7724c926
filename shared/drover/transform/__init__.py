"""Transforms and predicates: single message transforms of Kafka Connect, on Arrow batches."""
