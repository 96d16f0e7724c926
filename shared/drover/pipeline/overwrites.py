"""Which data of a sink's target a record overwrites, as identities that can be compared."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from hashlib import sha256
from typing import Any, Literal

import pyarrow as pa

from drover.pipeline.step import Step
from drover.record.batch import (
    ERROR,
    KEY,
    OFFSET,
    ORIGIN,
    PARTITION,
    TIMESTAMP,
    TOPIC,
    VALUE,
)
from drover.record.json import schemaless
from drover.record.schema import is_schemaless

_FAULT_MAX_CHARS = 300
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class OverwriteKey:
    """The part of a record that selects what a sink overwrites or deletes with it.

    Attributes:
        part: The record's key or its value, after the transforms.
        fields: Names of its fields; empty for all of it.
        per_topic: Whether records of different topics overwrite different data.
        ignores_case: Whether the target may take texts as equal that differ only in upper case,
            lower case and blanks at the end.
        keyless_appends: Whether a record without this part overwrites nothing; otherwise the
            record may overwrite any data.
    """

    part: Literal["key", "value"] = "key"
    fields: tuple[str, ...] = ()
    per_topic: bool = True
    ignores_case: bool = False
    keyless_appends: bool = False


#: The identities of a record, why they are unknown, and its topic after the steps.
Found = tuple[list[str] | None, str | None, str | None]


@dataclass(frozen=True, slots=True)
class Identities:
    """Computes what each record of a topic overwrites; for executors.

    Yields a row for each record with its place, its timestamp in milliseconds, and the digest of
    its key and value as they are stored. ``identities`` has one digest for each of ``keys``; it is
    null if the record does not pass the steps, which is why in ``fault``, or has no such key.

    Attributes:
        prepare: Makes records of the rows of a topic; for dead letters it reads their origin.
        steps: The steps up to the sink, or into the topic of a source.
        keys: The keys of the sink; all of the key for a source.
        wanted: Yield only records with one of these identities; None for all.
        places: Yield these records as well.
        shows_keys: Yield the first record with a key of each batch as well.
    """

    prepare: Callable[[pa.RecordBatch], Iterable[pa.RecordBatch]]
    steps: tuple[Step, ...]
    keys: tuple[OverwriteKey, ...]
    wanted: frozenset[str] | None = None
    places: frozenset[tuple[str, int, int]] = frozenset()
    shows_keys: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows as ``ROWS``; lazy."""
        for batch in batches:
            rows = self.rows_of(batch)
            if rows:
                yield pa.RecordBatch.from_pylist(rows, schema=ROWS)

    def rows_of(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        """The rows of one batch of a topic."""
        stored = [
            {
                "topic": topic,
                "partition": partition,
                "offset": offset,
                "time_ms": None if stamp is None else int(stamp.timestamp() * 1000),
                "digest": stored_digest(key, value),
                "has_key": key is not None,
                "identities": None,
                "fault": None,
                "target": None,
            }
            for topic, partition, offset, stamp, key, value in zip(
                *(
                    batch.column(name).to_pylist()
                    for name in (TOPIC, PARTITION, OFFSET, TIMESTAMP, KEY, VALUE)
                ),
                strict=True,
            )
        ]
        found = self._identities(batch)
        rows = []
        shows_key = self.shows_keys
        for index, row in enumerate(stored):
            row["identities"], row["fault"], row["target"] = found.get(index, (None, None, None))
            identities: Sequence[str] = row["identities"] or ()
            place = (row["topic"], row["partition"], row["offset"])
            is_shown = self.wanted is None or not self.wanted.isdisjoint(identities)
            if is_shown or place in self.places or (shows_key and row["has_key"]):
                rows.append(row)
                shows_key = shows_key and not row["has_key"]
        return rows

    def _identities(self, batch: pa.RecordBatch) -> dict[int, Found]:
        """The identities by row, or the fault; rows that a transform drops are left out."""
        try:
            made = self._through(batch)
        except Exception as error:  # noqa: BLE001 - converters and transforms may be plugins
            if batch.num_rows > 1:
                half = batch.num_rows // 2
                first = self._identities(batch.slice(0, half))
                second = self._identities(batch.slice(half))
                return first | {half + row: each for row, each in second.items()}
            text = f"{type(error).__name__}: {error}"
            return {0: (None, text[:_FAULT_MAX_CHARS], None)}
        places = {place: row for row, place in enumerate(_places(batch))}
        return {places[place]: each for place, each in made.items() if place in places}

    def _through(self, batch: pa.RecordBatch) -> dict[tuple[int, int], Found]:
        found: dict[tuple[int, int], Found] = {}
        for prepared in self.prepare(batch):
            if ERROR in prepared.schema.names:
                faults = prepared.column(ERROR).to_pylist()
                for place, fault in zip(_places(prepared), faults, strict=True):
                    if fault is not None:
                        found[place] = (None, fault, None)
                prepared = prepared.filter(pa.array([each is None for each in faults]))
            made = [prepared] if prepared.num_rows else []
            for step in self.steps:
                made = [each for part in made for each in step(part) if each.num_rows]
            for records in made:
                found |= self._of(records)
        return found

    def _of(self, records: pa.RecordBatch) -> dict[tuple[int, int], Found]:
        topics = records.column(TOPIC).to_pylist()
        parts = [_parts(records, each) for each in self.keys]
        found: dict[tuple[int, int], Found] = {}
        for row, place in enumerate(_places(records)):
            identities: list[str] = []
            fault = None
            for number, (key, column) in enumerate(zip(self.keys, parts, strict=True)):
                part = column[row]
                if part is None and key.keyless_appends:
                    continue
                if part is None:
                    named = ", ".join(key.fields)
                    fault = f"its {key.part} has no {named}" if named else f"it has no {key.part}"
                else:
                    identities.append(_digest(number, topics[row] if key.per_topic else "", part))
            found[place] = (identities if fault is None else None, fault, topics[row])
        return found


def normal(value: Any, *, ignores_case: bool = False) -> Any:
    """A value in a form that is equal for values that a target may take as equal: numbers of all
    types, and texts with the same digits.
    """
    match value:
        case None | bool():
            return str(value).lower()
        case int():
            return str(value)
        case float() | Decimal():
            number = Decimal(str(value))
            if not number.is_finite():
                return str(number).lower()
            return str(int(number)) if number == int(number) else str(number.normalize())
        case str():
            return value.rstrip().casefold() if ignores_case else value
        case bytes():
            return f"0x{value.hex()}"
        case datetime() | date() | time():
            return value.isoformat()
        case Mapping():
            return sorted(
                (str(name), normal(each, ignores_case=ignores_case)) for name, each in value.items()
            )
        case list() | tuple():
            return [normal(each, ignores_case=ignores_case) for each in value]
        case _:
            return str(value)


def _places(records: pa.RecordBatch) -> list[tuple[int, int]]:
    """The partition and offset of each record in its topic, or of the dead letter that it was."""
    if ORIGIN in records.schema.names:
        texts = records.column(ORIGIN).to_pylist()
        pairs = (each.rpartition("-")[2].split("@") for each in texts)
        return [(int(partition), int(offset)) for partition, offset in pairs]
    columns = (records.column(name).to_pylist() for name in (PARTITION, OFFSET))
    return list(zip(*columns, strict=True))


def _parts(records: pa.RecordBatch, key: OverwriteKey) -> list[Any]:
    """What selects the data of each record; None where it is missing."""
    column, field = records.column(key.part), records.schema.field(key.part)
    values = column.to_pylist(maps_as_pydicts="lossy")
    if is_schemaless(field):
        values = [None if each is None else schemaless.loads(each) for each in values]
    found: list[Any] = []
    for value in values:
        if value is None:
            found.append(None)
            continue
        part = value
        if key.fields and isinstance(value, Mapping):
            wanted = [_at(value, name) for name in key.fields]
            part = None if any(each is None for each in wanted) else wanted
        elif key.fields and key.part == VALUE:
            part = None
        elif isinstance(value, Mapping):
            # one field is equal to the same value without a struct
            part = list(value.values())
        else:
            part = [value]
        found.append(None if part is None else normal(part, ignores_case=key.ignores_case))
    return found


def _at(value: Mapping[str, Any], name: str) -> Any:
    if name in value:
        return value[name]
    found: Any = value
    for each in name.split("."):
        found = found.get(each) if isinstance(found, Mapping) else None
    return found


def _digest(number: int, topic: str | None, part: Any) -> str:
    text = repr((number, topic, part)).encode("utf-8", "surrogatepass")
    return sha256(text).hexdigest()[: 2 * _DIGEST_BYTES]


def stored_digest(key: bytes | None, value: bytes | None) -> str:
    """A digest of a key and a value as bytes."""
    digest = sha256()
    for each in (key, value):
        data = each.encode() if isinstance(each, str) else each
        digest.update(b"-" if data is None else b"%d:" % len(data) + data)
    return digest.hexdigest()[: 2 * _DIGEST_BYTES]


#: The rows of ``Identities``.
ROWS = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("time_ms", pa.int64()),
        ("digest", pa.string()),
        ("has_key", pa.bool_()),
        ("identities", pa.list_(pa.string())),
        ("fault", pa.string()),
        ("target", pa.string()),
    ]
)
