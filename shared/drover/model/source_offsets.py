"""Source offsets as a fold of the offsets topic, which Kafka Connect writes as well. Pure.

A key is the JSON of ``[connector, partition]``, a value that of the offset. Kafka Connect looks an
offset up by the bytes of its key; here partitions that are equal as JSON are the same. If a
partition has several spellings, the newest offset counts, and commits write all of them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from drover.model.offset_json import canonical_json, compact_json, offset_record_key
from drover.model.offsets import CommittedOffset


class UnreadableOffsetError(ValueError):
    """A record is not what Kafka Connect's offsets look like; the message says why."""


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A record to write: the bytes of its key and value, None for a tombstone."""

    key: bytes
    value: bytes | None
    metadata: str


@dataclass(frozen=True, slots=True)
class _Spelling:
    """The offset of a partition under one spelling of its key; ``written`` orders spellings."""

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
        """Apply a record as it was read.

        Raises:
            UnreadableOffsetError: It is none of Kafka Connect's offsets. Nothing has changed.
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
        """A connector's offsets with their canonical partitions, in no order."""
        return [
            (canonical, max(spellings.values(), key=lambda each: each.written).offset)
            for canonical, spellings in self._spellings.get(connector, {}).items()
        ]

    def records(self, connector: str, offset: CommittedOffset) -> list[SourceRecord]:
        """The records that write a valid offset, under every existing spelling of its key."""
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
    """The connector, and its partition as it is spelled and in the canonical spelling."""
    parsed = _parsed(key, "key")
    if not (isinstance(parsed, list) and len(parsed) == 2):
        raise UnreadableOffsetError("the key is not a JSON array of a connector and a partition")
    connector, partition = parsed
    if not isinstance(connector, str):
        raise UnreadableOffsetError("the key's connector is not a text")
    if not isinstance(partition, dict):
        raise UnreadableOffsetError("the key's partition is not a JSON object")
    partition_json = _dumped(partition, "key")
    return connector, partition_json, canonical_json(partition_json)


def _parse_value(value: bytes) -> str | None:
    parsed = _parsed(value, "value")
    if parsed is None:  # the JSON of nothing: as good as removed
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
        raise UnreadableOffsetError(f"the {what} holds what JSON cannot ({error})") from error
    return text
