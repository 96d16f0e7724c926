import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from drover.api.config_store.v1 import config_store_service_pb2 as config_pb
from drover.codec.common import (
    EnumCodec,
    decode_duration,
    decode_task_id,
    decode_term,
    decode_timestamp,
    encode_duration,
    encode_task_id,
    encode_term,
    encode_timestamp,
)
from drover.errors import InvalidArgumentError, Reason, Violation
from drover.model.config import TargetState
from drover.model.ids import TaskId, Term

ENUM = EnumCodec(config_pb.TargetState, "TARGET_STATE_", TargetState)


@given(st.integers(-(10**13), 10**13))
def test_spans(span_ms: int) -> None:
    assert decode_duration(encode_duration(span_ms)) == span_ms


@given(st.integers(0, 10**14))
def test_times(time_ms: int) -> None:
    assert decode_timestamp(encode_timestamp(time_ms)) == time_ms


def test_finer_than_a_millisecond_is_cut() -> None:
    assert decode_duration(Duration(nanos=1_999_999)) == 1
    assert decode_duration(Duration(nanos=-1_999_999)) == -1
    assert decode_duration(Duration()) == 0
    assert decode_timestamp(Timestamp(seconds=1, nanos=1_999_999)) == 1001


@pytest.mark.parametrize(
    ("span", "expected_ms"),
    [
        (Duration(seconds=2**63 - 1, nanos=2**31 - 1), 2**63 * 1_000 + 1_147),
        (Duration(seconds=-(2**63)), -(2**63) * 1_000),
        (Duration(seconds=7, nanos=-(2**31)), 4_852),
        (Duration(seconds=5, nanos=999_999_999), 5_999),
    ],
)
def test_spans_that_are_not_well_formed_are_decoded_too(span: Duration, expected_ms: int) -> None:
    assert decode_duration(span) == expected_ms


def test_ids_and_terms() -> None:
    assert decode_task_id(encode_task_id(TaskId("flights", 3))) == TaskId("flights", 3)
    assert decode_term(encode_term(Term(7, 2**40))) == Term(7, 2**40)


@pytest.mark.parametrize("state", list(TargetState))
def test_enums(state: TargetState) -> None:
    assert ENUM.decode(ENUM.encode(state), "target_state") is state


@pytest.mark.parametrize("number", [0, 4, -1])
def test_an_enum_value_without_counterpart(number: int) -> None:
    assert ENUM.find(number) is None
    with pytest.raises(InvalidArgumentError) as caught:
        ENUM.decode(number, "target_state")
    assert caught.value.reason is Reason.INVALID_REQUEST
    (violation,) = caught.value.violations
    assert violation == Violation(
        "target_state",
        f"{number} is not one of TARGET_STATE_STARTED, TARGET_STATE_PAUSED, TARGET_STATE_STOPPED",
    )
