"""Decoding for people, which never fails: a record that its converter cannot decode is guessed."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from drover.config.config_def import ConfigDef
from drover.convert.converter import Converter, Decoded
from drover.convert.json_envelopes import decode_envelopes
from drover.convert.steps import DecodeRecords
from drover.record.batch import ERROR, KEY, VALUE
from drover.record.errors import RecordError, RowsError, described
from drover.record.schema import arrow_field

#: The start of an object of schema and payload.
_ENVELOPE = r'^\s*\{\s*"(?:schema|payload)"\s*:'
_MESSAGE_MAX_CHARS = 500


@dataclass(frozen=True, slots=True)
class LenientDecoder:
    """Decodes records with the converters; the format of a record that fails is guessed, and the
    column ERROR has the reason.
    """

    key: Converter
    value: Converter

    @classmethod
    def guessing(cls) -> "LenientDecoder":
        """Guesses the format of every key and value."""
        return cls(Guess({}, is_key=True), Guess({}, is_key=False))

    def __call__(self, records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The same records in the same order, in one or several batches. A failing batch is halved
        until each bad record is alone.
        """
        try:
            yield from list(DecodeRecords(self.key, self.value)(records))
        except Exception as error:  # noqa: BLE001 - a converter may be a plugin's
            if records.num_rows > 1:
                half = records.num_rows // 2
                yield from self(records.slice(0, half))
                yield from self(records.slice(half))
                return
            text = described(error)[:_MESSAGE_MAX_CHARS]
            guess = self.guessing()
            for guessed in DecodeRecords(guess.key, guess.value)(records):
                field = pa.field(ERROR, pa.string())
                yield guessed.append_column(field, pa.array([text], pa.string()))


def is_json(text: str) -> bool:
    """Whether the text is JSON."""
    try:
        orjson.loads(text)
    except ValueError:
        return _is_rare_json(text)
    return True


def _is_rare_json(text: str) -> bool:
    """Whether it is JSON that orjson refuses: 1e400, half of a surrogate pair."""
    try:
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


class _Own(Converter):
    """A converter that only decodes: each value becomes JSON text."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See Converter."""
        return ConfigDef()

    def encode(self, field: pa.Field, values: Any, topics: Any) -> Any:
        """Not supported."""
        raise NotImplementedError

    def decode(self, values: Any, topics: Any) -> Sequence[Decoded]:
        """See Converter."""
        del topics
        name = KEY if self.is_key else VALUE
        texts = [None if each is None else self.text(each) for each in values.to_pylist()]
        return [Decoded(None, arrow_field(name, None), pa.array(texts, pa.string()))]

    def text(self, value: bytes) -> str:
        """The value as JSON."""
        raise NotImplementedError


class Guess(_Own):
    """Guesses the format of values; see RecordQuery."""

    def decode(self, values: Any, topics: Any) -> Sequence[Decoded]:
        """See Converter: envelopes get the columns of their schemas."""
        is_envelope = pc.fill_null(pc.match_substring_regex(values, pattern=_ENVELOPE), False)
        if not pc.any(is_envelope).as_py():
            return super().decode(values, topics)
        rows = pc.indices_nonzero(is_envelope).cast(pa.int64())
        found, faulty = _envelopes(values, rows)
        rest = pc.indices_nonzero(pc.invert(is_envelope)).cast(pa.int64())
        rest = pa.array(sorted([*rest.to_pylist(), *faulty]), pa.int64())
        if len(rest):
            (guessed,) = super().decode(values.take(rest), None)
            found.append(Decoded(rest, guessed.field, guessed.values))
        return found

    def text(self, value: bytes) -> str:
        """The value as JSON, in its guessed format."""
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return json.dumps(f"0x{value.hex()}")
        if is_json(text):
            return text
        printable = all(each.isprintable() or each in "\t\r\n" for each in text)
        return json.dumps(text if printable else f"0x{value.hex()}", ensure_ascii=False)


def _envelopes(values: Any, rows: Any) -> tuple[list[Decoded], list[int]]:
    """The payloads of envelopes at these rows, and the rows that turn out to be none."""
    try:
        found = decode_envelopes(values.take(rows), replace_null=True)
    except RowsError as error:
        faulty = rows.take(pa.array(sorted(error.rows), pa.int64())).to_pylist()
        left = pa.array([row for row in rows.to_pylist() if row not in set(faulty)], pa.int64())
        if not len(left):
            return [], faulty
        found, more = _envelopes(values, left)
        return found, [*faulty, *more]
    except RecordError:
        return [], rows.to_pylist()
    placed = [
        each if each.rows is None else Decoded(rows.take(each.rows), each.field, each.values)
        for each in found
    ]
    return [
        Decoded(rows, each.field, each.values) if each.rows is None else each for each in placed
    ], []


class Hex(_Own):
    """Shows bytes as hexadecimal digits."""

    def text(self, value: bytes) -> str:
        """The value as JSON."""
        return json.dumps(f"0x{value.hex()}")
