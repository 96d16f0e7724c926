"""What reads ranges of topics, however it does it."""

import time
from collections.abc import Iterator
from typing import Any, Protocol

from drover.dataplane.values import ReadRange
from drover.errors import OutOfRangeError, Reason, UnavailableError

#: A range that brings nothing for so long is given up; its batch is tried again.
SILENCE_S = 30.0


class RangeReader(Protocol):
    """Connections to brokers, kept from one range to the next; for one user at a time."""

    def read(self, wanted: ReadRange, columns: frozenset[str]) -> Iterator[Any]:
        """The committed records of one range in order, as batches of ``READ_SCHEMA``; what is not
        in ``columns`` is null.

        Offsets without a record (transaction markers, aborted and compacted records) are passed
        over: the range is done when the position has reached its end.

        Raises:
            OutOfRangeError: REVISION_COMPACTED, retention removed the start of the range meanwhile.
            UnavailableError: STORAGE_UNAVAILABLE, nothing came for SILENCE_S.
            DroverError: What else KafkaClient.translated says.
        """
        ...

    def close(self) -> None:
        """Give everything back."""
        ...


def check_silence(wanted: ReadRange, position: int, since_s: float) -> None:
    """Nothing came since this time of the monotonic clock.

    Raises:
        UnavailableError: That is too long.
    """
    silent_s = time.monotonic() - since_s
    if silent_s > SILENCE_S:
        raise UnavailableError(
            Reason.STORAGE_UNAVAILABLE,
            f"{wanted.topic}-{wanted.partition} brought nothing for {silent_s:.0f} s at offset "
            f"{position} of {wanted.end_offset}: are its brokers up?",
        )


def removed_error(wanted: ReadRange, what: str) -> OutOfRangeError:
    """Records of the range are gone, as the broker says in ``what``."""
    return OutOfRangeError(
        Reason.REVISION_COMPACTED,
        f"offsets {wanted.start_offset} to {wanted.end_offset - 1} of "
        f"{wanted.topic}-{wanted.partition} were removed while they were read: {what}",
    )
