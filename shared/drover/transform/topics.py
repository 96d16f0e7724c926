"""Conversions of topic columns, which repeat few distinct names."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from drover.record.arrow import Array, Texts


def by_topic(topics: Texts, convert: Callable[[str], Any], kind: pa.DataType) -> Array:
    """Apply ``convert`` to a column of topics, once for each distinct name; null stays null."""
    encoded = topics.dictionary_encode()
    converted = pa.array([convert(each) for each in encoded.dictionary.to_pylist()], kind)
    return converted.take(encoded.indices)
