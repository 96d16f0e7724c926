"""Repairs in a request to replay dead letters; pure."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.api.engine.v1 import engine_pb2
from drover.errors import Violation
from drover.model.dead_letters import CONNECTOR_HEADER
from drover.model.letter_states import Offsets, OffsetSet

_REPAIRS_MAX = 100
_PART_MAX_CHARS = 1024 * 1024
#: Places that the reason in a connector's history has.
_PLACES_SHOWN = 20


class _Placed(Protocol):
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...


def places_of(found: Iterable[_Placed]) -> Offsets:
    """The offsets by partition."""
    ranges: dict[int, list[tuple[int, int]]] = {}
    for each in found:
        ranges.setdefault(each.partition, []).append((each.offset, each.offset + 1))
    return {partition: OffsetSet.of(each) for partition, each in ranges.items()}


def repair_faults(request: pb.ReplayDeadLettersRequest) -> list[Violation]:
    """What is wrong with the repairs of a request, apart from their keys and values."""
    if not request.repairs:
        return []
    faults = []
    if len(request.repairs) > _REPAIRS_MAX:
        faults.append(Violation("repairs", f"must have at most {_REPAIRS_MAX}"))
    if request.conditions:
        faults.append(Violation("conditions", "must be empty if there are repairs"))
    named = {(each.partition, each.offset) for each in request.letters}
    seen: set[tuple[int, int]] = set()
    for number, each in enumerate(request.repairs[:_REPAIRS_MAX]):
        place, field = (each.partition, each.offset), f"repairs[{number}]"
        if place not in named:
            faults.append(Violation(field, f"must be of one of letters, not {_text(*place)}"))
        if place in seen:
            faults.append(Violation(field, f"repairs {_text(*place)} a second time"))
        seen.add(place)
        if not each.HasField("key") and not each.HasField("value"):
            faults.append(Violation(field, "must have a key or a value"))
        for name in ("key", "value"):
            if len(getattr(each, name)) > _PART_MAX_CHARS:
                text = f"must have at most {_PART_MAX_CHARS:,} characters"
                faults.append(Violation(f"{field}.{name}", text))
    return faults


def repaired_text(places: Sequence[engine_pb2.RepairedDeadLetters.Place]) -> str:
    """The reason for which the originals are discarded."""
    shown = [_text(each.partition, each.repaired_offset) for each in places[:_PLACES_SHOWN]]
    left = len(places) - len(shown)
    return f"repaired as {', '.join(shown)}{f' and {left} more' if left > 0 else ''}"


def replay_of_repaired(
    request: pb.ReplayDeadLettersRequest, places: Iterable[engine_pb2.RepairedDeadLetters.Place]
) -> pb.ReplayDeadLettersRequest:
    """The request for the repaired dead letters and for the ones without a repair."""
    repairs = {(each.partition, each.offset) for each in request.repairs}
    found = pb.ReplayDeadLettersRequest()
    found.CopyFrom(request)
    found.ClearField("repairs")
    found.ClearField("letters")
    for letter in request.letters:
        if (letter.partition, letter.offset) not in repairs:
            found.letters.append(letter)
    for each in places:
        found.letters.add(partition=each.partition, offset=each.repaired_offset)
    return found


def foreign_repairs(request: pb.ReplayDeadLettersRequest, own: Offsets) -> list[Violation]:
    """The violations for repairs of dead letters that are not the connector's ``own`` ones."""
    text = f"its dead letter has no header {CONNECTOR_HEADER} with this connector: needs role admin"
    none = OffsetSet()
    return [
        Violation(f"repairs[{number}]", text)
        for number, each in enumerate(request.repairs)
        if each.offset not in own.get(each.partition, none)
    ]


def _text(partition: int, offset: int) -> str:
    return f"{partition}:{offset}"
