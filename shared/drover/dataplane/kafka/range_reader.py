"""The interface of readers of topic ranges."""

import time
from collections.abc import Iterator
from typing import Any, Protocol

from drover.dataplane.values import ReadRange
from drover.errors import OutOfRangeError, Reason, UnavailableError

#: A range without data for this long is abandoned; its batch is retried.
SILENCE_S = 30.0


class RangeReader(Protocol):
    """Reads ranges with kept connections; for one user at a time."""

    def read(self, wanted: ReadRange, columns: frozenset[str]) -> Iterator[Any]:
        """The committed records of one range in order, as batches of ``READ_SCHEMA``; columns that
        are not in ``columns`` are null.

        Offsets without a record (transaction markers, aborted and compacted records) are skipped:
        the range is finished when the position has reached its end.

        Raises:
            OutOfRangeError: REVISION_COMPACTED, retention removed the start of the range during the
                read.
            UnavailableError: STORAGE_UNAVAILABLE, no data within SILENCE_S.
            DroverError: Other errors of KafkaClient.translated.
        """
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


def check_silence(wanted: ReadRange, position: int, since_s: float) -> None:
    """Check how long no data has arrived, since a time of the monotonic clock.

    Raises:
        UnavailableError: Longer than SILENCE_S.
    """
    silent_s = time.monotonic() - since_s
    if silent_s > SILENCE_S:
        raise UnavailableError(
            Reason.STORAGE_UNAVAILABLE,
            f"{wanted.topic}-{wanted.partition} returned no data for {silent_s:.0f} s at offset "
            f"{position} of {wanted.end_offset}: check that its brokers are up",
        )


def removed_error(wanted: ReadRange, what: str) -> OutOfRangeError:
    """The error for removed records of a range; ``what`` is the broker's message."""
    return OutOfRangeError(
        Reason.REVISION_COMPACTED,
        f"offsets {wanted.start_offset} to {wanted.end_offset - 1} of "
        f"{wanted.topic}-{wanted.partition} were removed by retention during the read: {what}",
    )
