"""A simulated source task on Kafka: the real protocol over its own transactional producer."""

from collections.abc import Callable, Mapping
from functools import partial

from drover.errors import DroverError
from drover.model.offsets import CommitOutcome, CommitResult, TaskOffsets
from drover_worker.core import instructions
from drover_worker.engine.core.publishing import Ended, Publishing, PublishingStep
from simulation.brokers import Batch, Brokers, FencedError
from simulation.engine import Engine
from simulation.network import Heard
from simulation.tasks import SimulatedTask

_PAUSE_MS = 100


class PublishingTask(SimulatedTask):
    """One run of a task; each step sends a request, and its response leads to the next step."""

    def __init__(self, engine: Engine, start: instructions.StartTask, brokers: Brokers) -> None:
        self._brokers = brokers
        self._protocol = Publishing()
        self._epoch = -1
        self._batch: Batch = {}
        super().__init__(engine, start)

    def work(self) -> None:
        """Take the next step of the protocol."""
        steps: Mapping[PublishingStep, Callable[[Heard], None]] = {
            PublishingStep.INIT: self._init,
            PublishingStep.CHECK_CLAIM: self._check_claim,
            PublishingStep.FETCH: self._fetch,
            PublishingStep.PRODUCE: self._produce,
            PublishingStep.ADD_OFFSETS: self._add_offsets,
            PublishingStep.COMMIT: self._commit,
        }
        step = self._protocol.step
        if self.ended:
            return
        if step is PublishingStep.READY:
            self._begin_batch()
        else:
            steps[step](partial(self._done, step))

    def _begin_batch(self) -> None:
        if self.paused or not self._positions:
            self._later()
        elif self._fails():
            self._fail()
        else:
            self._batch = self._poll()
            self._protocol.begin_batch()
            self.work()

    def _init(self, heard: Heard) -> None:
        self._ask(partial(self._brokers.init, self.task, self.claim), heard)

    def _check_claim(self, heard: Heard) -> None:
        self._engine.commit(TaskOffsets(self.task, self.claim, (), own_producer=True), heard)

    def _fetch(self, heard: Heard) -> None:
        self._engine.fetch(self.task.connector, heard)

    def _produce(self, heard: Heard) -> None:
        self._ask(partial(self._brokers.produce, self.task, self._epoch, self._batch), heard)

    def _add_offsets(self, heard: Heard) -> None:
        offsets = self._commit_of(self._batch).offsets
        self._ask(partial(self._brokers.add_offsets, self.task, self._epoch, offsets), heard)

    def _commit(self, heard: Heard) -> None:
        self._ask(partial(self._brokers.commit, self.task, self._epoch), heard)

    def _ask(self, work: Callable[[], object], heard: Heard) -> None:
        self._brokers.request(self._engine, work, heard)

    def _done(self, step: PublishingStep, result: object) -> None:
        protocol, engine = self._protocol, self._engine
        if self.ended:
            return
        if isinstance(result, CommitResult) and result.outcome is not CommitOutcome.COMMITTED:
            self._is_fenced()
        elif isinstance(result, FencedError):
            protocol.ended(Ended.FENCED)
            if protocol.step is PublishingStep.GIVE_UP:
                engine.rules.gave_up(self.task, self.claim, engine.data.current(self.task))
                self._is_fenced()
            else:
                self.work()
        elif isinstance(result, DroverError):
            protocol.ended(Ended.FAILED)
            engine.after(_PAUSE_MS, self.work)
        else:
            self._succeeded(step, result)
            protocol.ended(Ended.DONE)
            if step is PublishingStep.COMMIT:
                self._later()
            else:
                self.work()

    def _succeeded(self, step: PublishingStep, result: object) -> None:
        if step is PublishingStep.INIT:
            assert isinstance(result, int)
            self._epoch = result
        elif step is PublishingStep.FETCH:
            assert isinstance(result, list)
            self._positions = self._read(result)
        elif step is PublishingStep.COMMIT:
            self._acknowledged(self._commit_of(self._batch))
            self._positions.update({p: end for p, (_, end) in self._batch.items()})
