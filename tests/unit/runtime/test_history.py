"""The bounded history that watchers resume from."""

import pytest

from drover.errors import OutOfRangeError, Reason
from drover.runtime.history import EventHistory


def _filled(count: int, **limits: int) -> EventHistory[str]:
    history = EventHistory[str](**limits)
    for offset in range(count):
        history.record_seen(offset, [f"e{offset}"], size_bytes=10)
    history.validate()
    return history


def test_reads_from_any_offset_on() -> None:
    history = _filled(5)
    assert history.read(0) == ["e0", "e1", "e2", "e3", "e4"]
    assert history.read(3) == ["e3", "e4"]
    assert history.read(5) == []


def test_records_without_changes_move_the_end() -> None:
    history = _filled(1)
    history.record_seen(1)
    history.record_seen(2, ["e2"])
    assert history.end_offset == 3
    assert history.read(1) == ["e2"]


def test_a_record_may_cause_several_changes() -> None:
    history = EventHistory[str]()
    history.record_seen(0, ["a", "b"])
    history.record_seen(1, ["c"])
    assert history.read(0) == ["a", "b", "c"]


def test_forgets_the_oldest_by_count() -> None:
    history = _filled(10, max_events=3)
    assert (history.start_offset, history.end_offset) == (7, 10)
    assert history.read(7) == ["e7", "e8", "e9"]
    with pytest.raises(OutOfRangeError) as error:
        history.read(6)
    assert error.value.reason is Reason.REVISION_COMPACTED
    assert error.value.metadata == {"startOffset": "7", "endOffset": "10"}


def test_forgets_the_oldest_by_size() -> None:
    history = _filled(10, max_bytes=25)
    assert history.start_offset == 8


def test_one_change_larger_than_the_bound_is_forgotten_too() -> None:
    history = _filled(2, max_bytes=25)
    history.record_seen(2, ["large"], size_bytes=100)
    history.validate()
    assert history.start_offset == history.end_offset == 3
    assert history.read(3) == []


def test_a_gap_forgets_what_came_before() -> None:
    history = _filled(3)
    history.record_seen(7, ["e7"])
    history.validate()
    assert history.read(7) == ["e7"]
    with pytest.raises(OutOfRangeError):
        history.read(2)


def test_a_known_end_is_no_gap() -> None:
    history = _filled(3)
    history.skip_to(3)
    assert history.read(0) == ["e0", "e1", "e2"]
    history.skip_to(4)
    with pytest.raises(OutOfRangeError):
        history.read(3)


def test_a_reader_ahead_of_the_log_reads_another_log() -> None:
    with pytest.raises(OutOfRangeError) as error:
        _filled(3).read(4)
    assert error.value.reason is Reason.REVISION_COMPACTED
