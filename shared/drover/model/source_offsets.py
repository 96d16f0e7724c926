"""Source offsets as a fold over the offsets topic, which Kafka Connect also writes. Pure.

A key is the JSON of ``[connector, partition]``, a value is the JSON of the offset. Kafka Connect
looks an offset up by the bytes of its key. Drover treats partitions that are equal as JSON as the
same partition. If a partition has several spellings, the newest offset counts, and a commit writes
all spellings.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from drover.model.offset_json import canonical_json, compact_json, offset_record_key
from drover.model.offsets import CommittedOffset


class UnreadableOffsetError(ValueError):
    """A record does not have the form of Kafka Connect's offsets; the message states the error."""


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A record to write: the bytes of its key and value; None for a tombstone."""

    key: bytes
    value: bytes | None
    metadata: str


@dataclass(frozen=True, slots=True)
class _Spelling:
    """A partition's offset under one spelling of its key; ``written`` orders the spellings."""

    offset: CommittedOffset
    written: tuple[int, int]


class SourceOffsets:
    """The offsets of all source connectors."""

    def __init__(self) -> None:
        #: by connector and canonical partition: by the bytes of the key
        self._spellings: dict[str, dict[str, dict[bytes, _Spelling]]] = {}
        self._arrivals = 0

    def replay(
        self, key: bytes | None, value: bytes | None, *, timestamp_ms: int, metadata: str = ""
    ) -> None:
        """Apply a record of the topic.

        Raises:
            UnreadableOffsetError: The record does not have the form of Kafka Connect's offsets.
                Nothing has changed.
        """
        if key is None:
            raise UnreadableOffsetError("it has no key")
        connector, partition_json, canonical = _parse_key(key)
        offset_json = None if value is None else _parse_value(value)
        if offset_json is None:
            self._remove(connector, canonical, key)
            return
        self._arrivals += 1
        offset = CommittedOffset(partition_json, offset_json, metadata)
        spellings = self._spellings.setdefault(connector, {}).setdefault(canonical, {})
        spellings[key] = _Spelling(offset, (timestamp_ms, self._arrivals))

    def of(self, connector: str) -> list[tuple[str, CommittedOffset]]:
        """A connector's offsets with their canonical partitions, in no particular order."""
        return [
            (canonical, max(spellings.values(), key=lambda each: each.written).offset)
            for canonical, spellings in self._spellings.get(connector, {}).items()
        ]

    def records(self, connector: str, offset: CommittedOffset) -> list[SourceRecord]:
        """The records that write a valid offset, under all existing spellings of its key."""
        canonical = canonical_json(offset.partition_json)
        keys: Sequence[bytes] = list(self._spellings.get(connector, {}).get(canonical, ()))
        value = None if offset.offset_json is None else compact_json(offset.offset_json).encode()
        metadata = "" if value is None else offset.metadata
        return [
            SourceRecord(key, value, metadata)
            for key in keys or [offset_record_key(connector, offset.partition_json)]
        ]

    def _remove(self, connector: str, canonical: str, key: bytes) -> None:
        partitions = self._spellings.get(connector, {})
        spellings = partitions.get(canonical, {})
        spellings.pop(key, None)
        if not spellings:
            partitions.pop(canonical, None)
        if not partitions:
            self._spellings.pop(connector, None)


def _parse_key(key: bytes) -> tuple[str, str, str]:
    """The connector, its partition as spelled in the key, and the canonical partition."""
    parsed = _parsed(key, "key")
    if not (isinstance(parsed, list) and len(parsed) == 2):
        raise UnreadableOffsetError("the key is not a JSON array of a connector and a partition")
    connector, partition = parsed
    if not isinstance(connector, str):
        raise UnreadableOffsetError("the key's connector is not a string")
    if not isinstance(partition, dict):
        raise UnreadableOffsetError("the key's partition is not a JSON object")
    partition_json = _dumped(partition, "key")
    return connector, partition_json, canonical_json(partition_json)


def _parse_value(value: bytes) -> str | None:
    parsed = _parsed(value, "value")
    if parsed is None:  # JSON null is equivalent to a tombstone
        return None
    if not isinstance(parsed, dict):
        raise UnreadableOffsetError("the value is not a JSON object")
    return _dumped(parsed, "value")


def _parsed(content: bytes, what: str) -> Any:
    try:
        return json.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise UnreadableOffsetError(f"the {what} is not JSON ({error})") from error


def _dumped(value: object, what: str) -> str:
    try:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        text.encode()
    except (ValueError, RecursionError) as error:
        raise UnreadableOffsetError(f"the {what} has a value that JSON lacks ({error})") from error
    return text
