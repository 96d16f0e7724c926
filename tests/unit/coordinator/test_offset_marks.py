"""Marks of sink offsets in the coordinator's log of claims."""

from drover.model.offsets import TopicPartition
from drover.model.sink_outputs import OutputMark, SinkOutput
from drover_coordinator.core.claims.task_claims import MarkRecord, TaskClaims

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
FIRST, SECOND = SinkOutput("a"), SinkOutput("b", "0a1b2c3d")


def record(partition: TopicPartition, mark: OutputMark | None, marked_ms: int = 0) -> MarkRecord:
    return MarkRecord("sink", "connect-sink", partition, mark, marked_ms)


def written(claims: TaskClaims, *records: MarkRecord, refreshes: bool = False) -> int:
    """Note offsets; returns how many records that takes."""
    draft = claims.draft()
    for each in records:
        draft.note_offset(each, refreshes=refreshes)
    for decided in draft.records:
        claims.replay(decided)
    claims.validate()
    return len(draft.records)


def test_only_the_first_offset_of_an_output_is_stored() -> None:
    claims = TaskClaims()
    assert written(claims, record(T0, OutputMark(FIRST, 0)), record(T0, OutputMark(FIRST, 5))) == 1
    assert written(claims, record(T0, OutputMark(FIRST, 9))) == 0
    assert claims.marks("sink", "connect-sink") == {T0: OutputMark(FIRST, 0)}
    assert written(claims, record(T0, OutputMark(SECOND, 1))) == 1
    assert written(claims, record(T1, OutputMark(FIRST, 2))) == 1
    assert claims.marks("sink", "connect-sink") == {
        T0: OutputMark(SECOND, 1),
        T1: OutputMark(FIRST, 2),
    }


def test_a_refresh_stores_every_offset() -> None:
    claims = TaskClaims()
    for offset in (0, 5):
        assert written(claims, record(T0, OutputMark(FIRST, offset)), refreshes=True) == 1
    assert claims.marks("sink", "connect-sink") == {T0: OutputMark(FIRST, 5)}


def test_the_first_offset_after_a_reset_is_stored() -> None:
    claims = TaskClaims()
    reset = OutputMark(SECOND, 7, is_reset=True)
    written(claims, record(T0, reset), refreshes=True)
    assert written(claims, record(T0, OutputMark(SECOND, 0))) == 1
    assert claims.marks("sink", "connect-sink") == {T0: OutputMark(SECOND, 0)}


def test_groups_and_connectors_have_their_own_marks() -> None:
    claims = TaskClaims()
    mark = OutputMark(FIRST, 1)
    written(claims, record(T0, mark), MarkRecord("sink", "other", T0, mark))
    written(claims, MarkRecord("sinks", "connect-sink", T0, mark))
    assert claims.marks("sink", "other") == {T0: mark}
    assert claims.marks("sinks", "connect-sink") == {T0: mark}
    assert claims.marks("sinks", "other") == {}


def test_marks_that_nothing_refreshes_are_forgotten() -> None:
    claims = TaskClaims()
    mark = OutputMark(FIRST, 1)
    written(claims, record(T0, mark, 10), record(T1, mark, 20))
    draft = claims.draft()
    draft.forget_marks(before_ms=20)
    (forgotten,) = draft.records
    claims.replay(forgotten)
    claims.replay(forgotten)
    claims.validate()
    assert claims.marks("sink", "connect-sink") == {T1: mark}
