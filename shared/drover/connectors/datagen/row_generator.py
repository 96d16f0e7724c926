"""Generated rows: a pure function of seed, row number and column, computed on whole arrays.

Row n is the same in every run and in every batch. All steps but the last division use integers, so
the rows are the same on every machine.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from drover.connectors.datagen import sample_words as words
from drover.connectors.ddl import TIMESTAMP, parse_ddl

Numbers = npt.NDArray[np.uint64]

#: 2024-01-01T00:00:00Z
START_MS = 1_704_067_200_000

QUICKSTARTS = {
    "orders": "order_id bigint, at timestamp, customer_id bigint, customer string, email string, "
    "city string, country string, product string, quantity int, price decimal(10,2), status string",
    "clicks": "click_id bigint, at timestamp, user_id bigint, session_id string, page string, "
    "referrer string, device string, country string, ip string, duration_ms int",
    "sensors": "reading_id bigint, at timestamp, sensor_id string, city string, "
    "temperature double, humidity double, battery int, online boolean",
}


@dataclass(frozen=True, slots=True)
class RowGenerator:
    """Generates rows with the columns ``ddl``; timestamps of consecutive rows are ``step_ms``
    apart.
    """

    ddl: str
    seed: int
    step_ms: int = 1000

    def rows(self, numbers: Numbers) -> pa.RecordBatch:
        """The rows with these numbers, in this order."""
        schema = parse_ddl(self.ddl)
        columns = [
            self._column(each, each.name, numbers, first=n == 0) for n, each in enumerate(schema)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _column(self, field: pa.Field, path: str, numbers: Numbers, *, first: bool = False) -> Any:
        draws = Draws(numbers, _column_seed(self.seed, path), self.step_ms)
        kind = field.type
        if pa.types.is_struct(kind):
            children = [kind.field(index) for index in range(kind.num_fields)]
            arrays = [self._column(each, f"{path}.{each.name}", numbers) for each in children]
            return pa.StructArray.from_arrays(arrays, fields=children)
        if pa.types.is_list(kind):
            counts = draws.below(3) + 1
            elements = np.repeat(draws.raw, counts) + _running(counts).astype(np.uint64)
            values = self._column(kind.value_field, f"{path}[]", elements)
            ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
            return pa.ListArray.from_arrays(pa.array(ends), values, type=kind)
        if first and pa.types.is_integer(kind) and field.name.lower().endswith("id"):
            return _narrowed(numbers.astype(np.int64), kind)
        return _by_name(field.name.lower(), kind, draws)


def ddl_faults(ddl: str) -> list[str]:
    """Why rows with these columns cannot be generated; empty if they can."""
    try:
        schema = parse_ddl(ddl)
    except ValueError as error:
        return [str(error)]
    return [
        f"has the column {each.name!r} of type {each.type}: maps cannot be generated, use a struct"
        for each in schema
        if _has_map(each.type)
    ]


class Draws:
    """Random numbers for one column: one per row, and more derived from it."""

    def __init__(self, numbers: Numbers, column_seed: int, step_ms: int) -> None:
        self.numbers = numbers
        self.step_ms = step_ms
        self.raw = _mixed(numbers ^ np.uint64(column_seed))

    def below(self, bound: int) -> npt.NDArray[np.int64]:
        """Whole numbers from 0 to ``bound`` - 1."""
        # the upper half, scaled: a multiplication is faster than a remainder
        return (((self.raw >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32)).astype(np.int64)

    def hill(self, bound: int) -> npt.NDArray[np.int64]:
        """Whole numbers from 0 to 2 * ``bound`` - 2; the middle is the most frequent."""
        return self.below(bound) + self.again().below(bound)

    def again(self) -> "Draws":
        """A second, independent set of numbers for the same rows."""
        return Draws(self.raw, 0x5851F42D4C957F2D, self.step_ms)

    def one_of(self, texts: Sequence[str]) -> Any:
        """One of ``texts`` for each row."""
        return pc.take(pa.array(texts), pa.array(self.below(len(texts)).astype(np.int32)))

    def times_ms(self) -> npt.NDArray[np.int64]:
        """Timestamps in milliseconds that increase with the row number."""
        jitter = self.below(self.step_ms) if self.step_ms > 1 else 0
        steps: npt.NDArray[np.int64] = self.numbers.astype(np.int64) * self.step_ms
        return START_MS + steps + jitter


def _by_name(name: str, kind: pa.DataType, draws: Draws) -> Any:
    if pa.types.is_string(kind):
        return _text(name, draws)
    if pa.types.is_timestamp(kind):
        return pa.array(draws.times_ms()).cast(TIMESTAMP)
    if pa.types.is_date(kind):
        return pa.array(draws.times_ms().astype("datetime64[ms]").astype("datetime64[D]"))
    if pa.types.is_boolean(kind):
        return pa.array(draws.below(100) < (95 if name in ("online", "active") else 50))
    if pa.types.is_binary(kind):
        return _hex(draws.raw).cast(pa.binary())
    low, high = _range_of(name)
    if pa.types.is_decimal(kind):
        return _decimal(kind, draws, low, high)
    if pa.types.is_floating(kind):
        centre_steps = (high - low) * 50 + 1
        return pa.array((low * 100 + draws.hill(centre_steps)) / 100.0).cast(kind)
    return _narrowed(low + draws.below(high - low + 1), kind)


def _range_of(name: str) -> tuple[int, int]:
    """The smallest and the largest value for a column with this name."""
    known = {
        "quantity": (1, 9),
        "count": (0, 99),
        "price": (1, 499),
        "amount": (1, 999),
        "total": (1, 999),
        "age": (18, 90),
        "temperature": (-10, 35),
        "humidity": (20, 95),
        "battery": (0, 100),
        "rating": (1, 5),
        "year": (1990, 2025),
        "lat": (-60, 70),
        "latitude": (-60, 70),
        "lon": (-180, 180),
        "longitude": (-180, 180),
    }
    for word in (name, name.rpartition("_")[2]):
        if word in known:
            return known[word]
    if name.endswith("_ms"):
        return 20, 30_000
    if name.endswith("id"):
        return 1, 10_000
    return 0, 1000


def _text(name: str, draws: Draws) -> Any:
    word = name.rpartition("_")[2]
    if word in _TEXTS:
        return _TEXTS[word](draws)
    for texts_name, texts in words.BY_NAME.items():
        if word == texts_name:
            return draws.one_of(texts)
    if word == "id":
        what = name.removesuffix("id").rstrip("_") or "id"
        digits = pc.utf8_lpad(pa.array(draws.below(10_000)).cast(pa.string()), 4, "0")
        return pc.binary_join_element_wise(f"{what}-", digits, "")
    return draws.one_of(words.WORDS)


def _full_name(draws: Draws) -> Any:
    last = draws.again().one_of(words.LAST_NAMES)
    return pc.binary_join_element_wise(draws.one_of(words.FIRST_NAMES), last, " ")


def _email(draws: Draws) -> Any:
    second = draws.again()
    first = pc.utf8_lower(pa.array(words.FIRST_NAMES)).to_pylist()
    number = pa.array(second.below(1000)).cast(pa.string())
    domain = second.again().one_of(words.MAIL_DOMAINS)
    return pc.binary_join_element_wise(
        draws.one_of(first), pc.binary_join_element_wise(number, domain, "@"), "."
    )


def _session(draws: Draws) -> Any:
    return pc.binary_join_element_wise(_hex(draws.raw), _hex(draws.again().raw), "")


def _ip_address(draws: Draws) -> Any:
    second, third = draws.again(), draws.again().again()
    parts = [pa.array(each.below(256)).cast(pa.string()) for each in (draws, second, third)]
    return pc.binary_join_element_wise("10", *parts, ".")


#: Text generators by the last word of the column name.
_TEXTS: dict[str, Callable[[Draws], Any]] = {
    "name": _full_name,
    "customer": _full_name,
    "user": _full_name,
    "email": _email,
    "session": _session,
    "uuid": _session,
    "ip": _ip_address,
}


def _decimal(kind: pa.DataType, draws: Draws, low: int, high: int) -> Any:
    """Decimals of at most 9 digits, so that all intermediate values fit into 64 bits."""
    scale = min(kind.scale, 2)
    unit = 10**scale
    most = min(high * unit, 10 ** min(kind.precision - kind.scale + scale, 9) - 1)
    units = min(low * unit, most) + draws.below(most - min(low * unit, most) + 1)
    whole = pa.array(units).cast(pa.decimal128(19, 0))
    # reinterpret the same digits with another scale: no division
    as_units = pa.Array.from_buffers(pa.decimal128(19, scale), len(whole), whole.buffers())
    return as_units.cast(kind)


def _narrowed(values: npt.NDArray[np.int64], kind: pa.DataType) -> Any:
    """The values modulo the range of a narrower type, without negative numbers."""
    bits = kind.bit_width
    return pa.array(values if bits == 64 else values & ((1 << (bits - 1)) - 1)).cast(kind)


_NIBBLES = np.frombuffer(b"0123456789abcdef", np.uint8)


def _hex(values: Numbers) -> Any:
    """16 hexadecimal digits for each value."""
    data = values.astype(">u8").view(np.uint8)
    digits = np.empty(data.size * 2, np.uint8)
    digits[0::2] = _NIBBLES[data >> 4]
    digits[1::2] = _NIBBLES[data & 15]
    offsets = np.arange(len(values) + 1, dtype=np.int32) * 16
    return pa.Array.from_buffers(
        pa.string(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(digits)]
    )


def _mixed(numbers: Numbers) -> Numbers:
    """The finaliser of splitmix64: similar inputs give unrelated outputs."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _column_seed(seed: int, path: str) -> int:
    digest = hashlib.blake2b(f"{seed}/{path}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def _running(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The numbers 0 to count - 1 for each count, concatenated."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) - np.repeat(ends - counts, counts)


def _has_map(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return True
    return any(_has_map(kind.field(index).type) for index in range(kind.num_fields))
