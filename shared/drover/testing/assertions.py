"""Assertions about logs and errors."""

from collections.abc import Iterator
from contextlib import contextmanager

from drover.errors import DroverError, Reason
from drover.log.log import Log, StoredRecord


class Raised:
    """The error that ``raises_reason`` caught, after its block has ended."""

    error: DroverError


@contextmanager
def raises_reason(reason: Reason, *words: str) -> Iterator[Raised]:
    """Assert that the block raises a DroverError with ``reason`` and ``words`` in its message."""
    raised = Raised()
    caught: DroverError | None = None
    try:
        yield raised
    except DroverError as error:
        caught = error
    assert caught is not None, f"nothing was raised; expected {reason}"
    raised.error = caught
    assert caught.reason is reason, f"expected {reason}, got {caught.reason}: {caught.message}"
    missing = [word for word in words if word not in caught.message]
    assert not missing, f"{caught.message!r} does not contain {missing}"


async def read_all(log: Log, start_offset: int = 0) -> list[StoredRecord]:
    """All records of ``log`` from ``start_offset`` on, oldest first."""
    return [stored async for batch in log.read(start_offset) for stored in batch]


async def latest_values(log: Log) -> dict[bytes, bytes]:
    """The last value of each key; keys whose last record is a tombstone are absent."""
    values: dict[bytes, bytes] = {}
    for stored in await read_all(log):
        if stored.record.value is None:
            values.pop(stored.record.key, None)
        else:
            values[stored.record.key] = stored.record.value
    return values
