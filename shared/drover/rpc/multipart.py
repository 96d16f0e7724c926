"""Sets of task configs that come in several messages: put together here, written as one."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from drover.clock import Clock
from drover.errors import AbortedError, InvalidArgumentError, Reason, Violation

#: All that waits for its last part together, and so each set too.
SETS_MAX_BYTES = 128 * 1024 * 1024
SETS_MAX = 16
#: A set whose writer has sent nothing for so long is given up.
SILENCE_MAX_MS = 60_000


EntryT = TypeVar("EntryT")
EntryT_co = TypeVar("EntryT_co", covariant=True)


class Part(Protocol[EntryT_co]):
    """A message with a part of a set; ``drover.client.multipart`` sends such."""

    @property
    def connector(self) -> str:
        """Whose set it is."""

    @property
    def request_id(self) -> str:
        """The same in each part of a set."""

    @property
    def task_configs(self) -> Sequence[EntryT_co]:
        """The part's entries."""

    @property
    def part(self) -> int:
        """Which part it is, from 0."""

    @property
    def more(self) -> bool:
        """Whether another one follows."""

    def ByteSize(self) -> int:  # noqa: N802
        """How large the message is."""


@dataclass(slots=True)
class _Set(Generic[EntryT]):
    """The parts of one request that have come."""

    parts: list[Sequence[EntryT]] = field(default_factory=list)
    sizes_bytes: list[int] = field(default_factory=list)
    heard_ms: int = 0


class PartsInProgress(Generic[EntryT]):
    """Keeps the parts of sets until their last one; bounded, so the oldest set may get lost.

    Args:
        clock: Tells who has gone silent.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: by connector and request id, the one that was heard of last at the end
        self._sets: OrderedDict[tuple[str, str], _Set[EntryT]] = OrderedDict()

    def add(self, request: Part[EntryT]) -> Sequence[EntryT] | None:
        """Take a part; returns the whole set with its last one, else None.

        Raises:
            InvalidArgumentError: INVALID_REQUEST, a negative part; TOO_LARGE, too much altogether.
            AbortedError: PART_MISSING, an earlier part is not there.
        """
        now_ms = self._clock.now_ms()
        self._forget_silent(now_ms)
        if request.part < 0:
            raise InvalidArgumentError.listing([Violation("part", "must not be negative")])
        key = (request.connector, request.request_id)
        known = self._sets.pop(key, None) if request.part else None
        if request.part == 0:
            self._sets.pop(key, None)
            if not request.more:
                return request.task_configs
            known = _Set()
        if known is None or request.part > len(known.parts):
            raise AbortedError(
                Reason.PART_MISSING,
                f"part {request.part} of the task configs of {request.connector!r} came without"
                " the parts before it: send the set again from its first part",
            )
        del known.parts[request.part :], known.sizes_bytes[request.part :]
        known.parts.append(request.task_configs)
        known.sizes_bytes.append(request.ByteSize())
        _check_size(sum(known.sizes_bytes))
        if not request.more:
            return [entry for part in known.parts for entry in part]
        known.heard_ms = now_ms
        self._sets[key] = known
        self._make_room()
        return None

    def _forget_silent(self, now_ms: int) -> None:
        while self._sets:
            key, oldest = next(iter(self._sets.items()))
            if now_ms - oldest.heard_ms <= SILENCE_MAX_MS:
                return
            del self._sets[key]

    def _make_room(self) -> None:
        total = sum(sum(each.sizes_bytes) for each in self._sets.values())
        while total > SETS_MAX_BYTES or len(self._sets) > SETS_MAX:
            _, lost = self._sets.popitem(last=False)
            total -= sum(lost.sizes_bytes)


def _check_size(size_bytes: int) -> None:
    if size_bytes > SETS_MAX_BYTES:
        fault = f"take {size_bytes} bytes together, at most {SETS_MAX_BYTES} are allowed"
        raise InvalidArgumentError(
            Reason.TOO_LARGE,
            f"the task configs {fault}",
            violations=[Violation("task_configs", fault)],
        )
