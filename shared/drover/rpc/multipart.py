"""Reassembles sets of task configs that a client sends in several messages."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from drover.clock import Clock
from drover.errors import AbortedError, InvalidArgumentError, Reason, Violation

#: The maximum size of all incomplete sets together, and so of each set.
SETS_MAX_BYTES = 128 * 1024 * 1024
SETS_MAX = 16
#: A set is dropped if its writer has sent no part for this long.
SILENCE_MAX_MS = 60_000


EntryT = TypeVar("EntryT")
EntryT_co = TypeVar("EntryT_co", covariant=True)


class Part(Protocol[EntryT_co]):
    """A message with a part of a set, as ``drover.client.multipart`` sends it."""

    @property
    def connector(self) -> str:
        """The connector of the set."""

    @property
    def request_id(self) -> str:
        """The same in all parts of a set."""

    @property
    def task_configs(self) -> Sequence[EntryT_co]:
        """The part's entries."""

    @property
    def part(self) -> int:
        """The part's index, from 0."""

    @property
    def more(self) -> bool:
        """Whether another part follows."""

    def ByteSize(self) -> int:  # noqa: N802
        """The size of the message."""


@dataclass(slots=True)
class _Set(Generic[EntryT]):
    """The received parts of one request."""

    parts: list[Sequence[EntryT]] = field(default_factory=list)
    sizes_bytes: list[int] = field(default_factory=list)
    last_part_ms: int = 0


class PartsInProgress(Generic[EntryT]):
    """Keeps the parts of each set until the last part arrives.

    It is bounded: it drops the oldest set if there are too many.

    Args:
        clock: Measures the time since the last part of a set.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: by connector and request id, in the order of their last parts
        self._sets: OrderedDict[tuple[str, str], _Set[EntryT]] = OrderedDict()

    def add(self, request: Part[EntryT]) -> Sequence[EntryT] | None:
        """Add a part; returns the complete set after the last part, otherwise None.

        Raises:
            InvalidArgumentError: INVALID_REQUEST, a negative part; TOO_LARGE, the set is too large.
            AbortedError: PART_MISSING, an earlier part is missing.
        """
        now_ms = self._clock.now_ms()
        self._drop_silent(now_ms)
        if request.part < 0:
            raise InvalidArgumentError.listing([Violation("part", "must not be negative")])
        key = (request.connector, request.request_id)
        received = self._sets.pop(key, None) if request.part else None
        if request.part == 0:
            self._sets.pop(key, None)
            if not request.more:
                return request.task_configs
            received = _Set()
        if received is None or request.part > len(received.parts):
            raise AbortedError(
                Reason.PART_MISSING,
                f"part {request.part} of the task configs of {request.connector!r} was received"
                " without the earlier parts: send the set again from its first part",
            )
        del received.parts[request.part :], received.sizes_bytes[request.part :]
        received.parts.append(request.task_configs)
        received.sizes_bytes.append(request.ByteSize())
        _check_size(sum(received.sizes_bytes))
        if not request.more:
            return [entry for part in received.parts for entry in part]
        received.last_part_ms = now_ms
        self._sets[key] = received
        self._make_room()
        return None

    def _drop_silent(self, now_ms: int) -> None:
        while self._sets:
            key, oldest = next(iter(self._sets.items()))
            if now_ms - oldest.last_part_ms <= SILENCE_MAX_MS:
                return
            del self._sets[key]

    def _make_room(self) -> None:
        total = sum(sum(each.sizes_bytes) for each in self._sets.values())
        while total > SETS_MAX_BYTES or len(self._sets) > SETS_MAX:
            _, dropped = self._sets.popitem(last=False)
            total -= sum(dropped.sizes_bytes)


def _check_size(size_bytes: int) -> None:
    if size_bytes > SETS_MAX_BYTES:
        fault = f"have {size_bytes} bytes in total, the maximum is {SETS_MAX_BYTES}"
        raise InvalidArgumentError(
            Reason.TOO_LARGE,
            f"the task configs {fault}",
            violations=[Violation("task_configs", fault)],
        )
