"""Compaction against a model that keeps every record: after any sequence of writes, passes, passes
that end early and time, the latest record of each key is there, in order, at its offset.
"""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from drover.dataplane import compaction, compaction_state
from drover.dataplane.compaction import Compactor
from drover.dataplane.reading import read_range
from drover.dataplane.staging import Stager, staged_blobs
from drover.dataplane.store import EmbeddedStore
from drover.dataplane.values import ReadRange
from drover.model.ids import TaskId, Term
from tests.unit.dataplane.writer import Clock

TASK = TaskId("source", 0)
DELETE_RETENTION_MS = 100
KEYS = [b"a", b"b", b"c", b""]

Rows = list[tuple[bytes, bytes | None]]
written = st.lists(
    st.tuples(st.sampled_from(KEYS), st.none() | st.binary(max_size=3)), min_size=1, max_size=6
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), written),
        st.tuples(st.just("compact"), st.none()),
        st.tuples(st.just("stop after"), st.integers(1, 3)),
        st.tuples(st.just("wait"), st.integers(1, 150)),
        st.tuples(st.just("read across"), st.none()),
    ),
    max_size=25,
)


class World:
    """A store with a compacted topic, and every record that was written."""

    def __init__(self, directory: Path, lag_ms: int) -> None:
        self.clock = Clock()
        self.store = EmbeddedStore(directory / "data.db", clock=self.clock)
        self.claim: Term = self.store.claim_task(TASK, generation=1, owner="t", request_id="")
        topic_settings = {
            "cleanup.policy": "compact",
            "delete.retention.ms": str(DELETE_RETENTION_MS),
            "min.compaction.lag.ms": str(lag_ms),
        }
        self.store.ensure_topic("t", settings=topic_settings)
        #: (offset, key, value, written at)
        self.model: list[tuple[int, bytes, bytes | None, int]] = []

    def write(self, rows: Rows) -> None:
        keys, values = zip(*rows, strict=True)
        columns = {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
        stager = Stager(self.store.path, TASK, self.claim, topic="t")
        blobs = [
            row
            for each in stager([pa.RecordBatch.from_pydict(columns)])
            for row in each.to_pylist()
        ]
        self.store.publish(TASK, self.claim, staged_blobs(blobs))
        self.model += [
            (len(self.model) + number, key, value, self.clock.now_ms())
            for number, (key, value) in enumerate(rows)
        ]

    def compact(self, wait: Callable[[float], bool] = lambda _: False) -> None:
        Compactor(self.store, "t", wait).run()

    def batches(self) -> Iterator[Any]:
        if self.model:
            yield from read_range(self.store, ReadRange("t", 0, 0, len(self.model)))

    def read_across_a_pass(self) -> list[tuple[int, bytes, bytes | None]]:
        batches = self.batches()
        first = next(batches, None)
        self.compact()
        read = [] if first is None else rows_of(first)
        return [*read, *(row for batch in batches for row in rows_of(batch))]

    def check(self, read: list[tuple[int, bytes, bytes | None]]) -> None:
        offsets = [offset for offset, _, _ in read]
        assert offsets == sorted(set(offsets))
        known = {(offset, key, value) for offset, key, value, _ in self.model}
        assert {*read} <= known, "no record is changed or moved"
        latest = {key: (offset, value, at) for offset, key, value, at in self.model}
        found = {key: (offset, value) for offset, key, value in read}
        for key, (offset, value, at_ms) in latest.items():
            if key in found:
                assert found[key] == (offset, value)
            else:
                assert value is None, "only a tombstone may go"
                assert self.clock.now_ms() - at_ms >= DELETE_RETENTION_MS


def rows_of(batch: Any) -> list[tuple[int, bytes, bytes | None]]:
    return [*zip(*(batch.column(n).to_pylist() for n in ("offset", "key", "value")), strict=True)]


@given(steps=steps, lag_ms=st.sampled_from([0, 0, 50]), small=st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_latest_record_of_each_key_is_always_there(
    steps: list[tuple[str, Any]], lag_ms: int, small: bool
) -> None:
    saved = compaction.BATCHES_AT_ONCE, compaction.KEYS_MAX, compaction_state.SMALL_BYTES
    with TemporaryDirectory() as directory:
        world = World(Path(directory), lag_ms)
        try:
            if small:
                compaction.BATCHES_AT_ONCE, compaction.KEYS_MAX = 2, 2
                compaction_state.SMALL_BYTES = 0
            for step, argument in steps:
                match step:
                    case "write":
                        world.write(argument)
                    case "compact":
                        world.compact()
                    case "stop after":
                        waits = itertools.chain([False] * argument, itertools.repeat(True))
                        world.compact(lambda _, waits=waits: next(waits))  # type: ignore[misc]
                    case "wait":
                        world.clock.time_ms += argument
                    case "read across":
                        world.check(world.read_across_a_pass())
                world.check([row for each in world.batches() for row in rows_of(each)])
        finally:
            world.store.close()
            compaction.BATCHES_AT_ONCE, compaction.KEYS_MAX, compaction_state.SMALL_BYTES = saved
