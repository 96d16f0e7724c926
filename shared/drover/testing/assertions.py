"""What tests ask of logs and errors."""

from collections.abc import Iterator
from contextlib import contextmanager

from drover.errors import DroverError, Reason
from drover.log.log import Log, StoredRecord


class Raised:
    """Holds the error that ``raises_reason`` met, once its block is left."""

    error: DroverError


@contextmanager
def raises_reason(reason: Reason, *words: str) -> Iterator[Raised]:
    """Assert that the block raises a DroverError with ``reason``, its message naming ``words``."""
    raised = Raised()
    met: DroverError | None = None
    try:
        yield raised
    except DroverError as error:
        met = error
    assert met is not None, f"nothing was raised; expected {reason}"
    raised.error = met
    assert met.reason is reason, f"expected {reason}, got {met.reason}: {met.message}"
    missing = [word for word in words if word not in met.message]
    assert not missing, f"{met.message!r} does not say {missing}"


async def read_all(log: Log, start_offset: int = 0) -> list[StoredRecord]:
    """Everything in ``log`` from ``start_offset``, oldest first."""
    return [stored async for batch in log.read(start_offset) for stored in batch]


async def latest_values(log: Log) -> dict[bytes, bytes]:
    """The last value of each key; keys whose last record is a tombstone are not there."""
    values: dict[bytes, bytes] = {}
    for stored in await read_all(log):
        if stored.record.value is None:
            values.pop(stored.record.key, None)
        else:
            values[stored.record.key] = stored.record.value
    return values
