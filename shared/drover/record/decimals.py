"""Vectorised conversion of decimals: from texts, and from and to the base64 of unscaled values.

The conversions of base64 support 128-bit decimals whose unscaled values fit into eight bytes, which
covers nearly all decimals in databases; for other columns they return None.
"""

import base64
import decimal
import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from drover.record.arrow import Array, Texts

_ALPHABET = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8
)
_PAD, _QUOTE = ord("="), ord('"')
_NO_SEXTET = 0xFF
#: Every number with at most this many digits fits into eight bytes.
_DIGITS_MAX = 18
_SEXTETS = np.full(256, _NO_SEXTET, np.uint8)
_SEXTETS[_ALPHABET] = np.arange(64)
#: The smallest numbers that need one more byte in two's complement.
_FIRST_OF_BYTES = np.array([1 << (8 * count - 1) for count in range(1, 8)], np.int64)
#: Enough digits for every decimal.
EXACT = decimal.Context(prec=1000)
_LOSSLESS = decimal.Context(prec=1000, traps=[decimal.Inexact, decimal.InvalidOperation])
#: Texts that are this long or shorter do not overflow Arrow's decimals of 128 and 256 bits.
_SHORT_128, _SHORT_256 = 38, 76
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,9})?")

Numbers = npt.NDArray[np.int64]


def unscaled(value: decimal.Decimal, scale: int) -> int:
    """The unscaled value of a decimal with ``scale`` digits after the point."""
    return int(value.scaleb(scale, EXACT))


def shortest_bytes(number: int) -> bytes:
    """A whole number in two's complement, in as few bytes as possible."""
    bits = (number if number >= 0 else ~number).bit_length()
    return number.to_bytes(bits // 8 + 1, "big", signed=True)


def of_texts(texts: Texts, kind: pa.DataType) -> Array:
    """Decimals of that type from numbers as text; null for null.

    Arrow's own conversion keeps the digits of a long text modulo 2**128 or 2**256, and finds no
    error if the rest fits.

    Raises:
        ArrowInvalid: A text is no number, or the type does not hold all of its digits.
    """
    short = _SHORT_128 if pa.types.is_decimal128(kind) else _SHORT_256
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    if longest <= short:
        return texts.cast(kind)
    numbers = [None if each is None else _of_text(each, kind) for each in texts.to_pylist()]
    return pa.array(numbers, kind)


def _of_text(text: str, kind: pa.DataType) -> decimal.Decimal:
    exponent = decimal.Decimal(1).scaleb(-kind.scale)
    try:
        if _NUMBER.fullmatch(text):
            number = decimal.Decimal(text).quantize(exponent, context=_LOSSLESS)
            if number.adjusted() < kind.precision - kind.scale:
                return number
    except decimal.DecimalException:
        pass
    raise pa.ArrowInvalid(f"no number that {kind} holds with all digits: {text[:80]!r}")


def decimal_base64(digits: int) -> str:
    """The base64 of a decimal's unscaled value."""
    return base64.b64encode(shortest_bytes(digits)).decode()


def quoted_base64(values: Array, scale: int) -> Texts | None:
    """JSON strings with the base64 of decimals of that scale, each in as few bytes as possible."""
    if not pa.types.is_decimal128(values.type) or values.type.scale != scale or not len(values):
        return None
    numbers = unscaled_numbers(values)
    if numbers is None:
        return None
    byte_counts = byte_counts_of(numbers)
    lengths = 2 + 4 * ((byte_counts + 2) // 3)
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
    if offsets[-1] > np.iinfo(np.int32).max:
        return None
    texts = np.full(offsets[-1], _QUOTE, np.uint8)
    big_endian = numbers.astype(">i8").view(np.uint8).reshape(-1, 8)
    for count in np.unique(byte_counts):
        rows = np.flatnonzero(byte_counts == count)
        encoded = _base64(big_endian[rows, 8 - count :])
        texts[offsets[rows][:, None] + np.arange(1, 1 + encoded.shape[1])] = encoded
    validity = values.is_valid().buffers()[1] if values.null_count else None
    buffers = [validity, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(texts)]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


def of_base64(texts: Texts, kind: pa.DataType) -> Array | None:
    """Decimals of that type from the base64 of their unscaled values; null for null."""
    if not pa.types.is_decimal128(kind) or not len(texts) or texts.null_count == len(texts):
        return None
    _, offset_buffer, data = texts.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[texts.offset :][: len(texts) + 1]
    lengths = np.diff(offsets)
    characters = np.frombuffer(data, np.uint8)
    valid = texts.is_valid().to_numpy(zero_copy_only=False)
    numbers = np.zeros(len(texts), np.int64)
    for length in np.unique(lengths[valid]):
        rows = np.flatnonzero((lengths == length) & valid)
        found = _numbers_in(characters[offsets[rows][:, None] + np.arange(length)])
        if found is None:
            return None
        numbers[rows] = found
    if kind.precision <= _DIGITS_MAX and not _has_digits(numbers, kind.precision):
        return None
    validity = texts.is_valid().buffers()[1] if texts.null_count else None
    words = np.stack((numbers, numbers >> 63), axis=1)
    return pa.Array.from_buffers(kind, len(texts), [validity, pa.py_buffer(words)])


def _has_digits(numbers: Numbers, count: int) -> bool:
    """Whether no number has more digits than ``count``."""
    return bool(((-(10**count) < numbers) & (numbers < 10**count)).all())


def _numbers_in(characters: npt.NDArray[np.uint8]) -> Numbers | None:
    """Numbers of base64 rows of equal length; None unless all are as ``quoted_base64`` writes."""
    length = characters.shape[1]
    if length not in (4, 8, 12):
        return None
    padding = (characters == _PAD).sum(axis=1)
    numbers = np.zeros(len(characters), np.int64)
    for pad in np.unique(padding):
        rows = np.flatnonzero(padding == pad)
        sextets = _SEXTETS[characters[rows, : length - pad]].astype(np.int64)
        bits = 6 * (length - pad)
        unused = bits % 8
        byte_count = bits // 8
        if pad > 2 or byte_count > 8 or (sextets == _NO_SEXTET).any():
            return None
        if (sextets[:, -1] & ((1 << unused) - 1)).any():
            return None
        found = np.zeros(len(rows), np.int64)
        for column in range(sextets.shape[1] - 1):
            found = found << 6 | sextets[:, column]
        found = found << (6 - unused) | sextets[:, -1] >> unused
        spare = 64 - 8 * byte_count
        numbers[rows] = found << spare >> spare  # sign extension
    return numbers


def byte_counts_of(numbers: Numbers) -> npt.NDArray[np.int64]:
    """The number of bytes that each number needs in two's complement."""
    return 1 + np.searchsorted(_FIRST_OF_BYTES, numbers ^ (numbers >> 63), side="right")


def unscaled_numbers(values: Array) -> Numbers | None:
    """The unscaled values of 128-bit decimals as eight-byte numbers, 0 for null; None if one does
    not fit.
    """
    words = np.frombuffer(values.buffers()[1], "<i8").reshape(-1, 2)
    words = words[values.offset : values.offset + len(values)]
    if values.null_count:
        words = np.where(values.is_valid().to_numpy(zero_copy_only=False)[:, None], words, 0)
    low, high = words[:, 0], words[:, 1]
    return low if np.array_equal(high, low >> 63) else None


def _base64(digits: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """The base64 of byte rows of equal length."""
    missing = -digits.shape[1] % 3
    triples = np.pad(digits, ((0, 0), (0, missing))).reshape(len(digits), -1, 3)
    first, second, third = (triples[:, :, number] for number in range(3))
    sextets = (
        first >> 2,
        (first & 0x03) << 4 | second >> 4,
        (second & 0x0F) << 2 | third >> 6,
        third & 0x3F,
    )
    texts = _ALPHABET[np.stack(sextets, axis=2)].reshape(len(digits), -1)
    if missing:
        texts[:, -missing:] = _PAD
    return texts
