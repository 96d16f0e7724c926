"""The bounded history that watchers resume from."""

import pytest

from drover.errors import OutOfRangeError, Reason
from drover.runtime.change_buffer import ChangeBuffer
from drover.testing import raises_reason


def _filled(count: int, **limits: int) -> ChangeBuffer[str]:
    history = ChangeBuffer[str](**limits)
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
    history = ChangeBuffer[str]()
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


def test_forgets_what_is_much_older_than_the_last_change() -> None:
    history = ChangeBuffer[str](max_age_ms=100)
    for offset, timestamp_ms in enumerate((1_000, 1_050, 1_149, 1_151, 1_100)):
        history.record_seen(offset, [f"e{offset}"], 10, timestamp_ms)
        history.validate()
    assert history.read(2) == ["e2", "e3", "e4"]
    assert history.start_offset == 2


def test_a_watcher_that_has_all_goes_on_however_old_that_is() -> None:
    history = ChangeBuffer[str](max_age_ms=100)
    history.record_seen(0, ["e0"], 10, 1_000)
    history.record_seen(1, timestamp_ms=1_001)
    history.record_seen(2, ["e2"], 10, 9_000)
    assert history.read(2) == ["e2"]
    assert history.read(1) == ["e2"]


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


# other processes append to the log as well, so gaps between offsets are normal

HOUR_MS = 3_600_000


def shared_history(max_events: int = 100) -> ChangeBuffer[str]:
    return ChangeBuffer(max_events=max_events, max_age_ms=24 * HOUR_MS, complete_ms=12 * HOUR_MS)


def test_gaps_of_a_shared_log_are_no_holes() -> None:
    history = shared_history()
    history.loaded(0, 0)
    for offset in (0, 2, 5):
        history.record_seen(offset, (f"e{offset}",), 1, 1)
        history.validate()
    assert history.read(0) == ["e0", "e2", "e5"]
    assert history.read(1) == ["e2", "e5"]
    assert history.read(6) == []


def test_what_is_old_when_a_shared_log_is_loaded_is_not_known() -> None:
    history = shared_history()
    for offset, hours in ((0, 1), (3, 2), (6, 20), (8, 21)):
        history.record_seen(offset, (f"e{offset}",), 1, hours * HOUR_MS)
    history.loaded(9, 22 * HOUR_MS)
    history.validate()
    assert history.start_offset == 4
    assert history.read(4) == ["e6", "e8"]
    with raises_reason(Reason.REVISION_COMPACTED):
        history.read(3)


def test_what_came_before_the_first_known_change_of_a_shared_log_is_not_known() -> None:
    history = shared_history()
    history.record_seen(500, ("e",), 1, HOUR_MS)
    history.loaded(501, HOUR_MS)
    assert history.read(500) == ["e"]
    with raises_reason(Reason.REVISION_COMPACTED):
        history.read(499)


def test_a_shared_log_without_recent_changes_is_known_from_its_end() -> None:
    history = shared_history()
    history.record_seen(7, ("e",), 1, 0)
    history.record_seen(9, (), 0, 0)
    history.loaded(10, 24 * HOUR_MS)
    history.validate()
    assert history.read(8) == history.read(10) == []
    with raises_reason(Reason.REVISION_COMPACTED):
        history.read(7)


def test_a_shared_log_that_counts_anew_is_another_history() -> None:
    history = shared_history()
    history.record_seen(7, ("e",), 1, 0)
    history.record_seen(0, ("f",), 1, 0)
    history.validate()
    assert history.read(0) == ["f"]
