"""Task config sets that arrive in parts: complete or not at all, and bounded while they wait."""

import pytest

from drover.api.common.v1.ids_pb2 import TaskId
from drover.api.config_store.v1 import config_store_service_pb2 as pb
from drover.errors import AbortedError, InvalidArgumentError, Reason
from drover.rpc import multipart as module
from drover.rpc.multipart import SETS_MAX, SILENCE_MAX_MS, PartsInProgress
from drover.testing import ManualClock

Parts = PartsInProgress[pb.TaskConfigEntry]


def part(
    index: int, *tasks: int, more: bool = True, request_id: str = "r", connector: str = "c"
) -> pb.PutTaskConfigsRequest:
    return pb.PutTaskConfigsRequest(
        connector=connector,
        request_id=request_id,
        part=index,
        more=more,
        task_configs=[
            pb.TaskConfigEntry(task=TaskId(connector=connector, task=task)) for task in tasks
        ],
    )


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def parts(clock: ManualClock) -> Parts:
    return PartsInProgress(clock)


def added(parts: Parts, request: pb.PutTaskConfigsRequest) -> list[int] | None:
    entries = parts.add(request)
    return None if entries is None else [entry.task.task for entry in entries]


def missing(parts: Parts, request: pb.PutTaskConfigsRequest) -> None:
    with pytest.raises(AbortedError) as error:
        parts.add(request)
    assert error.value.reason is Reason.PART_MISSING


def test_a_small_set_is_whole_at_once(parts: Parts) -> None:
    assert added(parts, part(0, 0, 1, more=False)) == [0, 1]
    assert added(parts, part(0, more=False)) == []


def test_the_last_part_brings_the_whole_set(parts: Parts) -> None:
    assert added(parts, part(0, 0, 1)) is None
    assert added(parts, part(1, 2)) is None
    assert added(parts, part(2, 3, more=False)) == [0, 1, 2, 3]
    missing(parts, part(2, 3, more=False))


def test_a_repeated_part_counts_once(parts: Parts) -> None:
    for request in (part(0, 0), part(0, 0), part(1, 1), part(1, 1)):
        assert added(parts, request) is None
    assert added(parts, part(2, 2, more=False)) == [0, 1, 2]


def test_a_set_that_begins_again_forgets_what_came(parts: Parts) -> None:
    added(parts, part(0, 0))
    added(parts, part(1, 1))
    added(parts, part(0, 7))
    missing(parts, part(2, 2, more=False))


def test_sets_of_two_requests_are_apart(parts: Parts) -> None:
    added(parts, part(0, 0))
    added(parts, part(0, 7, request_id="other"))
    added(parts, part(0, 8, connector="d"))
    assert added(parts, part(1, 1, more=False)) == [0, 1]
    assert added(parts, part(1, 9, more=False, connector="d")) == [8, 9]


def test_a_part_without_those_before_it_is_refused(parts: Parts) -> None:
    missing(parts, part(1, 1))
    added(parts, part(0, 0))
    missing(parts, part(2, 2))
    with pytest.raises(InvalidArgumentError) as error:
        parts.add(part(-1, 0))
    assert error.value.violations[0].field == "part"


def test_whoever_is_silent_for_long_begins_again(parts: Parts, clock: ManualClock) -> None:
    added(parts, part(0, 0))
    clock.advance(SILENCE_MAX_MS)
    assert added(parts, part(1, 1)) is None
    clock.advance(SILENCE_MAX_MS + 1)
    missing(parts, part(2, 2, more=False))


def test_too_many_sets_push_the_oldest_out(parts: Parts) -> None:
    for number in range(SETS_MAX + 1):
        added(parts, part(0, 0, request_id=str(number)))
    missing(parts, part(1, 1, more=False, request_id="0"))
    assert added(parts, part(1, 1, more=False, request_id="1")) == [0, 1]


def test_all_sets_together_are_bounded_in_bytes(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = part(0, *range(100), request_id="0").ByteSize()
    monkeypatch.setattr(module, "SETS_MAX_BYTES", 3 * size)
    for number in range(4):
        assert added(parts, part(0, *range(100), request_id=str(number))) is None
    missing(parts, part(1, 1, more=False, request_id="0"))
    assert added(parts, part(1, *range(100), request_id="3")) is None
    missing(parts, part(1, 1, more=False, request_id="1"))
    with pytest.raises(InvalidArgumentError) as error:
        parts.add(part(2, *range(200), more=False, request_id="3"))
    assert error.value.reason is Reason.TOO_LARGE
