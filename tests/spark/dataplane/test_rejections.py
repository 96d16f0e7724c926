"""Records that a sink's own code rejects."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pytest

from drover.connector import ConfigDef, SinkBatch, SinkConnector, SinkTask
from drover.pipeline import RecordFailedError
from drover_worker.engine.tasks.faults import failed_record
from tests.spark.dataplane.test_records import put, topic_values
from tests.spark.pipeline import Pipeline, RunningSink

pytestmark = pytest.mark.spark

VALUES = [b'{"n": 0}', b'{"n": 1}', b"{broken", b'{"n": 3}', None, b'{"n": 5}']
CONTEXT = "__connect.errors."


class PickyTask(SinkTask):
    """Rejects records by their offsets."""

    rejected: ClassVar[Mapping[int, str | Exception]] = {}
    swallows = False

    def write(self, batch: SinkBatch) -> str:
        for part in batch.parts(by="partition"):
            offsets = {row["offset"] for row in part.frame.select("offset").collect()}
            for offset, reason in self.rejected.items():
                if offset in offsets or offset > 5:
                    self._reject(part, offset, reason)
        return ""

    def _reject(self, batch: SinkBatch, offset: int, reason: str | Exception) -> None:
        try:
            batch.reject("rows", 0, offset, reason)
        except RecordFailedError:
            if not self.swallows:
                raise


class PickySink(SinkConnector):
    task_class = PickyTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef()

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [{}]


class StructuredPickySink(PickySink):
    structured = True


TOLERANT = {"errors.tolerance": "all"}
BURYING = TOLERANT | {
    "errors.deadletterqueue.topic.name": "dead",
    "errors.deadletterqueue.context.headers.enable": "true",
}
AS_JSON = {"value.converter": "JsonConverter", "value.converter.schemas.enable": "false"}


def start(pipeline: Pipeline, kind: type[SinkConnector], config: Mapping[str, str]) -> RunningSink:
    put(pipeline, VALUES)
    return pipeline.start_sink(kind, {"name": "k", "topics": "rows", **config})


@pytest.fixture(autouse=True)
def _anew(monkeypatch: pytest.MonkeyPatch) -> None:
    reasons = {1: ValueError("there is a 1 already"), 3: "too odd"}
    monkeypatch.setattr(PickyTask, "rejected", reasons)


def headers_of(letter: Mapping[str, Any]) -> dict[str, bytes]:
    return {each["key"].removeprefix(CONTEXT): each["value"] for each in letter["headers"]}


def test_rejected_records_become_dead_letters_as_they_came(pipeline: Pipeline) -> None:
    sink = start(pipeline, PickySink, BURYING)
    sink.run_until_idle()
    letters = topic_values(pipeline, "dead")
    assert [each["value"] for each in letters] == [VALUES[1], VALUES[3]]
    first, second = map(headers_of, letters)
    assert (first["topic"], first["partition"], first["offset"]) == (b"rows", b"0", b"1")
    assert (first["stage"], first["class.name"]) == (b"TASK_PUT", b"PickySink")
    assert first["exception.class.name"] == b"ValueError"
    assert first["exception.message"] == b"there is a 1 already"
    assert b"ValueError: there is a 1 already" in first["exception.stacktrace"]
    assert second["exception.message"] == b"too odd"
    report = sink.report
    assert (report.read_count, report.written_count, report.dead_lettered_count) == (6, 4, 2)
    assert [each.place for each in report.failures] == ["rows-0@1", "rows-0@3"]


def test_they_are_counted_beside_those_that_no_converter_could_read(pipeline: Pipeline) -> None:
    sink = start(pipeline, StructuredPickySink, BURYING | AS_JSON)
    sink.run_until_idle()
    values = [each["value"] for each in topic_values(pipeline, "dead")]
    assert values == [VALUES[1], VALUES[2], VALUES[3]]
    report = sink.report
    assert (report.read_count, report.written_count, report.dead_lettered_count) == (6, 3, 3)


def test_dead_letters_keep_the_order_of_their_records(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [b'{"n":"bad0"}', b"not json 1", b'{"n":"2"}', b'{"n":"bad3"}', b"not json 4"]
    values += [b'"scalar5"', b'{"n":6}', b'{"n":"bad7"}', b"not json 8"]
    put(pipeline, values)
    monkeypatch.setattr(PickyTask, "rejected", {2: "too even"})
    cast = {
        "transforms": "cast",
        "transforms.cast.type": "Cast$Value",
        "transforms.cast.spec": "n:int32",
    }
    config = {"name": "k", "topics": "rows", **BURYING, **AS_JSON, **cast}
    sink = pipeline.start_sink(StructuredPickySink, config)
    sink.run_until_idle()
    letters = topic_values(pipeline, "dead")
    assert [each["value"] for each in letters] == [each for each in values if each != b'{"n":6}']
    assert [each.place for each in sink.report.failures][-1:] == ["rows-0@2"]


def test_without_a_dead_letter_queue_they_are_skipped(pipeline: Pipeline) -> None:
    sink = start(pipeline, PickySink, TOLERANT)
    sink.run_until_idle()
    assert (sink.report.written_count, sink.report.skipped_count) == (4, 2)


@pytest.mark.parametrize("swallows", [False, True])
def test_without_tolerance_the_task_fails_even_if_it_goes_on(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, swallows: bool
) -> None:
    monkeypatch.setattr(PickyTask, "swallows", swallows)
    sink = start(pipeline, PickySink, {})
    with pytest.raises(RecordFailedError) as caught:
        sink.run_until_idle()
    told = failed_record(caught.value)
    assert told is not None
    assert told.startswith("record rows-0@1 failed in PickySink: ValueError: there is a 1 already")
    assert "errors.tolerance=all" in told


def test_a_record_of_another_batch_cannot_be_rejected(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PickyTask, "rejected", {77: "not here"})
    sink = start(pipeline, PickySink, BURYING)
    with pytest.raises(ValueError, match="record rows-0@77 is not in this batch"):
        sink.run_until_idle()


class TwiceTask(PickyTask):
    def _reject(self, batch: SinkBatch, offset: int, reason: str | Exception) -> None:
        for _ in range(2):
            batch.reject("rows", 0, offset, reason)


class TwiceSink(PickySink):
    task_class = TwiceTask


def test_a_record_that_is_rejected_twice_counts_once(pipeline: Pipeline) -> None:
    sink = start(pipeline, TwiceSink, BURYING)
    sink.run_until_idle()
    assert (sink.report.written_count, sink.report.dead_lettered_count) == (4, 2)
