"""A simulated source of partitions that always have more records."""

import asyncio
from collections.abc import Mapping
from typing import Any

from drover.connector.source import SourceBatch
from drover.pipeline import PassReport
from drover_worker.core.instructions import StartTask
from drover_worker.engine.core import events, instructions
from drover_worker.engine.core.events import TaskEvent
from drover_worker.engine.core.instructions import TaskInstruction
from drover_worker.engine.core.publishing import PublishingStep
from drover_worker.engine.core.source import SourceCore, SourceSettings
from drover_worker.engine.core.task import TaskLimits
from simulation.brokers import Batch, Staged
from simulation.data_store import position_of
from simulation.events import What
from simulation.tasks import SimulatedTask
from simulation.world import BrokenRuleError
from simulation.writers import Batches, Offsets, ProducerWriter, new_writer, receipt_of
from tests.support.task_driver import errors


class SourceTask(SimulatedTask):
    """See SimulatedTask."""

    core: SourceCore[Staged]

    def _make_core(self, start: StartTask) -> SourceCore[Staged]:
        world = self.engine.world
        self._writer = new_writer(self, start.connector_config)
        #: The next record of each partition, and the last polled batch.
        self._positions: dict[int, int] = {}
        self._batch: Batch = {}
        settings = SourceSettings(
            task=start.task,
            claim=start.claim,
            errors=errors(**self.SETTINGS),
            limits=TaskLimits(
                batch_max_records=100,
                batch_max_bytes=1_000_000,
                rate_max_records=20 if world.chance(0.1) else 0,
            ),
            publishes_apart=isinstance(self._writer, ProducerWriter),
            reads_ahead=world.chance(0.7),
            interval_ms=world.random.choice((0, 0, 500)),
            idle_first_ms=50,
            idle_longest_ms=200,
        )
        return SourceCore(settings, start.offsets, paused=start.paused)

    def _operations(self) -> Mapping[type[Any], Any]:
        return {
            instructions.TakeStep: self._take_step,
            instructions.FindStarts: lambda op: events.StartsFound(op.committed),
            instructions.StartSource: self._start,
            instructions.Notify: self._notify,
            instructions.Poll: self._poll,
            instructions.Stage: self._stage,
            instructions.Publish: self._publish,
            instructions.AwaitTransaction: self._await_transaction,
        }

    def _execute(self, instruction: TaskInstruction) -> None:
        if isinstance(instruction, instructions.BeginTransaction):
            self.engine.spawn(self._transact(instruction))
        else:
            super()._execute(instruction)

    # --- the start ---------------------------------------------------------------------------

    async def _take_step(self, operation: instructions.TakeStep) -> TaskEvent:
        await self._take(operation.step, (), operation.offsets)
        return events.StepTaken()

    def _start(self, operation: instructions.StartSource) -> TaskEvent:
        self.plugin_may_fail()
        committed = dict(map(position_of, operation.committed))
        self._positions = {partition: committed.get(partition, 0) for partition in self.partitions}
        return events.InstanceStarted()

    # --- batches -----------------------------------------------------------------------------

    def _notify(self, _operation: instructions.Notify) -> TaskEvent:
        self.plugin_may_fail()
        return events.Notified()

    async def _poll(self, _operation: instructions.Poll) -> TaskEvent:
        world = self.engine.world
        await self.plugin_works(self.engine.network.mix.work_ms)
        self.plugin_may_fail()
        if world.chance(0.1):
            return events.Polled(None)
        batch = {p: (n, n + world.between(1, 3)) for p, n in self._positions.items()}
        self.did(What.POLLED, batch)
        self._batch = batch
        self._positions = {p: end for p, (_, end) in batch.items()}
        offsets = [({"partition": p}, {"position": end}) for p, (_, end) in batch.items()]
        return events.Polled(SourceBatch(None, offsets, topic=self.task.connector))

    async def _stage(self, operation: instructions.Stage) -> TaskEvent:
        world, mix = self.engine.world, self.engine.network.mix
        batch = self._batch
        await asyncio.sleep(world.between(0, mix.work_ms // 4) / 1000)
        self.plugin_may_fail()
        letters = {p: (s, s + 1) for p, (s, _) in batch.items() if world.chance(mix.rejections)}
        records = {p: (s + (p in letters), e) for p, (s, e) in batch.items()}
        self.did(What.STAGED, records)
        staged = Staged(records, letters)
        count = staged.record_count if operation.is_counted else 0
        report = _report(count) if operation.is_counted else None
        return events.Staged(staged, count, report)

    async def _publish(self, operation: instructions.Publish) -> TaskEvent:
        assert not isinstance(self._writer, ProducerWriter)
        receipt = await self._writer.publish(operation.staged, operation.offsets)
        return events.Published(receipt, _report(receipt.record_count))

    async def _transact(self, begun: instructions.BeginTransaction) -> None:
        """Take step after step, as the core decides."""
        step: PublishingStep | None = begun.step
        while step is not None:
            event, step = await self._step_ended(begun, step), None
            for instruction in self._step(event):
                if isinstance(instruction, instructions.ContinueTransaction):
                    step = instruction.step
                else:
                    self._execute(instruction)

    async def _step_ended(
        self, begun: instructions.BeginTransaction, step: PublishingStep
    ) -> TaskEvent:
        try:
            await self._take(step, begun.staged, begun.offsets)
        except BrokenRuleError:
            raise
        except Exception as error:  # noqa: BLE001 - the core decides
            return events.TransactionStepEnded(begun.number, failure=self.failure_of(error))
        is_end = step is PublishingStep.COMMIT
        receipt = receipt_of(begun.staged) if is_end else None
        return events.TransactionStepEnded(begun.number, receipt)

    async def _take(self, step: PublishingStep, staged: Batches, offsets: Offsets) -> None:
        """Take a step of the writer."""
        writer = self._writer
        assert isinstance(writer, ProducerWriter)
        match step:
            case PublishingStep.INIT:
                await writer.init()
            case PublishingStep.CHECK_CLAIM:
                await writer.check_claim()
            case PublishingStep.PRODUCE:
                await writer.produce(staged)
            case PublishingStep.ADD_OFFSETS:
                await writer.add_offsets(offsets)
            case PublishingStep.COMMIT:
                await writer.commit(offsets)
            case _:
                raise AssertionError(f"{step} is not a step of the writer")

    async def _await_transaction(self, operation: instructions.AwaitTransaction) -> TaskEvent:
        limit_ms, transactions = operation.limit_ms, self.core.transactions
        limit_ms = self._stop_left_ms if limit_ms is None else limit_ms
        in_time = await self.wait_until(lambda: not transactions.is_in_progress, limit_ms)
        return events.TransactionAwaited(in_time)


def _report(count: int) -> PassReport:
    return PassReport(read_count=count, written_count=count)
