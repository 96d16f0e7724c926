"""Conversions of topic columns, which repeat few distinct names."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from drover.config.patterns import PatternTimeoutError
from drover.record.arrow import Array, Texts
from drover.record.errors import RecordError, RowsError


def by_topic(topics: Texts, convert: Callable[[str], Any], kind: pa.DataType) -> Array:
    """Apply ``convert`` to a column of topics, once for each distinct name; null stays null.

    Raises:
        RowsError: The rows of a topic for which a pattern exceeds its time limit.
    """
    encoded = topics.dictionary_encode()
    converted = []
    for number, name in enumerate(encoded.dictionary.to_pylist()):
        try:
            converted.append(convert(name))
        except PatternTimeoutError as error:
            rows = np.flatnonzero(np.asarray(encoded.indices.fill_null(-1)) == number)
            raise RowsError(dict.fromkeys(rows.tolist(), RecordError(str(error)))) from None
    return pa.array(converted, kind).take(encoded.indices)
