"""What is wrong with a record."""


class RecordError(ValueError):
    """A record cannot be converted or transformed (Kafka Connect's DataException).

    The message says what is wrong with which field, without the record's position: whoever runs the
    step adds that.
    """


class SchemaError(RecordError):
    """A schema cannot be used: it contradicts itself, or has no counterpart in Arrow."""
