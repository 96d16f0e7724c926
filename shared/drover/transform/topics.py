"""Columns of topics: few names, each many times."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa


def by_topic(topics: Any, convert: Callable[[str], Any], kind: pa.DataType) -> Any:
    """What ``convert`` makes of every topic, called once for each name; null for null."""
    encoded = topics.dictionary_encode()
    made = pa.array([convert(each) for each in encoded.dictionary.to_pylist()], kind)
    return made.take(encoded.indices)
