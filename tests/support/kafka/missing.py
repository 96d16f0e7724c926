"""What is said where no Kafka can be had."""


class KafkaMissingError(Exception):
    """This machine has no way to a broker (or to Kafka's jars); the message is one line."""
