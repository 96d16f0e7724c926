"""Drives the core of one task in a small world: topics, a coordinator, a claim, faults on request.

The driver executes every instruction at once, except the answers to commits and the ends of
transactions, which its caller chooses.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from drover.connector.error_settings import ErrorSettings
from drover.connector.offsets import parse_sink_offsets
from drover.connector.sink_control import Written
from drover.connector.source import SourceBatch
from drover.dataplane.plane import Receipt, StageAgainError
from drover.dataplane.values import ReadPlan, ReadRange
from drover.errors import DataLossError, FailedPreconditionError, Reason, UnavailableError
from drover.model.ids import TaskId, Term
from drover.model.offset_json import canonical_json
from drover.model.offsets import CommitOutcome, CommittedOffset, TopicPartition
from drover.pipeline import PassReport
from drover_worker.engine.core import events, instructions
from drover_worker.engine.core.events import TaskEvent
from drover_worker.engine.core.failures import Failure, FailureKind, Fault
from drover_worker.engine.core.instructions import Operation, TaskInstruction
from drover_worker.engine.core.publishing import PublishingStep
from drover_worker.engine.core.sink import SinkCore
from drover_worker.engine.core.sink_positions import SinkSettings
from drover_worker.engine.core.source import SourceCore, SourceSettings
from drover_worker.engine.core.task import TaskCore, TaskLimits

TASK = TaskId("c", 0)
CLAIM = Term(1, 1)
OTHER_CLAIM = Term(2, 2)
#: Steps that belong to no open transaction.
_OUTSIDE = frozenset({PublishingStep.INIT, PublishingStep.CHECK_CLAIM, PublishingStep.COMMIT})
#: Partitions and offsets of the source in this world.
LINES = {"lines": 0}


class PluginError(Exception):
    """An error of the plugin."""


def errors(**changes: Any) -> ErrorSettings:
    """Settings for failures: a call is retried for a minute."""
    common: dict[str, Any] = {
        "tolerate": True,
        "retry_timeout_ms": 60_000,
        "retry_delay_max_ms": 10_000,
        "log": False,
        "log_records": False,
        "dead_letter_topic": "letters",
        "dead_letter_replication_factor": 1,
        "context_headers": False,
        "max_rate": 1.0,
        "max_rate_window_ms": 60_000,
    }
    return ErrorSettings(**{**common, **changes})


def limits(settings: dict[str, Any], **common: int) -> TaskLimits:
    """The limits among the settings, from which they are removed."""
    names = [each.name for each in fields(TaskLimits) if each.name in settings]
    own = {name: settings.pop(name) for name in names}
    return TaskLimits(**{"batch_max_bytes": 1_000_000, **common, **own})


#: The failures that a scenario or a property test can request.
FAILURES: Mapping[str, Failure] = {
    "plugin": Failure(error=PluginError("boom"), text="boom"),
    "retriable": Failure(error=PluginError("busy"), text="busy", kind=FailureKind.RETRIABLE),
    "unavailable": Failure(
        error=UnavailableError(Reason.STORAGE_UNAVAILABLE, "away"),
        text="away",
        fault=Fault.UNAVAILABLE,
    ),
    "no_files": Failure(
        error=PluginError("no files"), text="the disk is full", fault=Fault.EXECUTOR
    ),
    "lost": Failure(error=PluginError("lost"), text="a Python worker ended", fault=Fault.LOST),
    "stale": Failure(
        error=FailedPreconditionError(Reason.STALE_CLAIM, "stale"),
        text="stale",
        fault=Fault.STALE_CLAIM,
    ),
    "mixed": Failure(error=PluginError("mixed"), text="mixed", kind=FailureKind.MIXED_SCHEMAS),
    "data-loss": Failure(
        error=DataLossError(Reason.LOG_CORRUPT, "t-0 ends before its start"),
        text="t-0 ends before its start",
        kind=FailureKind.DATA_LOSS,
    ),
    "engine-ends": Failure(error=PluginError("no JVM"), text="no JVM", spark_is_running=False),
    "not-published": Failure(
        error=UnavailableError(Reason.STORAGE_UNAVAILABLE, "away"),
        text="away",
        kind=FailureKind.NOT_PUBLISHED,
        fault=Fault.UNAVAILABLE,
    ),
    "stage-again": Failure(
        error=StageAgainError(Reason.STORAGE_UNAVAILABLE, "the topic is another one"),
        text="the topic is another one",
        kind=FailureKind.STAGE_AGAIN,
        fault=Fault.UNAVAILABLE,
    ),
    "fenced": Failure(
        error=FailedPreconditionError(Reason.STALE_WRITER_EPOCH, "another producer"),
        text="another producer",
        kind=FailureKind.FENCED,
    ),
    "unknown": Failure(
        error=UnavailableError(Reason.STORAGE_UNAVAILABLE, "no answer"),
        text="no answer",
        fault=Fault.UNAVAILABLE,
    ),
}


class TaskDriver:
    """The common part of both drivers."""

    core: TaskCore

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.claim = CLAIM
        #: Whether only the coordinator has the claims.
        self.claim_is_far = False
        #: The type of the operation during which another worker claims the task.
        self.taken_in = ""
        #: The failures of the next operations, by the name of their type.
        self.faults: dict[str, deque[Failure]] = {}
        self.observer: Callable[[TaskInstruction], None] = lambda _: None
        self.end: instructions.EndRun | None = None
        self.stop_in_time: bool | None = None
        self.ended: instructions.EndFailed | instructions.EndFenced | None = None
        #: The commit without an answer.
        self.commit: instructions.SendCommit | None = None
        self._perform: Mapping[type[Any], Callable[[Any], TaskEvent]] = {
            instructions.Examine: self._examine,
            instructions.ReadClaim: self._read_claim,
            instructions.ConfirmClaim: self._confirm_claim,
            instructions.AwaitCommits: lambda _: events.CommitsAwaited(
                not self.core.commits.is_in_flight
            ),
            **self._operations(),
        }

    @property
    def is_over(self) -> bool:
        """Whether the task has ended."""
        return self.core.is_over

    def run(self) -> instructions.EndRun | None:
        """Run the task once; returns how the run ended."""
        self.end = None
        self.step(events.RunBegan())
        return self.end

    def step(self, event: TaskEvent) -> None:
        """Pass an event, and execute all that follows."""
        todo = deque(self._core_step(event))
        while todo:
            instruction = todo.popleft()
            self.observer(instruction)
            self._note(instruction)
            if isinstance(instruction, Operation):
                todo.extend(self._core_step(self.perform(instruction)))

    def perform(self, operation: Operation) -> TaskEvent:
        """The result of an operation: the next requested failure, or what the world has."""
        name = type(operation).__name__
        if name == self.taken_in:
            self.claim = OTHER_CLAIM
        faults = self.faults.get(name)
        if faults:
            return events.OperationFailed(faults.popleft())
        try:
            return self._perform[type(operation)](operation)
        except (FailedPreconditionError, UnavailableError) as error:
            return self._examine(instructions.Examine(error))

    def fail(self, operation: str, failure: str) -> None:
        """Let the next operation of this type fail."""
        self.faults.setdefault(operation, deque()).append(FAILURES[failure])

    def answer(self, outcome: CommitOutcome | None = None) -> None:
        """Answer the commit in flight: as the claim demands, or with this outcome."""
        commit, self.commit = self.commit, None
        assert commit is not None, "no commit is in flight"
        if outcome is None:
            is_ours = self.claim == CLAIM
            outcome = CommitOutcome.COMMITTED if is_ours else CommitOutcome.STALE_CLAIM
        if outcome is CommitOutcome.COMMITTED:
            self.store(commit.offsets)
        self.step(events.CommitAnswered(commit.number, outcome, f"the outcome is {outcome}"))

    def store(self, offsets: Sequence[CommittedOffset]) -> None:
        """The coordinator makes offsets durable."""

    def settle_stop(self) -> bool | None:
        """The last run of a stop has ended; whether all work ended in time."""
        self.step(events.SettleRequested())
        return self.stop_in_time

    def _operations(self) -> Mapping[type[Any], Callable[[Any], TaskEvent]]:
        return {}

    def _note(self, instruction: TaskInstruction) -> None:
        match instruction:
            case instructions.EndRun():
                self.end = instruction
            case instructions.EndStop():
                self.stop_in_time = instruction.in_time
            case instructions.EndFailed() | instructions.EndFenced():
                assert self.ended is None, "the task ends twice"
                self.ended = instruction
            case instructions.SendCommit():
                assert self.commit is None, "two commits are in flight"
                self.commit = instruction

    def _core_step(self, event: TaskEvent) -> Sequence[TaskInstruction]:
        found = self.core.step(event, self.now_ms)
        self.core.validate()
        return found

    def _examine(self, instruction: instructions.Examine) -> TaskEvent:
        error = instruction.error
        fault = None
        if isinstance(error, FailedPreconditionError) and error.reason is Reason.STALE_CLAIM:
            fault = Fault.STALE_CLAIM
        elif isinstance(error, UnavailableError):
            fault = Fault.UNAVAILABLE
        return events.OperationFailed(Failure(error=error, text=str(error), fault=fault))

    def _read_claim(self, _operation: instructions.ReadClaim) -> TaskEvent:
        return events.ClaimRead(None if self.claim_is_far else self.claim)

    def _confirm_claim(self, _operation: instructions.ConfirmClaim) -> TaskEvent:
        if self.claim != CLAIM:
            raise FailedPreconditionError(Reason.STALE_CLAIM, "claimed again")
        return events.ClaimConfirmed()


@dataclass
class Delivered:
    """Records that ``write`` got, and whether it returned."""

    topic: str
    partition: int
    start: int
    end: int


class SinkDriver(TaskDriver):
    """A sink that reads topics of one partition each.

    Attributes:
        ends: The end offset of each topic.
        delivered: What ``write`` got and confirmed, in order.
        committed: The offsets at the coordinator.
    """

    core: SinkCore
    core_class: type[SinkCore] = SinkCore

    def __init__(self, *topics: str, ends: Mapping[str, int] | None = None, **more: Any) -> None:
        super().__init__()
        names = topics or ("t",)
        self.ends: dict[str, int] = dict.fromkeys(names, 0) | dict(ends or {})
        self.ids = {topic: f"id-{topic}" for topic in self.ends}
        self.retention_ms: int | None = None
        self.delivered: list[Delivered] = []
        self.committed: dict[TopicPartition, CommittedOffset] = {}
        self.letter_count = 0
        self.returns: list[Any] = []
        self.idle_returns: Any = None
        self.rewinds: dict[TopicPartition, int] = {}
        self.rewinds_in_write: dict[TopicPartition, int] = {}
        self.rewinds_in_idle: dict[TopicPartition, int] = {}
        self.idle_in_ms: int | None = None
        common: dict[str, Any] = {
            "task": TASK,
            "claim": CLAIM,
            "errors": errors(),
            "limits": limits(more, batch_max_records=4),
            "topics": names,
            "auto_offset_reset": "earliest",
        }
        self.core = self.core_class(SinkSettings(**{**common, **more}), (), paused=False)

    def start(self) -> None:
        """The first start, from the coordinator's offsets."""
        self.step(events.StartRequested(tuple(self.committed.values())))

    def store(self, offsets: Sequence[CommittedOffset]) -> None:
        """See TaskDriver."""
        for key, each in zip(parse_sink_offsets(offsets), offsets, strict=True):
            self.committed[key] = each

    def position(self, topic: str = "t") -> int:
        """The committed offset of a topic's partition."""
        stored = self.committed.get(TopicPartition(topic, 0))
        return 0 if stored is None else parse_sink_offsets([stored])[topic, 0].offset  # type: ignore[index]

    def recreate(self, topic: str, end: int = 0) -> None:
        """Delete a topic and create it again, with other records."""
        self.ids[topic] += "'"
        self.ends[topic] = end

    def _operations(self) -> Mapping[type[Any], Callable[[Any], TaskEvent]]:
        return {
            instructions.StopInstance: lambda _: events.InstanceStopped(self._stored()),
            instructions.StartSink: lambda _: events.InstanceStarted(),
            instructions.FetchOffsets: lambda _: events.OffsetsFetched(self._stored()),
            instructions.BeginReplay: lambda _: events.ReplayBegun(None),
            instructions.FindTopics: lambda o: events.TopicsFound([*self.ends] * o.all_names),
            instructions.CountPartitions: lambda o: events.PartitionsCounted(
                {topic: 1 for topic in o.topics if topic in self.ends}
            ),
            instructions.IdentifyTopics: lambda o: events.TopicsIdentified(
                {topic: self.ids[topic] for topic in o.topics if topic in self.ends}
            ),
            instructions.FindEnds: lambda o: events.EndsFound(
                {key: self.ends[key[0]] for key in o.partitions}
            ),
            instructions.ReadRetention: lambda _: events.RetentionRead(self.retention_ms),
            instructions.TraceOutput: lambda _: events.OutputTraced({}),
            instructions.GetFirstMetadata: lambda _: events.FirstMetadataReturned(""),
            instructions.ReadRequests: self._read_requests,
            instructions.PlanRead: self._plan_read,
            instructions.MeasureLag: lambda _: events.LagMeasured(),
            instructions.WriteBatch: self._write,
            instructions.PublishLetters: lambda _: events.LettersPublished(),
            instructions.CallIdle: self._idle,
        }

    def _stored(self) -> Sequence[CommittedOffset]:
        return tuple(self.committed.values())

    def _read_requests(self, _operation: instructions.ReadRequests) -> TaskEvent:
        rewinds, self.rewinds = self.rewinds, {}
        return events.RequestsRead(rewinds, (), self.idle_in_ms)

    def _plan_read(self, operation: instructions.PlanRead) -> TaskEvent:
        ranges, nexts, left = [], dict(operation.starts), operation.max_records
        for (topic, partition), at in sorted(operation.starts.items()):
            if at > self.ends[topic]:
                return events.OperationFailed(FAILURES["data-loss"])
            end = min(self.ends[topic], at + left)
            if end > at:
                ranges.append(ReadRange(topic, partition, at, end))
                nexts[topic, partition] = end
                left -= end - at
        return events.ReadPlanned(ReadPlan(tuple(ranges), nexts))

    def _write(self, operation: instructions.WriteBatch) -> TaskEvent:
        for each in operation.plan.ranges:
            found = Delivered(each.topic, each.partition, each.start_offset, each.end_offset)
            self.delivered.append(found)
        rewinds, self.rewinds_in_write = self.rewinds_in_write, {}
        rows = [{"row": number} for number in range(self.letter_count)]
        count = operation.plan.record_count
        report = PassReport(
            read_count=count,
            written_count=count - len(rows),
            dead_lettered_count=len(rows),
            dead_letter_rows=rows,
        )
        self.letter_count = 0
        returned = self.returns.pop(0) if self.returns else ""
        return events.BatchWritten(returned, report, rewinds)

    def _idle(self, _operation: instructions.CallIdle) -> TaskEvent:
        found, self.idle_returns, self.idle_in_ms = self.idle_returns, None, None
        rewinds, self.rewinds_in_idle = self.rewinds_in_idle, {}
        return events.IdleReturned(found, rewinds)


def written(**up_to: int) -> Written:
    """What a sink returns that has written up to these offsets of topics."""
    return Written(up_to={TopicPartition(topic, 0): at for topic, at in up_to.items()})


@dataclass(frozen=True)
class StagedRows:
    """Rows that are staged."""

    start: int
    end: int


@dataclass
class SourceDriver(TaskDriver):
    """A source of numbered rows.

    Attributes:
        row_count: The rows that the source has.
        published: The rows in the topic, in order.
        committed: The offsets beside them.
        later: Whether the offsets are committed after the records.
        prompt: Whether a transaction ends when the task waits for it, and the failure of the next
            one that does (``prompt_failure``).
        behind: Offsets that only the source's own topic has.
    """

    core_class: ClassVar[type[SourceCore[Any]]] = SourceCore
    row_count: int = 0
    batch_rows: int = 1
    later: bool = False
    prompt: bool = False
    prompt_failure: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    behind: Sequence[CommittedOffset] = ()

    def __post_init__(self) -> None:
        super().__init__()
        self.published: list[int] = []
        self.committed: dict[str, CommittedOffset] = {}
        self.notified: list[Any] = []
        self.transaction: instructions.BeginTransaction | None = None
        self.transaction_step: PublishingStep | None = None
        #: The steps of the open transaction at the brokers.
        self._sent: list[PublishingStep] = []
        #: The next row of the task object.
        self.next = 0
        self._batch_start = 0
        self.staged_count = 0
        common: dict[str, Any] = {
            "task": TASK,
            "claim": CLAIM,
            "errors": errors(),
        }
        more = dict(self.settings)
        settings = SourceSettings(**common, limits=limits(more, batch_max_records=100), **more)
        self.core: SourceCore[StagedRows] = self.core_class(settings, (), paused=False)

    def start(self) -> None:
        """The first start, from the coordinator's offsets."""
        self.step(events.StartRequested(tuple(self.committed.values())))

    @property
    def position(self) -> int:
        """The committed row."""
        stored = self.committed.get(canonical_json('{"lines":0}'))
        return 0 if stored is None or stored.offset_json is None else _row(stored)

    def store(self, offsets: Sequence[CommittedOffset]) -> None:
        """See TaskDriver."""
        for each in offsets:
            self.committed[canonical_json(each.partition_json)] = each

    def end_transaction(self, failure: str = "", *, applied: bool = False) -> None:
        """Take the steps of the transaction until it ends.

        Args:
            failure: Which step fails and how: one of FAILURES, in a commit if its outcome is
                unknown, else when the records are produced; or that another producer fences it.
            applied: Whether the brokers carried out a commit that failed.
        """
        assert self.transaction is not None, "no transaction is in progress"
        failing = PublishingStep.COMMIT if failure == "unknown" else PublishingStep.PRODUCE
        while self.transaction is not None:
            now = failure if self.transaction_step is failing else ""
            if now:
                failure = ""
            self.take_transaction_step(now, applied=applied)

    def take_transaction_step(self, failure: str = "", *, applied: bool = False) -> None:
        """Take one step of the transaction in progress."""
        transaction, step = self.transaction, self.transaction_step
        assert transaction is not None, "no transaction is in progress"
        assert step is not None
        if not failure and self.claim != CLAIM:  # the other owner's producer
            is_check = step is PublishingStep.CHECK_CLAIM
            failure = "stale" if is_check else "" if step is PublishingStep.INIT else "fenced"
            applied = False
        receipt = None
        if step is PublishingStep.COMMIT and (not failure or applied):
            assert self._sent == [PublishingStep.PRODUCE, PublishingStep.ADD_OFFSETS], self._sent
            receipt = self._apply(transaction.staged, transaction.offsets)
        self._sent = [] if step in _OUTSIDE or failure else [*self._sent, step]
        found = events.TransactionStepEnded(transaction.number, receipt)
        if failure:
            found = events.TransactionStepEnded(transaction.number, failure=FAILURES[failure])
        self.transaction_step = None
        self.step(found)
        if self.transaction_step is None and self.transaction is transaction:
            self.transaction = None

    def _apply(self, staged: Sequence[StagedRows], offsets: Sequence[CommittedOffset]) -> Receipt:
        rows = [row for each in staged for row in range(each.start, each.end)]
        self.published += rows
        if not self.later:
            self.store(offsets)
        uncommitted = tuple(offsets) if self.later else ()
        return Receipt(record_count=len(rows), topics=("t",), uncommitted=uncommitted)

    def _note(self, instruction: TaskInstruction) -> None:
        super()._note(instruction)
        if isinstance(instruction, instructions.BeginTransaction):
            assert self.transaction is None, "two transactions are in progress"
            self.transaction, self.transaction_step = instruction, instruction.step
        elif isinstance(instruction, instructions.ContinueTransaction):
            self.transaction_step = instruction.step

    def _operations(self) -> Mapping[type[Any], Callable[[Any], TaskEvent]]:
        return {
            instructions.StopInstance: self._stop,
            instructions.AwaitTransaction: self._await,
            instructions.TakeStep: self._take_step,
            instructions.FetchOffsets: lambda _: events.OffsetsFetched(
                tuple(self.committed.values())
            ),
            instructions.FindStarts: self._find_starts,
            instructions.StartSource: self._start,
            instructions.Notify: self._notify,
            instructions.Poll: self._poll,
            instructions.Stage: self._stage,
            instructions.Publish: self._publish,
        }

    def _stop(self, _operation: instructions.StopInstance) -> TaskEvent:
        is_far = self.later or self.core.settings.publishes_apart
        return events.InstanceStopped(None if is_far else tuple(self.committed.values()))

    def _take_step(self, operation: instructions.TakeStep) -> TaskEvent:
        if operation.step is PublishingStep.CHECK_CLAIM and self.claim != CLAIM:
            raise FailedPreconditionError(Reason.STALE_CLAIM, "claimed again")
        if operation.step is PublishingStep.COMMIT:
            self.store(operation.offsets)
            self.behind = ()
        self._sent = []
        return events.StepTaken()

    def _find_starts(self, operation: instructions.FindStarts) -> TaskEvent:
        return events.StartsFound(self.behind or operation.committed, self.behind)

    def _await(self, _operation: instructions.AwaitTransaction) -> TaskEvent:
        if self.prompt and self.transaction is not None:
            failure, self.prompt_failure = self.prompt_failure, ""
            self.end_transaction(failure)
        return events.TransactionAwaited(not self.core.transactions.is_in_progress)

    def _start(self, operation: instructions.StartSource) -> TaskEvent:
        rows = [_row(each) for each in operation.committed]
        self.next = rows[0] if rows else 0
        return events.InstanceStarted()

    def _notify(self, operation: instructions.Notify) -> TaskEvent:
        self.notified.append(operation.offsets)
        return events.Notified()

    def _poll(self, _operation: instructions.Poll) -> TaskEvent:
        if self.next >= self.row_count:
            return events.Polled(None)
        self._batch_start = self.next
        self.next = min(self.next + self.batch_rows, self.row_count)
        return events.Polled(SourceBatch(None, [(LINES, {"next": self.next})], topic="t"))

    def _stage(self, operation: instructions.Stage) -> TaskEvent:
        self.staged_count += 1
        (_, offset) = operation.batch.offsets[0]
        assert offset is not None
        end = int(offset["next"])
        rows = StagedRows(self._batch_start, end)
        count = rows.end - rows.start
        return events.Staged(rows, count, PassReport(read_count=count, written_count=count))

    def _publish(self, operation: instructions.Publish) -> TaskEvent:
        if self.claim != CLAIM:
            return events.OperationFailed(FAILURES["stale"])
        receipt = self._apply(operation.staged, operation.offsets)
        count = receipt.record_count
        return events.Published(receipt, PassReport(read_count=count, written_count=count))


def _row(offset: CommittedOffset) -> int:
    text = offset.offset_json
    assert text is not None
    return int(text.partition(":")[2].rstrip("}"))
