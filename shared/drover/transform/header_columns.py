"""Vectorised changes of header columns."""

import pyarrow as pa
import pyarrow.compute as pc

from drover.record.arrow import Array, Binaries, Headers, Mask, Texts, offsets_of
from drover.record.batch import HEADERS_TYPE

_ENTRY_TYPE = HEADERS_TYPE.value_type


def header_entries(key: str, values: Binaries, kinds: Texts) -> pa.Array:
    """One header per row with this key; ``kinds`` are the types of the values (HEADERS_TYPE)."""
    return pa.StructArray.from_arrays(
        [pa.repeat(pa.scalar(key, pa.string()), len(values)), values, kinds],
        fields=list(_ENTRY_TYPE),
    )


def with_entries(headers: Headers, *added: Array) -> Headers:
    """Append headers to each row; each array in ``added`` has one header per row."""
    rows = pa.array(range(len(headers)), pa.int64())
    parents = pc.cast(pc.list_parent_indices(headers), pa.int64())
    entries = pa.concat_arrays([pc.list_flatten(headers).cast(_ENTRY_TYPE), *added])
    order = pc.sort_indices(pa.concat_arrays([parents, *(rows for _ in added)]))
    lengths = pc.add(_lengths(headers), len(added))
    return pa.ListArray.from_arrays(offsets_of(lengths), entries.take(order), type=HEADERS_TYPE)


def without_keys(headers: Headers, keys: frozenset[str]) -> Headers:
    """Remove the headers with these keys; rows whose headers are null stay null."""
    entries = pc.list_flatten(headers)
    keep = pc.invert(_has_key(entries, keys))
    return pa.ListArray.from_arrays(
        offsets_of(_counts(headers, keep)),
        entries.filter(keep),
        type=HEADERS_TYPE,
        mask=headers.is_null() if headers.null_count else None,
    )


def have_key(headers: Headers, key: str) -> Mask:
    """Whether each row has a header with this key."""
    found = _has_key(pc.list_flatten(headers), frozenset({key}))
    return pc.greater(_counts(headers, found), 0)


def _has_key(entries: Array, keys: frozenset[str]) -> Mask:
    return pc.is_in(pc.struct_field(entries, "key"), pa.array(sorted(keys), pa.string()))


def _lengths(headers: Headers) -> Array:
    return pc.fill_null(pc.list_value_length(headers), 0)


def _counts(headers: Headers, chosen: Mask) -> Array:
    """How many of each row's entries are chosen."""
    before = offsets_of(pc.cast(chosen, pa.int32()))
    offsets = offsets_of(_lengths(headers))
    at = before.take(offsets)
    return pc.subtract(at.slice(1), at.slice(0, len(headers)))
