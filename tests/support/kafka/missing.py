"""The error for a machine without Kafka."""


class KafkaMissingError(Exception):
    """This machine has no broker (or no Kafka jars); the message is one line."""
