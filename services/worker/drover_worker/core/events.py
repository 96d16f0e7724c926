"""The herder's events: past facts, each the outcome of an instruction or a change elsewhere.

An outcome has its instruction's ``cause_id`` (a call to another service) or ``run_id`` (one run of
a connector or task), so that a late outcome can be ignored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from drover.errors import DroverError, Violation
from drover.model.config import ConfigEvent, ConfigMap, ConfigSnapshot, HistoryEntry
from drover.model.failures import FailureCause
from drover.model.group import JoinOutcome, SyncOutcome
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommittedOffset
from drover.model.status import RecordCounts, StatusChange, StatusKey, StatusSnapshot
from drover_worker.core.engine_slots import SHARED, EngineSlot
from drover_worker.core.requests.messages import Request


class EndKind(StrEnum):
    """How an engine process ended."""

    #: With an exit code or a signal, or it was replaced because it did not answer.
    CRASH = "CRASH"
    #: Its memory was exhausted.
    MEMORY = "MEMORY"
    #: Another process may have killed it (SIGKILL).
    KILL = "KILL"


@dataclass(frozen=True, slots=True)
class EngineReady:
    """An engine can run plugins on Spark."""

    engine: EngineSlot = SHARED


@dataclass(frozen=True, slots=True)
class EngineLost:
    """An engine and all its connectors and tasks ended; it is being started again.

    Attributes:
        reason: Why, for operators.
        at_work: The connectors and tasks that may be the cause, the most suspicious first; empty if
            the end was requested. None if they are unknown.
        kind: How it ended.
        engine: Which engine; connectors and tasks in other engines continue.
        by_itself: Whether the end was not requested, and no other process killed the engine.
        recent: The others that worked shortly before the end, the most suspicious first.
    """

    reason: str
    at_work: Sequence[StatusKey] | None = ()
    kind: EndKind = EndKind.CRASH
    engine: EngineSlot = SHARED
    by_itself: bool = False
    recent: Sequence[StatusKey] = ()


@dataclass(frozen=True, slots=True)
class PluginsReloaded:
    """A new engine with newly loaded plugins has replaced the shared one."""


@dataclass(frozen=True, slots=True)
class SuspectsDue:
    """Nothing has ended for a while: suspects of earlier ends may return."""


@dataclass(frozen=True, slots=True)
class ConfigsLoaded:
    """A snapshot of the config log was read, at the start or after a long interruption."""

    snapshot: ConfigSnapshot


@dataclass(frozen=True, slots=True)
class ConfigsChanged:
    """Records of the config log; everything below ``end_offset`` has been read."""

    events: Sequence[ConfigEvent]
    end_offset: int


@dataclass(frozen=True, slots=True)
class StatusesLoaded:
    """A snapshot of the status store was read, at the start or after a long interruption."""

    snapshot: StatusSnapshot


@dataclass(frozen=True, slots=True)
class StatusesChanged:
    """Statuses and active topics changed."""

    events: Sequence[StatusChange]


@dataclass(frozen=True, slots=True)
class TopicsUsed:
    """A task has processed records of these topics."""

    task: TaskId
    run_id: int
    topics: Sequence[str]


@dataclass(frozen=True, slots=True)
class TaskCounted:
    """A task reported its record counts since the start of its run, and its connector's figures."""

    task: TaskId
    run_id: int
    counts: RecordCounts
    figures: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicStatusesWritten:
    """A put or delete of a connector's topics is durable."""

    cause_id: str


@dataclass(frozen=True, slots=True)
class JoinAnswered:
    """JoinGroup returned."""

    cause_id: str
    outcome: JoinOutcome


@dataclass(frozen=True, slots=True)
class SyncAnswered:
    """SyncGroup returned."""

    cause_id: str
    outcome: SyncOutcome


@dataclass(frozen=True, slots=True)
class HeartbeatAnswered:
    """Heartbeat returned."""

    cause_id: str
    rebalance_in_progress: bool


@dataclass(frozen=True, slots=True)
class LeaveAnswered:
    """LeaveGroup returned: the member has left the group."""

    cause_id: str


@dataclass(frozen=True, slots=True)
class GroupPushed:
    """WatchGroup notified ``member_id`` of a change of the group."""

    member_id: str
    generation: int
    rejoin_needed: bool


@dataclass(frozen=True, slots=True)
class ReadToEnd:
    """The config view has reached the log's end as of ReadConfigsToEnd."""

    cause_id: str


@dataclass(frozen=True, slots=True)
class WriterClaimed:
    """This worker is the config log's privileged writer."""

    cause_id: str
    writer_epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class ConfigWritten:
    """A write to the config log is durable; ``revision`` only for a connector's config."""

    cause_id: str
    end_offset: int
    revision: int = 0


@dataclass(frozen=True, slots=True)
class TaskConfigsSubmitted:
    """The leader has written the task configs that this worker submitted."""

    cause_id: str


@dataclass(frozen=True, slots=True)
class HistoryRead:
    """The config store's history of a connector, oldest first."""

    cause_id: str
    entries: Sequence[HistoryEntry]


@dataclass(frozen=True, slots=True)
class ConfigValidated:
    """The engine validated a config.

    ``connector_type`` is "source" or "sink", or empty if the engine could not find it.
    """

    cause_id: str
    violations: Sequence[Violation]
    connector_type: str


@dataclass(frozen=True, slots=True)
class OffsetsAltered:
    """A connector's offsets were changed.

    ``complete`` is true if the plugin also changed offsets in external systems, or keeps none.
    ``adopted`` are the offsets that were found in a sink's output.
    """

    cause_id: str
    complete: bool
    adopted: Sequence[CommittedOffset] = ()


@dataclass(frozen=True, slots=True)
class ConfigExpired:
    """Values that config providers returned for this run of a connector or task have expired."""

    key: StatusKey
    run_id: int


@dataclass(frozen=True, slots=True)
class CallFailed:
    """The call with this ``cause_id`` failed."""

    cause_id: str
    error: DroverError


@dataclass(frozen=True, slots=True)
class ConnectorStarted:
    """A connector's start() returned."""

    name: str
    run_id: int


@dataclass(frozen=True, slots=True)
class ConnectorFailed:
    """A connector could not be started, or failed later."""

    name: str
    run_id: int
    trace: str
    cause: FailureCause = FailureCause.PLUGIN


@dataclass(frozen=True, slots=True)
class ConnectorStopped:
    """A connector stopped, or was abandoned."""

    name: str
    run_id: int


@dataclass(frozen=True, slots=True)
class ReconfigurationRequested:
    """A connector requested that its task configs be generated again."""

    name: str
    run_id: int


@dataclass(frozen=True, slots=True)
class TaskConfigsGenerated:
    """A connector generated its task configs; the config of task i is at index i."""

    name: str
    run_id: int
    configs: Sequence[ConfigMap]


@dataclass(frozen=True, slots=True)
class TaskConfigsNotGenerated:
    """A connector could not generate its task configs."""

    name: str
    run_id: int
    trace: str


@dataclass(frozen=True, slots=True)
class TaskClaimed:
    """The coordinator granted the claim."""

    task: TaskId
    run_id: int
    claim: Term


@dataclass(frozen=True, slots=True)
class OffsetsFetched:
    """The connector's committed offsets, read after the claim was granted."""

    task: TaskId
    run_id: int
    offsets: Sequence[CommittedOffset]


@dataclass(frozen=True, slots=True)
class TaskNotPrepared:
    """ClaimTask or FetchOffsets failed."""

    task: TaskId
    run_id: int
    error: DroverError


@dataclass(frozen=True, slots=True)
class TaskStarted:
    """A task's start() returned."""

    task: TaskId
    run_id: int


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """A task could not be started, or failed later."""

    task: TaskId
    run_id: int
    trace: str
    cause: FailureCause = FailureCause.PLUGIN


@dataclass(frozen=True, slots=True)
class TaskFenced:
    """A task's commit was fenced: a later claim exists."""

    task: TaskId
    run_id: int


@dataclass(frozen=True, slots=True)
class TaskPauseSet:
    """A task was paused or resumed."""

    task: TaskId
    run_id: int
    paused: bool


@dataclass(frozen=True, slots=True)
class TaskStopped:
    """A task stopped, or was abandoned."""

    task: TaskId
    run_id: int


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """A caller sent a request and waits for the response to ``call_id`` until ``deadline_ms``.

    ``hop_count`` is the number of times that workers forwarded the call; ``author`` is the user
    (empty if unknown).
    """

    call_id: str
    request: Request
    deadline_ms: int
    hop_count: int = 0
    author: str = ""


@dataclass(frozen=True, slots=True)
class RequestCancelled:
    """The caller cancelled the request or disconnected; writes in flight complete."""

    call_id: str


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The worker has to shut down; with ``hand_over`` it drains first."""

    hand_over: bool = True


@dataclass(frozen=True, slots=True)
class HeartbeatDue:
    """The next heartbeat is due."""


@dataclass(frozen=True, slots=True)
class SessionElapsed:
    """No heartbeat succeeded for a session timeout."""


@dataclass(frozen=True, slots=True)
class JoinDue:
    """The back-off before the next join is over."""


@dataclass(frozen=True, slots=True)
class RejoinDue:
    """Connectors and tasks have not changed for the gathering delay."""


@dataclass(frozen=True, slots=True)
class RebalanceDelayOver:
    """The delay before the follow-up rebalance of the last assignment is over."""


@dataclass(frozen=True, slots=True)
class ClaimWriterDue:
    """The back-off before the next claim of the config log is over."""


@dataclass(frozen=True, slots=True)
class SessionKeyDue:
    """The session key expired, or the back-off before a new one is written is over."""


@dataclass(frozen=True, slots=True)
class EmptyStoppedDue:
    """The back-off before task configs of stopped connectors are removed is over."""


@dataclass(frozen=True, slots=True)
class TopicsDue:
    """The back-off before topics are put or deleted again is over."""


@dataclass(frozen=True, slots=True)
class HealDue:
    """The back-off before inconsistent task configs are regenerated is over."""

    name: str


@dataclass(frozen=True, slots=True)
class CleanUpDue:
    """The leader has to check that the statuses that it removed are still absent."""


@dataclass(frozen=True, slots=True)
class StatusCheckDue:
    """Statuses that contradict this worker's reports have to be checked again."""


@dataclass(frozen=True, slots=True)
class CountsDue:
    """Changed record counts of tasks have to be written."""


@dataclass(frozen=True, slots=True)
class PulseDue:
    """A no-op event that shows that the herder handles events."""


@dataclass(frozen=True, slots=True)
class RequestRetryDue:
    """The back-off before a request is retried is over."""

    call_id: str


@dataclass(frozen=True, slots=True)
class RequestExpired:
    """A request's deadline has passed."""

    call_id: str


@dataclass(frozen=True, slots=True)
class TaskRetryDue:
    """The back-off before the next ClaimTask or FetchOffsets of a task is over."""

    task: TaskId
    run_id: int


@dataclass(frozen=True, slots=True)
class RestartDue:
    """The back-off after a connector's or task's failure of this number is over."""

    key: StatusKey
    failure_count: int


@dataclass(frozen=True, slots=True)
class ReconfigureDue:
    """The back-off before a connector's next reconfiguration is over."""

    name: str
    run_id: int


HerderEvent = (
    EngineReady
    | EngineLost
    | PluginsReloaded
    | SuspectsDue
    | ConfigsLoaded
    | ConfigsChanged
    | StatusesLoaded
    | StatusesChanged
    | TopicsUsed
    | TaskCounted
    | TopicStatusesWritten
    | JoinAnswered
    | SyncAnswered
    | HeartbeatAnswered
    | LeaveAnswered
    | GroupPushed
    | ReadToEnd
    | WriterClaimed
    | ConfigWritten
    | TaskConfigsSubmitted
    | HistoryRead
    | ConfigValidated
    | OffsetsAltered
    | ConfigExpired
    | CallFailed
    | ConnectorStarted
    | ConnectorFailed
    | ConnectorStopped
    | ReconfigurationRequested
    | TaskConfigsGenerated
    | TaskConfigsNotGenerated
    | TaskClaimed
    | OffsetsFetched
    | TaskNotPrepared
    | TaskStarted
    | TaskFailed
    | TaskFenced
    | TaskPauseSet
    | TaskStopped
    | RequestReceived
    | RequestCancelled
    | StopRequested
    | HeartbeatDue
    | SessionElapsed
    | JoinDue
    | RejoinDue
    | RebalanceDelayOver
    | ClaimWriterDue
    | EmptyStoppedDue
    | SessionKeyDue
    | TopicsDue
    | HealDue
    | CleanUpDue
    | StatusCheckDue
    | CountsDue
    | PulseDue
    | RequestRetryDue
    | RequestExpired
    | TaskRetryDue
    | RestartDue
    | ReconfigureDue
)
