"""What producers that stand in for librdkafka's tell of a record."""


class Delivered:
    """As much of a Message as a delivery report is asked for."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def topic(self) -> str:
        return "topic"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset
