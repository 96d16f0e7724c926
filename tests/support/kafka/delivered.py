"""Delivery reports of fake producers."""


class Delivered:
    """The part of a Message that delivery callbacks use."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def topic(self) -> str:
        return "topic"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset
