"""Columns of topics: few names, each many times."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from drover.record.arrow import Array, Texts


def by_topic(topics: Texts, convert: Callable[[str], Any], kind: pa.DataType) -> Array:
    """What ``convert`` makes of every topic, called once for each name; null for null."""
    encoded = topics.dictionary_encode()
    made = pa.array([convert(each) for each in encoded.dictionary.to_pylist()], kind)
    return made.take(encoded.indices)
