"""Several processes on one data.db, and one that is killed while it publishes."""

import multiprocessing
import os
import signal
import sqlite3
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from drover.dataplane.store import EmbeddedStore
from drover.model.ids import TaskId
from drover.model.offsets import CommittedOffset
from tests.support.waiting import wait_until
from tests.unit.dataplane.writer import Writer, values

pytestmark = pytest.mark.e2e

# a child must not inherit open SQLite connections
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.unit.dataplane.writer"])
_WRITERS = 4
_BATCHES = 25


def _publish_batches(path: Path, number: int, go: Event) -> None:
    store = EmbeddedStore(path)  # all of them create the file at once
    writer = Writer(store, TaskId(f"source-{number}", 0))
    go.wait()
    for batch in range(_BATCHES):
        offset = CommittedOffset('{"of":"batch"}', f'{{"batch":{batch}}}')
        writer.publish([b"%d:%d:%d" % (number, batch, row) for row in range(20)], offsets=[offset])
    store.close()


def test_concurrent_publishers_lose_and_mix_nothing(tmp_path: Path) -> None:
    path = tmp_path / "data.db"
    go = _processes.Event()
    processes = [
        _processes.Process(target=_publish_batches, args=(path, number, go))
        for number in range(_WRITERS)
    ]
    for process in processes:
        process.start()
    go.set()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * _WRITERS
    store = EmbeddedStore(path)
    found = values(store)
    assert len(found) == _WRITERS * _BATCHES * 20
    for number in range(_WRITERS):
        own = [value for value in found if value.startswith(b"%d:" % number)]
        expected = [b"%d:%d:%d" % (number, b, r) for b in range(_BATCHES) for r in range(20)]
        assert own == expected
    for start in range(0, len(found), 20):  # batches are not interleaved
        assert len({value.rsplit(b":", 1)[0] for value in found[start : start + 20]}) == 1
    store.close()


def _publish_for_ever(path: Path) -> None:
    store = EmbeddedStore(path)
    writer = Writer(store, TaskId("source", 0))
    number = 0
    while True:
        number += 1
        offset = CommittedOffset('{"of":"batch"}', f'{{"batch":{number}}}')
        writer.publish([b"%d" % number] * 10, offsets=[offset])


@pytest.mark.parametrize("after", [1, 7, 20])
def test_a_killed_publisher_leaves_whole_batches_and_their_offsets(
    tmp_path: Path, after: int
) -> None:
    path = tmp_path / "data.db"
    store = EmbeddedStore(path)
    process = _processes.Process(target=_publish_for_ever, args=(path,))
    process.start()
    assert process.pid is not None
    wait_until(lambda: store.end_offsets("topic").get(0, 0) >= after * 10, timeout_s=60)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    (offset,) = store.fetch_offsets("source")
    last = int(offset.offset_json.split(":")[1].rstrip("}")) if offset.offset_json else 0
    assert last >= after
    assert values(store) == [b"%d" % n for n in range(1, last + 1) for _ in range(10)]
    # the next owner publishes, and no staged blob is left over
    Writer(store, TaskId("source", 0)).publish([b"next"])
    assert values(store)[-1] == b"next"
    with store._database.read() as connection:
        blobs = connection.execute("SELECT count(*) FROM blobs").fetchone()[0]
        batches = connection.execute("SELECT count(*) FROM batches").fetchone()[0]
        staged = connection.execute("SELECT count(*) FROM staging").fetchone()[0]
    assert (blobs, staged) == (batches, 0)
    store.close()


def _die_inside_the_transaction(path: Path) -> None:
    store = EmbeddedStore(path)
    writer = Writer(store, TaskId("source", 0))
    blobs = writer.stage([b"a", b"b"])

    def kill(statement: str) -> None:
        if statement.startswith("COMMIT"):
            os.kill(os.getpid(), signal.SIGKILL)

    store._database._writer.set_trace_callback(kill)
    store.publish(writer.task, writer.claim, blobs, [CommittedOffset("{}", "{}")])


def test_a_kill_right_before_the_commit_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "data.db"
    process = _processes.Process(target=_die_inside_the_transaction, args=(path,))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    store = EmbeddedStore(path)
    assert store.end_offsets("topic") == {0: 0}
    assert store.fetch_offsets("source") == []
    assert Writer(store, TaskId("source", 0)).publish([b"c"]).record_count == 1
    assert values(store) == [b"c"]
    store.close()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    connection.close()
