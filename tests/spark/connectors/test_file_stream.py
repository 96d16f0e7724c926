"""Files through topics into files, byte for byte, on real Spark."""

import hashlib
import random
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from drover.connector import ArrowRows, TopicPartition
from drover.connectors.files.lines.file_stream_sink import FileStreamSink
from drover.connectors.files.lines.file_stream_source import FileStreamSource
from drover.errors import FailedPreconditionError, Reason
from drover.model.offsets import CommitOutcome
from tests.spark.pipeline import Pipeline, RunningSink, RunningSource

pytestmark = pytest.mark.spark


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def start_source(pipeline: Pipeline, file: Path, **config: str) -> RunningSource:
    return pipeline.start_source(
        FileStreamSource, {"name": "source", "file": str(file), "topic": "lines", **config}
    )


def start_sink(pipeline: Pipeline, file: Path, name: str = "sink", **engine: Any) -> RunningSink:
    raw = {"name": name, "file": str(file), "topics": "lines"}
    return pipeline.start_sink(FileStreamSink, raw, **engine)


def copy_through_topic(pipeline: Pipeline, source: Path, **config: str) -> Path:
    start_source(pipeline, source, **config).run_until_idle()
    target = pipeline.directory / "copy"
    start_sink(pipeline, target).run_until_idle()
    return target


@pytest.mark.parametrize(
    "content",
    [
        b"one\r\ntwo\r\n\r\nthree\n",
        b"\xff\xfe\x00 not utf-8 \xc3\x28\n\x80\n",
        b"\n\n\nx\n\n",
        b"\n",
        b"\x0b\x0c\x1c\x1d\x85\xe2\x80\xa8 line breaks of other kinds\n",
    ],
    ids=["crlf", "invalid utf-8", "empty lines", "one empty line", "other breaks"],
)
def test_bytes_of_lines_are_kept(pipeline: Pipeline, content: bytes) -> None:
    source = pipeline.directory / "in"
    source.write_bytes(content)
    assert copy_through_topic(pipeline, source).read_bytes() == content


def test_an_empty_file_becomes_an_empty_topic(pipeline: Pipeline) -> None:
    source = pipeline.directory / "in"
    source.touch()
    assert start_source(pipeline, source).run_until_idle() == 0
    pipeline.store.ensure_topic("lines", 1)
    target = pipeline.directory / "out"
    assert start_sink(pipeline, target).run_until_idle() == 0
    assert target.read_bytes() == b""


def test_a_line_of_20_megabytes(pipeline: Pipeline) -> None:
    source = pipeline.directory / "in"
    line = random.Random(7).randbytes(20_000_000).replace(b"\n", b"\r")
    source.write_bytes(b"before\n" + line + b"\nafter\n")
    target = copy_through_topic(pipeline, source, **{"batch.max.bytes": "1048576"})
    assert sha256(target) == sha256(source)


def test_a_million_lines_keep_their_order(pipeline: Pipeline) -> None:
    source = pipeline.directory / "in"
    with source.open("wb") as file:
        for first in range(0, 1_000_000, 10_000):
            file.writelines(b"%d,%x\n" % (n, n * n) for n in range(first, first + 10_000))
    target = copy_through_topic(pipeline, source)
    assert pipeline.store.end_offsets("lines") == {0: 1_000_000}
    assert sha256(target) == sha256(source)


def test_an_unterminated_line_waits_for_its_end(pipeline: Pipeline) -> None:
    source = pipeline.directory / "in"
    source.write_bytes(b"whole\nhal")
    running = start_source(pipeline, source)
    assert running.run_until_idle() == 1
    with source.open("ab") as file:
        file.write(b"f\nand")
    assert running.run_until_idle() == 1
    target = pipeline.directory / "out"
    start_sink(pipeline, target).run_until_idle()
    assert target.read_bytes() == b"whole\nhalf\n"


def test_a_restarted_source_goes_on_where_it_committed(pipeline: Pipeline) -> None:
    source = pipeline.directory / "in"
    source.write_bytes(b"a\nb\n")
    start_source(pipeline, source).run_until_idle()
    with source.open("ab") as file:
        file.write(b"c\n")
    assert start_source(pipeline, source).run_until_idle() == 1


def test_rotation_loses_and_repeats_nothing(pipeline: Pipeline) -> None:
    source = pipeline.directory / "app.log"
    source.write_bytes(b"1\n2\n")
    running = start_source(pipeline, source)
    running.run_until_idle()
    with source.open("ab") as file:
        file.write(b"3\n")
    source.rename(pipeline.directory / "app.log.1")
    source.write_bytes(b"4\n")
    moved = 0
    for _ in range(5):
        moved += running.run_until_idle()
    assert moved == 2
    target = pipeline.directory / "out"
    start_sink(pipeline, target).run_until_idle()
    assert target.read_bytes() == b"1\n2\n3\n4\n"


def test_a_truncated_file_is_read_from_its_start(pipeline: Pipeline) -> None:
    source = pipeline.directory / "app.log"
    source.write_bytes(b"first\nsecond\n")
    running = start_source(pipeline, source)
    running.run_until_idle()
    with source.open("r+b") as file:
        file.truncate(0)
        file.write(b"longer than what was there before\n")
    assert running.run_until_idle() == 1
    target = pipeline.directory / "out"
    start_sink(pipeline, target).run_until_idle()
    assert target.read_bytes() == b"first\nsecond\nlonger than what was there before\n"


def test_a_glob_is_split_across_tasks(pipeline: Pipeline) -> None:
    for name in "abc":
        (pipeline.directory / f"{name}.txt").write_text(f"{name}1\n{name}2\n")
    raw = {"name": "source", "file": str(pipeline.directory / "*.txt"), "topic": "lines"}
    moved = [
        pipeline.start_source(
            FileStreamSource, raw | {"tasks.max": "2"}, index=index, max_tasks=2
        ).run_until_idle()
        for index in range(2)
    ]
    assert moved == [4, 2]
    target = pipeline.directory / "out"
    start_sink(pipeline, target).run_until_idle()
    assert sorted(target.read_text().split()) == ["a1", "a2", "b1", "b2", "c1", "c2"]


def test_several_partitions_keep_the_order_within_each(pipeline: Pipeline) -> None:
    source = pipeline.directory / "in"
    source.write_text("".join(f"{n}\n" for n in range(5000)))
    running = start_source(pipeline, source, **{"batch.max.records": "500"})
    running.partition_count = 3
    running.spread_keyless = True
    running.run_until_idle()
    ends = pipeline.store.end_offsets("lines")
    assert len(ends) == 3
    assert sum(ends.values()) == 5000
    assert all(end > 0 for end in ends.values())
    target = pipeline.directory / "out"
    sink = start_sink(pipeline, target)
    sink.run_until_idle(max_records=700)
    written = [int(line) for line in target.read_text().split()]
    assert sorted(written) == list(range(5000))
    plan = pipeline.store.plan_read({("lines", n): 0 for n in range(3)}, max_records=10**6)
    place = {line: index for index, line in enumerate(written)}
    by_partition: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for row in pipeline.plane.rows(pipeline.spark, plan).frame().collect():
        by_partition[row["partition"]].append(place[int(row["value"])])
    for places in by_partition.values():
        assert places == sorted(places)


def test_a_file_that_vanishes_under_the_executors_is_named(pipeline: Pipeline) -> None:
    source = pipeline.directory / "in"
    source.write_bytes(b"a\n")
    running = start_source(pipeline, source)
    batch = running.source.poll()
    assert batch is not None
    assert isinstance(batch.frame, ArrowRows)
    source.unlink()
    source.write_bytes(b"another file of the same name\n")
    with pytest.raises(PySparkException, match=re.escape(f"{source} was removed or replaced")):
        batch.frame.frame().collect()


def test_an_uncommitted_write_is_undone_by_the_next_owner(pipeline: Pipeline) -> None:
    source = pipeline.directory / "in"
    source.write_text("".join(f"{n}\n" for n in range(1000)))
    start_source(pipeline, source).run_until_idle()
    target = pipeline.directory / "out"
    killed = start_sink(pipeline, target)
    plan = killed.plan(max_records=400)
    assert killed.commit(plan, killed.write(plan)) is CommitOutcome.COMMITTED
    killed.write(killed.plan(max_records=300))  # and killed before the commit
    assert start_sink(pipeline, target).run_until_idle() == 600
    assert sha256(target) == sha256(source)


T0, U0 = TopicPartition("lines", 0), TopicPartition("others", 0)


def test_a_kill_in_the_first_batch_repeats_nothing(pipeline: Pipeline) -> None:
    source = pipeline.directory / "in"
    source.write_bytes(b"a\nb\nc\n")
    start_source(pipeline, source).run_until_idle()
    target = pipeline.directory / "out"
    killed = start_sink(pipeline, target)
    killed.write(killed.plan(max_records=2))
    assert start_sink(pipeline, target).run_until_idle() == 3
    assert target.read_bytes() == b"a\nb\nc\n"


def test_lines_of_a_deleted_topic_stay_when_its_name_is_used_again(pipeline: Pipeline) -> None:
    source = pipeline.directory / "in"
    source.write_bytes(b"a\nb\nc\n")
    start_source(pipeline, source).run_until_idle()
    target = pipeline.directory / "out"
    start_sink(pipeline, target).run_until_idle()
    again = start_sink(pipeline, target, lost=[T0], output_ids={T0: "0a1b2c3d"})
    again.write(again.plan(max_records=2))  # and killed before the commit
    again = start_sink(pipeline, target, output_ids={T0: "0a1b2c3d"})
    assert again.run_until_idle() == 3
    assert target.read_bytes() == b"a\nb\nc\na\nb\nc\n"
    assert traced(target) == {}
    assert traced(target, "0a1b2c3d") == {T0: 3}


@pytest.mark.parametrize("lost", [T0, U0])
def test_one_of_two_topics_is_deleted_and_made_again(
    pipeline: Pipeline, lost: TopicPartition
) -> None:
    for name in ("lines", "others"):
        source = pipeline.directory / name
        source.write_text(f"{name}1\n{name}2\n{name}3\n")
        raw = {"name": name, "file": str(source), "topic": name}
        pipeline.start_source(FileStreamSource, raw).run_until_idle()
    target = pipeline.directory / "out"
    raw = {"name": "sink", "file": str(target), "topics": "lines,others"}
    first = pipeline.start_sink(FileStreamSink, raw)
    first.run_until_idle(max_records=2)  # the last batches have one topic each
    before = target.read_text()
    assert before.count("\n") == 6
    ids = {lost: "0a1b2c3d"}
    for _ in range(2):  # killed before its first commit
        again = pipeline.start_sink(FileStreamSink, raw, lost=[lost], output_ids=ids)
        assert target.read_text() == before
    plan = again.plan(max_records=2)
    again.write(plan)
    after = pipeline.start_sink(FileStreamSink, raw, output_ids=ids)
    after.write(after.plan(max_records=1))  # killed again: the file is truncated as usual now
    after = pipeline.start_sink(FileStreamSink, raw, output_ids=ids)
    after.run_until_idle()
    assert target.read_text() == before + "".join(f"{lost.topic}{n}\n" for n in (1, 2, 3))


def test_a_lost_offset_is_shown_after_other_offsets_were_committed(pipeline: Pipeline) -> None:
    for name in ("lines", "others"):
        (pipeline.directory / name).write_text(f"{name}1\n{name}2\n")
        raw = {"name": name, "file": str(pipeline.directory / name), "topic": name}
        pipeline.start_source(FileStreamSource, raw).run_until_idle()
    target = pipeline.directory / "out"
    raw = {"name": "sink", "file": str(target), "topics": "lines,others"}
    pipeline.start_sink(FileStreamSink, raw).run_until_idle()
    for line in ("others3", "others4"):
        with (pipeline.directory / "others").open("a") as file:
            file.write(f"{line}\n")
        source = {"name": "others", "file": str(pipeline.directory / "others"), "topic": "others"}
        pipeline.start_source(FileStreamSource, source).run_until_idle()
        lost = pipeline.start_sink(FileStreamSink, raw, lost=[T0])
        lost.write(lost.plan_of("others"))  # killed before the commit
        lost = pipeline.start_sink(FileStreamSink, raw, lost=[T0])
        plan = lost.plan_of("others")
        lost.commit(plan, lost.write(plan))
    assert traced(target) == {T0: 2, U0: 4}
    assert sorted(target.read_text().split()) == [
        *("lines1", "lines2"),
        *(f"others{n}" for n in (1, 2, 3, 4)),
    ]


def test_a_sink_whose_offsets_are_lost_shows_how_far_it_has_written(pipeline: Pipeline) -> None:
    source = pipeline.directory / "in"
    source.write_bytes(b"a\nb\nc\n")
    start_source(pipeline, source).run_until_idle()
    target = pipeline.directory / "out"
    assert traced(target) == {}
    start_sink(pipeline, target).run_until_idle()
    assert traced(target) == {T0: 3}
    assert traced(target, name="other") == {}
    start_sink(pipeline, target, lost=[T0])
    assert target.read_bytes() == b"a\nb\nc\n"
    target.unlink()
    assert traced(target) == {}


def traced(target: Path, output_id: str = "", name: str = "sink") -> object:
    config = {"file": str(target)}
    return FileStreamSink.traced_offsets(name, config, {T0: output_id, U0: output_id})


def test_a_zombie_sink_changes_nothing(pipeline: Pipeline) -> None:
    source = pipeline.directory / "in"
    source.write_text("".join(f"{n}\n" for n in range(1000)))
    start_source(pipeline, source).run_until_idle()
    target = pipeline.directory / "out"
    zombie = start_sink(pipeline, target)
    plan = zombie.plan(max_records=400)
    metadata = zombie.write(plan)
    owner = start_sink(pipeline, target)
    assert zombie.commit(plan, metadata) is CommitOutcome.STALE_CLAIM
    with pytest.raises(FailedPreconditionError) as caught:
        zombie.write(zombie.plan(max_records=700))
    assert caught.value.reason is Reason.STALE_CLAIM
    assert owner.run_until_idle() == 1000
    assert sha256(target) == sha256(source)


def test_parts_do_not_stay(pipeline: Pipeline) -> None:
    source = pipeline.directory / "in"
    source.write_bytes(b"a\n")
    target = copy_through_topic(pipeline, source)
    parts = list((target.parent / f".{target.name}.drover").glob("parts-*/*"))
    assert parts == []
