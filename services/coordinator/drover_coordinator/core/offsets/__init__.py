"""Offsets in the formats that Kafka Connect writes: source offsets and sink offsets."""
