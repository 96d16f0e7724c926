"""Edits of a connector's offsets: what a form changes, and what conflicts with it; pure."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from drover.api.connect.v1 import connect_service_pb2 as pb

_OFFSET_KEY = "kafka_offset"
_PARTITION_KEYS = {"kafka_topic", "kafka_partition"}


@dataclass(frozen=True, slots=True)
class Edit:
    """The change of one offset. Partition and offsets are JSON objects.

    Attributes:
        partition: The partition.
        before: The offset that the page showed; empty if there was none.
        after: The new offset; empty to remove it.
    """

    partition: str
    before: str
    after: str


class EditError(Exception):
    """Offsets that cannot be read; the message has one line for each."""


def key_of(text: str) -> str:
    """A JSON object in a form in which two equal ones are equal texts; empty for no object.

    Raises:
        ValueError: It is not a JSON object.
    """
    if not text:
        return ""
    # a number keeps its digits: it may be longer than a float is exact
    value = json.loads(text, parse_float=lambda digits: ["number", digits], parse_constant=_refuse)
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    return json.dumps(value, sort_keys=True)


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def is_of_sink(partition: str) -> bool:
    """Whether a partition is one of a topic, so that its offset is a number."""
    try:
        value = json.loads(partition)
    except ValueError:
        return False
    return isinstance(value, dict) and value.keys() == _PARTITION_KEYS


def field_of(partition: str, offset: str) -> str:
    """An offset as a form has it: the number for a topic partition, otherwise JSON."""
    if offset and is_of_sink(partition):
        return str(json.loads(offset).get(_OFFSET_KEY, ""))
    return offset


def edits_of(rows: Iterable[tuple[str, str, str]]) -> list[Edit]:
    """The offsets that a form changes.

    Args:
        rows: Partition, the offset that the page showed, and what the field has now.

    Raises:
        EditError: A partition or an offset cannot be read; all of them are named.
    """
    edits, faults, seen = [], [], set()
    for partition, before, entered in rows:
        if not partition.strip() and not entered.strip():
            continue
        try:
            place = key_of(partition.strip())
        except (ValueError, RecursionError):
            place = ""
        if not place:
            faults.append(f"the partition {partition!r} is not a JSON object")
            continue
        if place in seen:
            faults.append(f"the partition {partition} is there twice")
            continue
        seen.add(place)
        try:
            after = _entered(partition, entered.strip())
            if key_of(after) != key_of(before):
                edits.append(Edit(partition.strip(), before, after))
        except (ValueError, RecursionError) as error:
            faults.append(f"the offset of {partition}: {error}")
    if faults:
        raise EditError("\n".join(faults))
    return edits


def moves_of(found: Iterable[pb.FoundOffset]) -> list[Edit]:
    """The edits that move a sink to the offsets that were found by time."""
    return [
        Edit(each.found.partition_json, each.committed_offset_json, each.found.offset_json)
        for each in found
        if each.found.HasField("offset_json")
        and key_of(each.found.offset_json) != key_of(each.committed_offset_json)
    ]


def _entered(partition: str, text: str) -> str:
    if not text:
        return ""
    if is_of_sink(partition) and not text.startswith("{"):
        if not (text.isascii() and text.isdecimal() and len(text) < 20):
            raise ValueError("it must be a whole number from 0, or empty to remove the offset")
        return json.dumps({_OFFSET_KEY: int(text)}, separators=(",", ":"))
    try:
        key_of(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error.msg}") from None
    return text


@dataclass(frozen=True, slots=True)
class Conflict:
    """An offset that has changed since the page showed it."""

    edit: Edit
    now: str


def conflicts_of(edits: Sequence[Edit], present: Mapping[str, str]) -> list[Conflict]:
    """The edits whose offsets have changed; ``present`` has the offsets by ``key_of`` their
    partitions.
    """
    found = [Conflict(each, present.get(key_of(each.partition), "")) for each in edits]
    return [each for each in found if key_of(each.now) != key_of(each.edit.before)]


def digest_of(offsets: Iterable[tuple[str, str]]) -> str:
    """Identifies partitions and offsets."""
    keys = sorted(f"{key_of(partition)} {key_of(offset)}" for partition, offset in offsets)
    return hashlib.sha256("\n".join(keys).encode("utf-8", "replace")).hexdigest()


def readable(partition: str) -> str:
    """``kafka_topic=t kafka_partition=0`` for the JSON of an object."""
    try:
        value = json.loads(partition)
    except ValueError:
        return partition
    if not isinstance(value, dict):
        return partition
    return " ".join(
        f"{key}={each if isinstance(each, str) else json.dumps(each)}"
        for key, each in value.items()
    )
