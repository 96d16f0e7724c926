"""What converters share whose schemas are in a registry that speaks Confluent's protocol."""
