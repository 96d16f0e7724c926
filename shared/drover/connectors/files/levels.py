"""Directory levels of Confluent's connectors: topics, partitions, fields and times."""

import re
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from drover.connector.records import PARTITION, TIMESTAMP, TOPIC, is_binary, is_text
from drover.connectors.files.row_files import NULL_DIRECTORY, Level, column_of

#: Pattern letters of path.format, and their strftime codes.
_LETTERS = {
    "yyyy": "%Y",
    "YYYY": "%Y",
    "yy": "%y",
    "YY": "%y",
    "MM": "%m",
    "dd": "%d",
    "DDD": "%j",
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
}
_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")


@dataclass(frozen=True, slots=True)
class TopicLevel:
    """A directory per topic."""

    field: None = None

    def names(self, batch: pa.RecordBatch, rows: pa.RecordBatch | None) -> Any:
        """See ``Level``."""
        return batch.column(TOPIC).cast(pa.string())


@dataclass(frozen=True, slots=True)
class PartitionLevel:
    """A directory ``partition=3`` per partition of a topic."""

    field: None = None

    def names(self, batch: pa.RecordBatch, rows: pa.RecordBatch | None) -> Any:
        """See ``Level``."""
        numbers = batch.column(PARTITION).cast(pa.string())
        return pc.binary_join_element_wise("partition=", numbers, "")


@dataclass(frozen=True, slots=True)
class TimeLevels:
    """Directories by time: the record's timestamp, a field of its value, or the wall clock.

    ``format`` is a strftime format; times are rounded down to ``duration_ms``; 0 does not round.
    """

    format: str
    timezone: str
    field: str | None = None
    duration_ms: int = 0
    wallclock: bool = False

    def names(self, batch: pa.RecordBatch, rows: pa.RecordBatch | None) -> Any:
        """See ``Level``."""
        if self.wallclock:
            values = pa.array([int(time.time() * 1000)] * batch.num_rows, pa.int64())
        elif self.field is None:
            values = batch.column(TIMESTAMP)
        else:
            values = column_of(self, batch, rows)
        moments = self._millis(values)
        if self.duration_ms:
            moments = pc.multiply(pc.divide(moments, self.duration_ms), self.duration_ms)
        times = moments.cast(pa.timestamp("ms", self.timezone)).cast(
            pa.timestamp("s", self.timezone), safe=False
        )
        return pc.strftime(times, format=self.format).fill_null(NULL_DIRECTORY)

    def _millis(self, values: Any) -> Any:
        kind = values.type
        if is_text(kind):
            values = values.cast(pa.string())
            try:
                values = values.cast(pa.timestamp("ms", "UTC"))
            except pa.ArrowInvalid:
                values = self._parsed(values)
        elif pa.types.is_date(kind):
            values = values.cast(pa.timestamp("ms"))
        elif not pa.types.is_timestamp(kind) and not pa.types.is_integer(kind):
            raise ValueError(
                f"timestamp.field names {self.field!r}, which is of type {kind}: it must be a time,"
                " milliseconds, or ISO 8601 text"
            )
        if pa.types.is_timestamp(values.type):
            zone = values.type.tz
            values = values.cast(pa.timestamp("ms", zone), safe=False)
        return values.cast(pa.int64())

    def _parsed(self, values: Any) -> Any:
        try:
            return values.cast(pa.timestamp("ms"))
        except pa.ArrowInvalid as error:
            raise ValueError(
                f"timestamp.field names {self.field!r}, but its texts are not ISO 8601 "
                f"times: {error}"
            ) from error


@dataclass(frozen=True, slots=True)
class FieldLevel:
    """A directory ``city=Oslo`` per value of a field; the field stays in the files."""

    field: str

    def names(self, batch: pa.RecordBatch, rows: pa.RecordBatch | None) -> Any:
        """See ``Level``."""
        values = column_of(self, batch, rows)
        if pa.types.is_nested(values.type) or is_binary(values.type):
            raise ValueError(
                f"partition.field.name names {self.field!r} of the unsupported type {values.type}"
            )
        encoded = values.cast(pa.string()).dictionary_encode()
        names = [
            f"{self.field}={quote(text, safe=' :,;@!()')}"
            for text in encoded.dictionary.to_pylist()
        ]
        found = pa.array(names, pa.string()).take(encoded.indices)
        return found.fill_null(f"{self.field}={NULL_DIRECTORY}")


def strftime_of(pattern: str) -> str:
    """Convert a ``path.format`` such as ``'year'=YYYY/'month'=MM`` to a strftime format.

    Raises:
        ValueError: It has unsupported letters, or an open quote.
    """
    result, end = [], 0
    for match in _TOKEN.finditer(pattern):
        if match.start() != end:
            break
        end = match.end()
        quoted, letter = match[1], match[2]
        if quoted is not None:
            result.append((quoted.replace("''", "'") or "'").replace("%", "%%"))
        elif letter is not None:
            if match[0] not in _LETTERS:
                known = ", ".join(_LETTERS)
                raise ValueError(f"has {match[0]!r}: must be one of {known}")
            result.append(_LETTERS[match[0]])
        else:
            result.append(match[0].replace("%", "%%"))
    if end != len(pattern):
        raise ValueError(f"has an unterminated quote: {pattern[end:][:40]!r}")
    return "".join(result)


__all__ = ["FieldLevel", "Level", "PartitionLevel", "TimeLevels", "TopicLevel", "strftime_of"]
