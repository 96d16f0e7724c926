"""Simulated tasks: each reads the committed positions, works, and commits under its claim.

A source publishes records, dead letters and positions in one transaction of ``data.db``. A sink
writes a batch while the one before is committed through the worker; it may keep a part of its
records in memory, commit less than it wrote, and ask for records again.
"""

from collections.abc import Sequence
from functools import partial

from drover.errors import DroverError
from drover.model.offsets import CommitOutcome, CommitResult, CommittedOffset, TaskOffsets
from drover_worker.core import events, instructions
from simulation.brokers import Batch
from simulation.data_store import committed_offset, position_of, positions_of, spans_of
from simulation.engine import Engine
from simulation.events import What, position
from simulation.network import Heard


class SimulatedTask:
    """One run of a task."""

    def __init__(self, engine: Engine, start: instructions.StartTask) -> None:
        self._engine = engine
        self.task = start.task
        self.run_id = start.run_id
        self.claim = start.claim
        self.config = start.task_config
        self.paused = start.paused
        self.ended = False
        #: The next record of each partition.
        self._positions = self._read(start.offsets)
        self._later()

    def end(self) -> None:
        """Stop the run; the result of its last commit is ignored."""
        self.ended = True

    def work(self) -> None:
        """One step."""
        if self.ended:
            return
        if self.paused or not self._positions:
            self._later()
        elif self._fails():
            self._fail()
        else:
            self._next_batch()

    def _next_batch(self) -> None:
        """Read and process a batch."""
        raise NotImplementedError

    def _poll(self) -> Batch:
        world = self._engine.world
        batch = {p: (n, n + world.between(1, 3)) for p, n in self._positions.items()}
        self._did(What.POLLED, batch)
        return batch

    def _did(self, what: What, batch: Batch) -> None:
        self._engine.rules.did(what, self.task, self.claim, spans_of(batch))

    def _commit_of(self, batch: Batch) -> TaskOffsets:
        offsets = [committed_offset(partition, end) for partition, (_, end) in batch.items()]
        return TaskOffsets(self.task, self.claim, offsets)

    def _acknowledged(self, commit: TaskOffsets) -> None:
        acknowledged = positions_of(commit.offsets)
        self._engine.rules.did(What.ACKNOWLEDGED, self.task, self.claim, acknowledged)

    def _fails(self) -> bool:
        return self._engine.world.chance(self._engine.network.mix.plugin_failure / 4)

    def _fail(self) -> None:
        engine = self._engine
        engine.world.tell((self.task, self.task.connector), "{} fails in its plugin", self.task)
        self.ended = True
        engine.report(events.TaskFailed(self.task, self.run_id, "the plugin failed"))

    def _is_fenced(self) -> None:
        self.ended = True
        self._engine.report(events.TaskFenced(self.task, self.run_id))

    def _later(self) -> None:
        world = self._engine.world
        work_ms = self._engine.network.mix.work_ms
        self._engine.after(world.between(work_ms // 2, work_ms * 3 // 2), self.work)

    def _read(self, offsets: Sequence[CommittedOffset]) -> dict[int, int]:
        committed = dict(map(position_of, offsets))
        mine = map(int, self.config["partitions"].split(","))
        return {partition: committed.get(partition, 0) for partition in mine}


class SourceTask(SimulatedTask):
    """A source of the embedded store."""

    def _next_batch(self) -> None:
        batch = self._poll()
        world, mix = self._engine.world, self._engine.network.mix
        letters = {
            partition: (start, start + 1)
            for partition, (start, _) in batch.items()
            if world.chance(mix.rejections)
        }
        records = {
            partition: (start + (partition in letters), end)
            for partition, (start, end) in batch.items()
        }
        self._did(What.STAGED, records)
        commit = self._commit_of(batch)
        self._publish(commit, records, letters, partial(self._published, commit))

    def _publish(self, commit: TaskOffsets, records: Batch, letters: Batch, heard: Heard) -> None:
        data = self._engine.data
        data.run(self._engine, lambda: data.publish(commit, records, letters), heard)

    def _published(self, commit: TaskOffsets, result: object) -> None:
        if self.ended:
            return
        if isinstance(result, DroverError):
            self._later()  # nothing was written: read again from the same positions
            return
        assert isinstance(result, CommitResult)
        if result.outcome is CommitOutcome.COMMITTED:
            self._acknowledged(commit)
            self._positions.update(map(position_of, commit.offsets))
            self._later()
        else:
            self._is_fenced()


class SinkTask(SimulatedTask):
    """A sink; it holds at most one batch that is written and waits for its commit."""

    def __init__(self, engine: Engine, start: instructions.StartTask) -> None:
        super().__init__(engine, start)
        self._committed = dict(self._positions)
        self._batch: Batch = {}
        self._waiting: TaskOffsets | None = None
        self._committing = False

    def _next_batch(self) -> None:
        world, mix = self._engine.world, self._engine.network.mix
        if self._waiting is not None:
            self._later()
        elif not self._committing and world.chance(mix.rewinds):
            self._rewind()
            self._later()
        else:
            batch = self._poll()
            self._engine.after(world.between(0, mix.work_ms // 4), partial(self._write, batch))

    def _write(self, batch: Batch) -> None:
        if self.ended:
            return
        self._did(What.DELIVERED, batch)
        self._batch = batch
        self._positions.update({partition: end for partition, (_, end) in batch.items()})
        self._waiting = self._commit_of(self._kept(batch))
        self._commit_next()
        self._later()

    def _kept(self, batch: Batch) -> Batch:
        """What is committed of a batch; the sink may keep its last records in memory."""
        world, mix = self._engine.world, self._engine.network.mix
        if not world.chance(mix.rewinds):
            return batch
        return {p: (start, world.between(start, end)) for p, (start, end) in batch.items()}

    def _rewind(self) -> None:
        """Ask for the records of a partition again that are not committed."""
        world = self._engine.world
        partition = world.random.choice(sorted(self._positions))
        at = world.between(self._committed[partition], self._positions[partition])
        self._positions[partition] = at
        rewound = [position(str(partition), at)]
        self._engine.rules.did(What.REWOUND, self.task, self.claim, rewound)

    def _commit_next(self) -> None:
        if self._waiting is None or self._committing:
            return
        commit, self._waiting = self._waiting, None
        self._send(commit)

    def _send(self, commit: TaskOffsets) -> None:
        self._committing = True
        self._engine.commit(commit, partial(self._answered, commit))

    def _answered(self, commit: TaskOffsets, result: object) -> None:
        if self.ended:
            return
        self._committing = False
        assert isinstance(result, CommitResult)
        if result.outcome is CommitOutcome.COMMITTED:
            self._acknowledged(commit)
            self._committed.update(map(position_of, commit.offsets))
            self._commit_next()
        else:
            self._is_fenced()
