"""Transforms and predicates that match topics."""

from typing import Any

import pyarrow as pa
import pytest

from drover.record.errors import RowsError
from drover.transform.predicates_topic import TopicNameMatches
from drover.transform.regex_router import RegexRouter

_HOSTILE = "(a|aa)+(?=x|y)"
_TOPICS = pa.array(["b", "a" * 45, "c", "a" * 45, None])


@pytest.mark.parametrize(
    "call",
    [
        RegexRouter({"regex": _HOSTILE, "replacement": "b"}),
        TopicNameMatches({"pattern": _HOSTILE}).matches,
    ],
)
def test_only_records_of_a_topic_for_which_a_pattern_takes_too_long_fail(call: Any) -> None:
    batch = pa.record_batch({"topic": _TOPICS})
    with pytest.raises(RowsError, match="did not match within 1 s") as raised:
        call(batch)
    assert list(raised.value.rows) == [1, 3]
    assert call(batch.take(pa.array([0, 2, 4]))) is not None
