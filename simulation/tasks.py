"""The shell of a simulated task: it executes what the production core decides.

As ``drover_worker.engine.tasks`` it decides nothing. Its plugin, its topics and its store are
simulated: they are slow, fail, and hang, and Spark may be lost.
"""

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from drover.connector import RetriableError
from drover.dataplane.answers import PassLostError
from drover.errors import FailedPreconditionError, Reason, UnavailableError
from drover.model.offsets import CommitOutcome, CommitResult, CommittedOffset, TaskOffsets
from drover_worker.core import events as herder_events
from drover_worker.core.instructions import StartTask
from drover_worker.engine.core import events, instructions
from drover_worker.engine.core.events import TaskEvent
from drover_worker.engine.core.failures import Failure
from drover_worker.engine.core.instructions import EndRun, Operation, TaskInstruction
from drover_worker.engine.core.task import TaskCore
from drover_worker.engine.tasks.faults import failure_of
from simulation.brokers import Batch
from simulation.data_store import positions_of, spans_of
from simulation.engine import STOP_LIMIT_MS, Engine
from simulation.events import What
from simulation.network import Heard
from simulation.waits import told
from simulation.world import BrokenRuleError

#: How long a task waits for the coordinator's answer.
CALL_LIMIT_MS = 800
#: How long a call of the plugin may take.
PLUGIN_LIMIT_MS = 4_000
RETRY_TIMEOUT_MS = 3_000
RETRY_DELAY_MAX_MS = 500

_Perform = Callable[[Any], TaskEvent | Awaitable[TaskEvent]]


class PluginError(Exception):
    """The plugin failed."""


#: What a call of the plugin may raise.
_ERRORS: Sequence[Callable[[], Exception]] = (
    lambda: PluginError("the plugin failed"),
    lambda: RetriableError("the system of the plugin is busy"),
    lambda: PassLostError("a Python worker ended"),
    lambda: UnavailableError(Reason.STORAGE_UNAVAILABLE, "the store is away"),
)
#: The errors with which a task may fail; all others are defects.
_EXPECTED = (PluginError, RetriableError, PassLostError)


class SimulatedTask(ABC):
    """One run of a task."""

    def __init__(self, engine: Engine, start: StartTask) -> None:
        self.engine = engine
        self.task = start.task
        self.run_id = start.run_id
        self.claim = start.claim
        self.config = start.task_config
        self.paused = start.paused
        self._committed = start.offsets
        self._is_scheduled = False
        #: Woken during its run: run again at once.
        self._is_woken = False
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._run_count = 0
        self._stop_until_ms = 0
        self._stepped = asyncio.Event()
        self._perform: Mapping[type[Any], _Perform] = {
            instructions.Examine: lambda op: self._failed(op.error),
            instructions.ReadClaim: self._read_claim,
            instructions.ConfirmClaim: self._confirm_claim,
            instructions.StopInstance: self._stop_instance,
            instructions.FetchOffsets: self._fetch_offsets,
            instructions.AwaitCommits: self._await_commits,
            **self._operations(),
        }
        self.core = self._make_core(start)

    @property
    def ended(self) -> bool:
        """Whether the task has ended."""
        return self.core.is_over

    @property
    def partitions(self) -> Sequence[int]:
        """The partitions of the task."""
        count, partitions = int(self.config["task.count"]), int(self.config["partitions"])
        return range(self.task.task, partitions, count)

    # --- commands of the herder --------------------------------------------------------------

    async def prepare(self) -> None:
        """Start the task object, or defer that to the first run.

        Raises:
            Exception: The start failed.
        """
        await self._handle(events.StartRequested(self._committed))

    def begin(self) -> None:
        """Run from now on."""
        self._is_scheduled = True
        self.set_paused(self.paused)

    def set_paused(self, paused: bool) -> None:
        """Pause after the batch in flight, or resume."""
        self.paused = paused
        self.deliver(events.PauseSet(paused))

    def disown(self) -> None:
        """End without a report: the start failed or took too long."""
        self.deliver(events.Abandoned())
        self.deliver(events.InstanceReleased())

    async def stop(self) -> None:
        """Wait for the batch in flight, then end; a batch that is late is abandoned."""
        self._is_scheduled = False
        self._stop_until_ms = self.engine.now_ms + STOP_LIMIT_MS
        self.deliver(events.StopRequested())
        if await self._waited(self._is_idle, STOP_LIMIT_MS):
            await self._handle(events.SettleRequested())
        self.deliver(events.Abandoned())
        if self._is_idle.is_set():
            self.deliver(events.InstanceReleased())

    # --- runs --------------------------------------------------------------------------------

    def wake(self) -> None:
        """End the pause, or run again at once after this run."""
        self._is_woken = True
        if self._is_scheduled and self._is_idle.is_set():
            self._is_idle.clear()
            self.engine.spawn(self._run())

    async def _run(self) -> None:
        end: EndRun | None = None
        while self._is_woken and not self.core.is_stopping:
            self._is_woken = False
            self._run_count += 1
            end = await self._handle(events.RunBegan())
            if end is not None and end.pause_ms == 0:
                self._is_woken = True
                await asyncio.sleep(0.001)
        self._is_idle.set()
        if end is not None and end.pause_ms:
            self.engine.after(end.pause_ms, partial(self._due, self._run_count))

    def _due(self, run_count: int) -> None:
        if run_count == self._run_count:
            self.wake()

    async def _handle(self, event: TaskEvent) -> EndRun | None:
        """Pass an event to the core, and execute all that follows; returns how a run ends."""
        end: EndRun | None = None
        todo = deque(self._step(event))
        while todo:
            instruction = todo.popleft()
            if isinstance(instruction, EndRun):
                end = instruction
            elif isinstance(instruction, instructions.RefuseStart):
                raise instruction.error
            elif isinstance(instruction, Operation):
                todo.extend(self._step(await self._result(instruction)))
            else:
                self._execute(instruction)
        return end

    def deliver(self, event: TaskEvent) -> None:
        """Pass an event that is no result of an operation."""
        for instruction in self._step(event):
            self._execute(instruction)

    def _step(self, event: TaskEvent) -> Sequence[TaskInstruction]:
        found = self.core.step(event, self.engine.now_ms)
        try:
            self.core.validate()
        except AssertionError as error:
            text = f"{type(event).__name__}: {error}"
            raise BrokenRuleError("a machine's invariants hold", text, self.task) from error
        self._stepped.set()
        return found

    async def _result(self, operation: Operation) -> TaskEvent:
        try:
            found = self._perform[type(operation)](operation)
            return await found if inspect.isawaitable(found) else found
        except BrokenRuleError:
            raise
        except Exception as error:  # noqa: BLE001 - the core decides
            return self._failed(error)

    def _failed(self, error: BaseException) -> TaskEvent:
        return events.OperationFailed(self.failure_of(error))

    def failure_of(self, error: BaseException) -> Failure:
        """What the core has to know about an error."""
        return failure_of(error, spark_is_running=self.engine.spark_is_running)

    def _execute(self, instruction: TaskInstruction) -> None:
        match instruction:
            case instructions.Wake():
                self.wake()
            case instructions.SendCommit(_, offsets):
                commit = TaskOffsets(
                    self.task,
                    self.claim,
                    offsets,
                    refreshes_marks=instruction.refreshes_marks,
                )
                self.engine.commit(commit, partial(self._commit_answered, instruction))
            case instructions.EndFailed():
                self._end_failed(instruction)
            case instructions.EndFenced():
                self._is_scheduled = False
                self.engine.report(herder_events.TaskFenced(self.task, self.run_id))

    def _commit_answered(self, sent: instructions.SendCommit, result: object) -> None:
        assert isinstance(result, CommitResult)
        if result.outcome is CommitOutcome.COMMITTED:
            self.acknowledged(sent.offsets)
        self.deliver(events.CommitAnswered(sent.number, result.outcome, result.message))

    def _end_failed(self, end: instructions.EndFailed) -> None:
        error, who = end.error, (self.task, self.task.connector)
        why = end.message or str(error)
        self.engine.world.tell(who, "{} fails: {}", self.task, why)
        if error is not None and not isinstance(error, _EXPECTED):
            self._check_verdict(error)
        self._is_scheduled = False
        self.engine.report(herder_events.TaskFailed(self.task, self.run_id, why))

    def _check_verdict(self, error: BaseException) -> None:
        """A task fails only for its plugin, or because another claim fences its producer."""
        if getattr(error, "reason", None) is Reason.STALE_WRITER_EPOCH:
            current = self.engine.data.current(self.task)
            self.engine.rules.gave_up(self.task, self.claim, current)
            return
        raise BrokenRuleError(
            "a task fails only for its plugin", f"{self.task}: {error!r}", self.task
        ) from error

    # --- operations --------------------------------------------------------------------------

    @abstractmethod
    def _make_core(self, start: StartTask) -> TaskCore: ...

    @abstractmethod
    def _operations(self) -> Mapping[type[Any], _Perform]:
        """The operations of the subclass."""

    async def _read_claim(self, _operation: instructions.ReadClaim) -> TaskEvent:
        data = self.engine.data
        if data.brokers is not None:  # only the coordinator has the claims
            return events.ClaimRead(None)
        return events.ClaimRead(
            await told(lambda heard: data.run(self.engine, lambda: data.current(self.task), heard))
        )

    async def _confirm_claim(self, _operation: instructions.ConfirmClaim) -> TaskEvent:
        await self.check_claim(own_producer=False)
        return events.ClaimConfirmed()

    async def check_claim(self, *, own_producer: bool) -> None:
        """Check the claim with the coordinator, as ``TaskCalls`` does.

        Raises:
            FailedPreconditionError: STALE_CLAIM.
            UnavailableError: No answer in time.
        """
        asked = TaskOffsets(self.task, self.claim, (), own_producer=own_producer)
        result = await self._called(lambda heard: self.engine.commit(asked, heard))
        if result.outcome is CommitOutcome.STALE_CLAIM:
            raise FailedPreconditionError(Reason.STALE_CLAIM, result.message)
        if result.outcome is not CommitOutcome.COMMITTED:
            raise ValueError(f"the claim of the task cannot be checked: {result.message}")

    async def _stop_instance(self, _operation: instructions.StopInstance) -> TaskEvent:
        data = self.engine.data
        if data.brokers is not None:
            return events.InstanceStopped(None)
        work = partial(data.fetch, self.task.connector)
        return events.InstanceStopped(await told(lambda heard: data.run(self.engine, work, heard)))

    async def _fetch_offsets(self, _operation: instructions.FetchOffsets) -> TaskEvent:
        connector = self.task.connector
        found = await self._called(lambda heard: self.engine.fetch(connector, heard))
        return events.OffsetsFetched(found)

    async def _await_commits(self, _operation: instructions.AwaitCommits) -> TaskEvent:
        commits = self.core.commits
        return events.CommitsAwaited(
            await self.wait_until(lambda: not commits.is_in_flight, self._stop_left_ms)
        )

    # --- helpers -----------------------------------------------------------------------------

    @property
    def _stop_left_ms(self) -> int:
        return max(0, self._stop_until_ms - self.engine.now_ms)

    async def _called(self, start: Callable[[Heard], object]) -> Any:
        try:
            async with asyncio.timeout(CALL_LIMIT_MS / 1000):
                return await told(start)
        except TimeoutError:
            text = "the coordinator did not answer"
            raise UnavailableError(Reason.STORAGE_UNAVAILABLE, text) from None

    async def wait_until(self, condition: Callable[[], bool], limit_ms: int) -> bool:
        """Wait until events have made a condition of the core true."""
        until_ms = self.engine.now_ms + limit_ms
        while not condition():
            self._stepped.clear()
            if not await self._waited(self._stepped, until_ms - self.engine.now_ms):
                return condition()
        return True

    async def _waited(self, event: asyncio.Event, limit_ms: int) -> bool:
        try:
            async with asyncio.timeout(max(0, limit_ms) / 1000):
                await event.wait()
        except TimeoutError:
            return event.is_set()
        return True

    async def plugin_works(self, most_ms: int) -> None:
        """A call of the plugin takes some time; rarely it hangs, and its run is abandoned."""
        world, mix = self.engine.world, self.engine.network.mix
        await asyncio.sleep(world.between(most_ms // 3, most_ms) / 1000)
        if world.chance(mix.stop_hangs / 50):
            await asyncio.sleep(PLUGIN_LIMIT_MS / 1000)
            self._is_scheduled = False
            self.deliver(events.Overdue("the plugin did not return in time"))
            await asyncio.sleep(world.between(1, PLUGIN_LIMIT_MS) / 1000)

    def plugin_may_fail(self) -> None:
        """A call of the plugin fails at random, and without Spark.

        Raises:
            Exception: It failed.
        """
        world, mix = self.engine.world, self.engine.network.mix
        if not self.engine.spark_is_running:
            raise PassLostError("Spark is gone")
        if world.chance(mix.plugin_failure / 2):
            error = world.random.choice(_ERRORS)()
            world.tell(
                (self.task, self.task.connector), "{}'s plugin raises {!r}", self.task, error
            )
            raise error

    def did(self, what: What, batch: Batch) -> None:
        """Add an event of records to the history."""
        self.engine.rules.did(what, self.task, self.claim, spans_of(batch))

    def acknowledged(self, offsets: Sequence[CommittedOffset]) -> None:
        """The task learns that its offsets are durable."""
        at = positions_of(offsets)
        self.engine.rules.did(What.ACKNOWLEDGED, self.task, self.claim, at)

    SETTINGS: ClassVar[Mapping[str, int]] = {
        "retry_timeout_ms": RETRY_TIMEOUT_MS,
        "retry_delay_max_ms": RETRY_DELAY_MAX_MS,
    }
