"""Passes messages of the log to executors."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drover.connectors.postgres.change_rows import Messages, RecordShape


@dataclass(frozen=True)
class MessagesReader:
    """Creates records from messages on executors; for ArrowRows."""

    parts: "tuple[Messages, ...]"
    shape: "RecordShape"

    def __call__(self, number: int) -> Iterator[Any]:
        """The records of one part."""
        return self.parts[number].records(self.shape)


def no_records(number: int) -> Iterator[Any]:
    """The part of a batch that only commits offsets; for ArrowRows."""
    del number
    return iter(())
