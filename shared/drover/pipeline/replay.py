"""Replays dead letters through a connector, as records of their original topics."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from drover.convert.lenient import LenientDecoder
from drover.model.dead_letters import CUT_HEADERS, HEADER_PREFIX, REPAIR_HEADER
from drover.pipeline.failures import place_of
from drover.pipeline.layouts import topic_records
from drover.pipeline.letter_conditions import meeting
from drover.pipeline.overwrites import ROWS, Identities
from drover.record.batch import (
    ERROR,
    HEADERS,
    HEADERS_TYPE,
    KEY,
    OFFSET,
    ORIGIN,
    ORIGINAL_TOPIC,
    PARTITION,
    TOPIC,
    VALUE,
    with_column,
)
from drover.record.json import schemaless
from drover.record.schema import arrow_field
from drover.transform.conditions import Condition

_ORIGIN = f"{HEADER_PREFIX}topic"

#: The bytes of a key and a value.
Parts = tuple[bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class LetterRecords:
    """Records from dead letters: their topic is the original one, their partition and offset are
    those of the dead letter, and the dead letter topic is ORIGINAL_TOPIC.

    ``default_topic`` is for dead letters without a topic header. Dead letters that do not meet
    ``conditions`` are skipped; ``decode`` gives the keys and values that are compared. Those in
    ``refused``, by partition and offset, fail with its reason. Those in ``repairs`` have other keys
    and values.
    """

    default_topic: str | None = None
    conditions: Sequence[Condition] = ()
    decode: LenientDecoder = field(default_factory=LenientDecoder.guessing)
    refused: Mapping[tuple[int, int], str] = field(default_factory=dict)
    repairs: Mapping[tuple[int, int], Parts] = field(default_factory=dict)

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """One batch of records."""
        for records in topic_records(batch):
            if self.conditions:
                records = records.filter(meeting(records, self.conditions, self.decode))
            if self.repairs:
                records = self._repaired(records)
            topics = [self._topic(headers) for headers in records.column(HEADERS).to_pylist()]
            letters = records.column(TOPIC)
            cut = [_is_cut(headers) for headers in records.column(HEADERS).to_pylist()]
            places = _places(records)
            faults = [
                self.refused.get(place) or (_CUT if is_cut else None if topic else _NO_TOPIC)
                for topic, is_cut, place in zip(topics, cut, places, strict=True)
            ]
            told = pa.array(topics, pa.string()).fill_null("")
            records = with_column(records, pa.field(TOPIC, pa.string()), told)
            records = records.append_column(pa.field(ORIGINAL_TOPIC, letters.type), letters)
            if any(faults):
                records = records.append_column(
                    pa.field(ERROR, pa.string()), pa.array(faults, pa.string())
                )
            yield records

    def _repaired(self, records: pa.RecordBatch) -> pa.RecordBatch:
        places = _places(records)
        for index, name in enumerate((KEY, VALUE)):
            parts = [
                self.repairs[place][index] if place in self.repairs else part
                for place, part in zip(places, records.column(name).to_pylist(), strict=True)
            ]
            column = records.schema.field(name)
            records = with_column(records, column, pa.array(parts, column.type))
        return records

    def _topic(self, headers: list[dict[str, object]] | None) -> str | None:
        for each in headers or ():
            value = each["value"]
            if each["key"] == _ORIGIN and isinstance(value, bytes):
                return value.decode(errors="replace")
        return self.default_topic


def _places(records: pa.RecordBatch) -> list[tuple[int, int]]:
    columns = (records.column(name).to_pylist() for name in (PARTITION, OFFSET))
    return list(zip(*columns, strict=True))


def _is_cut(headers: list[dict[str, object]] | None) -> bool:
    return any(each["key"] in CUT_HEADERS for each in headers or ())


_CUT = (
    "the dead letter was cut to the size limit of its topic, so it is not the whole record: raise "
    "max.message.bytes of the topic, and read the record from its original topic"
)
_NO_TOPIC = (
    "the dead letter has no header with its original topic, and the connector's config does not "
    "name a single topic (errors.deadletterqueue.context.headers.enable)"
)


@dataclass(frozen=True, slots=True)
class SourceLetters:
    """Records from a source's dead letters, in the form for its transforms.

    Values of a ``structured`` source are JSON, so schemaless, and text if they are not JSON; values
    of a ``text`` source are text. They go to any partition of their topic.
    """

    letters: LetterRecords
    structured: bool = False
    text: bool = False

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """One batch of records."""
        for records in self.letters(batch):
            places = [place_of(records.slice(row, 1)) for row in range(records.num_rows)]
            for name in (PARTITION, OFFSET):
                field = records.schema.field(name)
                records = with_column(records, field, pa.nulls(records.num_rows, field.type))
            for name in (KEY, VALUE) if self.structured or self.text else ():
                values = records.column(name)
                if self.structured:
                    texts = pa.array([_json(each) for each in values.to_pylist()], pa.string())
                    records = with_column(records, arrow_field(name, None), texts)
                else:
                    texts = pa.array([_text(each) for each in values.to_pylist()], pa.string())
                    records = with_column(records, pa.field(name, pa.string()), texts)
            origins = pa.array(places, pa.string())
            yield records.append_column(pa.field(ORIGIN, pa.string()), origins)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")


def _json(value: bytes | None) -> str | None:
    text = _text(value)
    if text is None:
        return None
    try:
        schemaless.loads(text)
    except ValueError:
        return schemaless.dumps(text)
    return text


@dataclass(frozen=True, slots=True)
class WithoutErrorHeaders:
    """A step that removes the error headers of dead letters."""

    name: str = "error headers"

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """See Step."""
        kept = [
            None
            if headers is None
            else [each for each in headers if not each["key"].startswith(HEADER_PREFIX)]
            for headers in batch.column(HEADERS).to_pylist()
        ]
        return (with_column(batch, pa.field(HEADERS, HEADERS_TYPE), pa.array(kept, HEADERS_TYPE)),)


@dataclass(frozen=True, slots=True)
class LetterRows:
    """Rows about dead letters, for the decision which of them are replayed; for executors.

    A row has what ``identities`` yields, and: whether the dead letter meets ``conditions``, the
    connector that wrote it, and the place of the record that failed, as far as headers have them.
    """

    identities: Identities
    conditions: Sequence[Condition] = ()
    decode: LenientDecoder = field(default_factory=LenientDecoder.guessing)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows as ``LETTER_ROWS``; lazy."""
        for batch in batches:
            if batch.num_rows:
                yield pa.RecordBatch.from_pylist(self._rows(batch), schema=LETTER_ROWS)

    def _rows(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        matches = [
            each
            for records in topic_records(batch)
            for each in meeting(records, self.conditions, self.decode).to_pylist()
        ]
        rows = self.identities.rows_of(batch)
        for row, headers, match in zip(
            rows, batch.column(HEADERS).to_pylist(), matches, strict=True
        ):
            texts = {
                each["key"].removeprefix(HEADER_PREFIX): (each["value"] or b"").decode(
                    errors="replace"
                )
                for each in headers or ()
                if each["key"].startswith(HEADER_PREFIX)
            }
            row["matches"] = match
            row["connector"] = texts.get("connector.name")
            row["origin_topic"] = texts.get("topic")
            row["origin_partition"] = _number(texts.get("partition"))
            row["origin_offset"] = _number(texts.get("offset"))
            repair = texts.get(REPAIR_HEADER.removeprefix(HEADER_PREFIX))
            if repair is not None:  # the digest of the record that failed
                row["digest"] = repair.rpartition(" ")[2]
        return rows


def _number(text: str | None) -> int | None:
    is_number = text is not None and text.isascii() and text.isdigit() and len(text) < 19
    return int(str(text)) if is_number else None


#: The rows of ``LetterRows``.
LETTER_ROWS = pa.schema(
    [
        *ROWS,
        ("matches", pa.bool_()),
        ("connector", pa.string()),
        ("origin_topic", pa.string()),
        ("origin_partition", pa.int32()),
        ("origin_offset", pa.int64()),
    ]
)
