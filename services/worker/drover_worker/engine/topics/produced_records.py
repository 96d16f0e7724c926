"""Records from the input of ProduceRecords: parsed and encoded, with the faults of every line."""

import base64
import binascii
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import pyarrow as pa

from drover.api.common.v1 import topics_pb2
from drover.convert.converter import Converter
from drover.convert.json_converter import JsonConverter
from drover.convert.json_envelopes import decode_envelopes
from drover.convert.lenient import Hex
from drover.convert.plain_converters import ByteArrayConverter, StringConverter
from drover.dataplane.payload import PAYLOAD_SCHEMA
from drover.errors import InvalidArgumentError, Reason, Violation
from drover.model.produce_input import check_input_size
from drover.record.errors import RecordError
from drover.record.json.numbers import fraction_of
from drover.record.json.schemaless import TAG, value_text
from drover.record.schema import arrow_field
from drover.transform.exact_texts import moment_of

#: Limits of one input, and the most faults that are looked for.
RECORDS_MAX = 1_000_000
HEADERS_MAX = 100
FAULTS_MAX = 100
#: So many records are encoded together.
_BATCH_RECORDS = 10_000
_TIMESTAMP_MAX_MS = (1 << 63) - 1
_MILLISECOND_NS = 10**6
_FIELDS = ("key", "value", "headers", "partition", "timestamp")
#: Fields of a record's place, as the viewer prints them.
_IGNORED = frozenset({"topic", "offset"})
_BYTES = "bytes"
_FAULT_MAX_CHARS = 300
_BOM = b"\xef\xbb\xbf"

#: A header's key and value.
Header = tuple[str, bytes | None]


class _LineError(ValueError):
    """What is wrong with a line."""


@dataclass(slots=True)
class InputRecords:
    """The records of an input, one entry per record in each list.

    A key or value is bytes of the format LINES, else parsed JSON. ``faults`` has, by line number,
    what is wrong with lines that are no records.
    """

    lines: list[int] = field(default_factory=list)
    keys: list[Any] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    headers: list[Sequence[Header]] = field(default_factory=list)
    partitions: list[int | None] = field(default_factory=list)
    timestamps_ms: list[int | None] = field(default_factory=list)
    faults: dict[int, str] = field(default_factory=dict)

    def add(
        self,
        line: int,
        key: Any,
        value: Any,
        headers: Sequence[Header] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Add a record."""
        self.lines.append(line)
        self.keys.append(key)
        self.values.append(value)
        self.headers.append(headers)
        self.partitions.append(partition)
        self.timestamps_ms.append(timestamp_ms)


def parse(options: topics_pb2.ProduceOptions, data: bytes, partition_count: int) -> InputRecords:
    """The records of an input.

    Raises:
        InvalidArgumentError: TOO_LARGE, it has too many bytes or lines.
    """
    check_input_size(len(data))
    records = InputRecords()
    as_lines = options.format == topics_pb2.PRODUCE_FORMAT_LINES
    line_count = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    if line_count > RECORDS_MAX:
        raise InvalidArgumentError(
            Reason.TOO_LARGE,
            f"the input has {line_count} lines, the maximum is {RECORDS_MAX}: divide it",
        )
    read: Callable[[bytes], tuple[Any, ...] | None]
    if as_lines:
        separator, marker = options.key_separator.encode(), options.null_marker.encode()
        read = lambda line: _of_line(line, separator, marker)  # noqa: E731
    else:
        data = data.removeprefix(_BOM)
        read = lambda line: _of_json(line, partition_count)  # noqa: E731
    for number, line in enumerate(_lines(data), 1):
        try:
            found = read(line)
        except _LineError as error:
            records.faults[number] = str(error)
            if len(records.faults) == FAULTS_MAX:
                break
            continue
        if found is not None:
            records.add(number, *found)
    return records


def encode(
    records: InputRecords,
    key: Converter,
    value: Converter,
    *,
    topic: str,
    now_ms: int,
    record_bytes_max: int | None,
) -> pa.RecordBatch:
    """The records as ``PAYLOAD_SCHEMA``; what is wrong with lines is added to their ``faults``."""
    faults = records.faults
    keys = _Side(key, topic, "key").encoded(records.keys, records.lines, faults)
    values = _Side(value, topic, "value").encoded(records.values, records.lines, faults)
    if record_bytes_max is not None:
        rows = zip(records.lines, keys, values, records.headers, strict=True)
        for line, found_key, found_value, headers in rows:
            size_bytes = len(found_key or b"") + len(found_value or b"")
            size_bytes += sum(len(name) + len(each or b"") for name, each in headers)
            if size_bytes > record_bytes_max and len(faults) < FAULTS_MAX:
                faults.setdefault(
                    line,
                    f"the record has {size_bytes} bytes, and {topic} takes {record_bytes_max}: "
                    "raise max.message.bytes of the topic, or shorten it",
                )
    return pa.RecordBatch.from_arrays(
        [
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            pa.array(
                [
                    [{"key": name, "value": found} for name, found in each] or None
                    for each in records.headers
                ],
                PAYLOAD_SCHEMA.field("headers").type,
            ),
            pa.array(
                [now_ms if each is None else each for each in records.timestamps_ms], pa.int64()
            ),
        ],
        schema=PAYLOAD_SCHEMA,
    )


def raise_faults(faults: Mapping[int, str]) -> None:
    """Report every line with a fault.

    Raises:
        InvalidArgumentError: INVALID_REQUEST.
    """
    if faults:
        raise InvalidArgumentError.listing(
            [Violation(f"line {line}", text) for line, text in sorted(faults.items())]
        )


def _lines(data: bytes) -> list[bytes]:
    lines = data.split(b"\n")
    if not lines[-1]:  # behind the last line end
        lines.pop()
    return [line.removesuffix(b"\r") for line in lines]


def _of_line(line: bytes, separator: bytes, marker: bytes) -> tuple[Any, ...]:
    key: bytes | None = None
    value: bytes | None = line
    if separator:
        found, sign, rest = line.partition(separator)
        if not sign:
            raise _LineError("has no key separator")
        key, value = found, rest
    if marker:
        key, value = (None if each == marker else each for each in (key, value))
    return key, value


def _of_json(line: bytes, partition_count: int) -> tuple[Any, ...] | None:
    if not line.strip():
        return None
    found = parsed_json(line)
    if not isinstance(found, dict):
        raise _LineError(f"must be a JSON object with the fields {', '.join(_FIELDS)}")
    unknown = [name for name in found if name not in _FIELDS and name not in _IGNORED]
    if unknown:
        raise _LineError(
            f"the field {unknown[0][:80]!r} is unknown: the fields of a record are "
            f"{', '.join(_FIELDS)}"
        )
    if "value" not in found:
        raise _LineError("has no field value: null makes a tombstone")
    return (
        found.get("key"),
        found["value"],
        _headers(found.get("headers")),
        _partition(found.get("partition"), partition_count),
        _timestamp_ms(found.get("timestamp")),
    )


def parsed_json(line: bytes) -> Any:
    """Any JSON, with all digits of its numbers.

    Raises:
        ValueError: It is none.
    """
    try:
        return json.loads(
            line.decode(),
            parse_float=fraction_of,
            parse_constant=_refuse,
            object_pairs_hook=_object,
        )
    except UnicodeDecodeError as error:
        raise _LineError(f"is not UTF-8 at byte {error.start + 1}") from None
    except _LineError:
        raise
    except json.JSONDecodeError as error:
        raise _LineError(f"is no JSON: {error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise _LineError("is nested too deeply") from None
    except ValueError as error:  # a number of too many digits
        raise _LineError(f"is no JSON: {error}"[:_FAULT_MAX_CHARS]) from None


def _refuse(name: str) -> NoReturn:
    raise _LineError(f"is no JSON: {name} is no number of JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise _LineError(f"has the field {twice[:80]!r} twice in one object")
    if TAG in found:
        raise _LineError(f"must not have the field {TAG!r}")
    return found


def _headers(found: Any) -> Sequence[Header]:
    if found is None:
        return ()
    pairs: list[tuple[Any, Any]] = []
    if isinstance(found, dict):
        pairs = list(found.items())
    elif isinstance(found, list) and all(
        isinstance(each, dict) and each.keys() == {"key", "value"} for each in found
    ):
        pairs = [(each["key"], each["value"]) for each in found]
    else:
        raise _LineError('headers must be an object, or a list of {"key": …, "value": …}')
    if len(pairs) > HEADERS_MAX:
        raise _LineError(f"has {len(pairs)} headers, the maximum is {HEADERS_MAX}")
    return [(_header_key(name), _header_value(name, value)) for name, value in pairs]


def _header_key(name: Any) -> str:
    if not isinstance(name, str):
        raise _LineError("the key of a header must be text")
    _utf8(name, "the key of a header")
    return name


def _header_value(name: str, value: Any) -> bytes | None:
    if value is None:
        return None
    labelled = _labelled(value)
    if labelled is not None:
        return labelled
    if not isinstance(value, str):
        raise _LineError(f'the header {name[:80]!r} must be text, null or {{"bytes": base64}}')
    return _utf8(value, f"the header {name[:80]!r}")


def _partition(found: Any, count: int) -> int | None:
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < count:
        raise _LineError(f"partition must be a number from 0 to {count - 1}, not {str(found)[:40]}")
    return found


def _timestamp_ms(found: Any) -> int | None:
    if found is None:
        return None
    number: Any = found
    if isinstance(found, str):
        moment_ns = moment_of(found)
        number = None if moment_ns is None else moment_ns / _MILLISECOND_NS
        if number is not None and number == int(number):
            number = int(number)
    if (
        isinstance(number, bool)
        or not isinstance(number, int)
        or not 0 <= number <= _TIMESTAMP_MAX_MS
    ):
        raise _LineError(
            "timestamp must be in ISO 8601 with at most milliseconds, or the milliseconds since "
            f"1970, not {str(found)[:60]!r}"
        )
    return number


def _utf8(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise _LineError(f"{what} has half of a surrogate pair") from None


def _labelled(value: Any) -> bytes | None:
    """The bytes of ``{"bytes": base64}``; None for another value."""
    if not (isinstance(value, dict) and value.keys() == {_BYTES}):
        return None
    try:
        return base64.b64decode(value[_BYTES], validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise _LineError(f"{_BYTES} must be base64, not {str(value[_BYTES])[:40]!r}") from None


class _Side:
    """Encodes the keys or the values."""

    def __init__(self, converter: Converter, topic: str, name: str) -> None:
        self._converter = converter
        self._topic = topic
        self._name = name
        self._is_text = isinstance(converter, StringConverter)
        self._is_bytes = isinstance(converter, ByteArrayConverter)
        self._has_schemas = not (
            isinstance(converter, JsonConverter) and not converter.config["schemas.enable"]
        )

    def encoded(
        self, values: Sequence[Any], lines: Sequence[int], faults: dict[int, str]
    ) -> list[bytes | None]:
        """The bytes of each value; null for a line with a fault."""
        ready: list[Any] = [None] * len(values)
        rows: list[int] = []
        for row, value in enumerate(values):
            if value is None:
                continue
            try:
                ready[row] = self._ready(value)
                rows.append(row)
            except _LineError as error:
                self._note(lines[row], str(error), faults)
            if len(faults) >= FAULTS_MAX:
                return [None] * len(values)
        if isinstance(self._converter, Hex) or self._is_bytes:
            return ready
        found: list[bytes | None] = [None] * len(values)
        for start in range(0, len(rows), _BATCH_RECORDS):
            for row, encoded in self._batch(ready, rows[start : start + _BATCH_RECORDS]):
                if isinstance(encoded, bytes):
                    found[row] = encoded
                else:
                    self._note(lines[row], encoded, faults)
            if len(faults) >= FAULTS_MAX:
                break
        return found

    def _note(self, line: int, fault: str, faults: dict[int, str]) -> None:
        if len(faults) < FAULTS_MAX:
            faults.setdefault(line, f"{self._name}: {fault}"[:_FAULT_MAX_CHARS])

    def _ready(self, value: Any) -> Any:
        """Bytes for converters of bytes, else text: of strings, or JSON."""
        if isinstance(self._converter, Hex):
            return self._of_hex(value)
        if self._is_bytes:
            if isinstance(value, bytes):
                return value
            labelled = _labelled(value)
            return self._text(value).encode() if labelled is None else labelled
        if self._is_text:
            return self._text(value)
        if isinstance(value, bytes):
            value = parsed_json(value)
        text = value_text(value)
        _utf8(text, "the text")
        return text

    def _text(self, value: Any) -> str:
        if isinstance(value, bytes):
            try:
                return value.decode()
            except UnicodeDecodeError as error:
                raise _LineError(
                    f"is not UTF-8 at byte {error.start + 1}: for bytes use ByteArrayConverter"
                ) from None
        text = value if isinstance(value, str) else value_text(value)
        _utf8(text, "the text")
        return text

    def _of_hex(self, value: Any) -> bytes:
        text = value.decode(errors="replace") if isinstance(value, bytes) else value
        try:
            return bytes.fromhex(text.removeprefix("0x"))
        except (AttributeError, ValueError):
            raise _LineError(
                f"must be text of hexadecimal digits, not {str(text)[:40]!r}"
            ) from None

    def _batch(
        self, texts: Sequence[str], rows: Sequence[int]
    ) -> Iterator[tuple[int, bytes | str]]:
        """The bytes of these rows, or what is wrong with them; failing rows are halved until each
        is alone.
        """
        try:
            yield from list(zip(rows, self._encode([texts[row] for row in rows]), strict=True))
        except Exception as error:  # noqa: BLE001 - a converter may be a plugin's
            if len(rows) == 1:
                yield rows[0], str(error) or type(error).__name__
                return
            half = len(rows) // 2
            yield from self._batch(texts, rows[:half])
            yield from self._batch(texts, rows[half:])

    def _encode(self, texts: Sequence[str]) -> list[bytes]:
        if self._is_text:
            kind = pa.field(self._name, pa.string())
            return self._converted(kind, pa.array(texts, pa.string()))
        found: list[Any] = [None] * len(texts)
        plain = range(len(texts))
        if self._has_schemas:
            envelopes = [row for row, text in enumerate(texts) if _is_envelope(text)]
            plain_rows = set(plain) - set(envelopes)
            values = pa.array([texts[row].encode() for row in envelopes], pa.binary())
            for group in decode_envelopes(values, replace_null=False) if envelopes else ():
                own = range(len(group.values)) if group.rows is None else group.rows.to_pylist()
                encoded = self._converted(group.field, group.values)
                for row, each in zip(own, encoded, strict=True):
                    found[envelopes[row]] = each
            rows = sorted(plain_rows)
        else:
            rows = list(plain)
        if rows:
            column = pa.array([texts[row] for row in rows], pa.string())
            for row, each in zip(
                rows, self._converted(arrow_field(self._name, None), column), strict=True
            ):
                found[row] = each
        return found

    def _converted(self, kind: pa.Field, values: Any) -> list[bytes]:
        topics = pa.repeat(pa.scalar(self._topic, pa.string()), len(values))
        found: list[bytes | None] = self._converter.encode(
            kind.with_name(self._name), values, topics
        ).to_pylist()
        if None in found:
            raise RecordError("null has no form in this converter: give no schema for a tombstone")
        return [each for each in found if each is not None]


def _is_envelope(text: str) -> bool:
    if not text.startswith(('{"schema":', '{"payload":')):
        return False
    return bool(json.loads(text).keys() == {"schema", "payload"})
