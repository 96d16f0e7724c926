"""What is written to topics and read from them."""

from dataclasses import dataclass

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Produced:
    """A record to write. Without a ``partition`` its key chooses one, as Java's producer does."""

    topic: str
    key: bytes
    value: bytes | None
    partition: int | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """Where a consumer group goes on in a partition; ``metadata`` is kept with it."""

    group_id: str
    topic: str
    partition: int
    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class KafkaRecord:
    """A record as it was read. Records that others wrote may have no key."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    def header(self, name: str) -> str:
        """The text of the last header of that name; empty if there is none."""
        for key, value in reversed(self.headers):
            if key == name:
                return (value or b"").decode(errors="replace")
        return ""
