"""The herder's instructions: the shell executes them, and the outcome of each is an event."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from drover.machine import CancelTimer, Complete, Fail, SetTimer
from drover.model.config import ConfigMap, TargetState
from drover.model.group import OfferedProtocol
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommittedOffset, OffsetsChange
from drover.model.status import StatusWrite
from drover_worker.core.engine_slots import SHARED, EngineSlot


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """Join the group, or its next generation: JoinAnswered or CallFailed."""

    cause_id: str
    member_id: str
    protocols: Sequence[OfferedProtocol]
    reason: str


@dataclass(frozen=True, slots=True)
class SyncGroup:
    """Send all assignments (leader only) and get the own one: SyncAnswered or CallFailed."""

    cause_id: str
    member_id: str
    generation: int
    protocol_name: str
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Send a heartbeat: HeartbeatAnswered or CallFailed."""

    cause_id: str
    member_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """Leave the group, with one short attempt: LeaveAnswered or CallFailed."""

    cause_id: str
    member_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class WatchGroup:
    """Watch the group as this member; replaces an earlier watch: GroupPushed, any number.

    An empty ``member_id`` ends the watch.
    """

    member_id: str


@dataclass(frozen=True, slots=True)
class ReadConfigsToEnd:
    """Read the config log to its current end: ReadToEnd or CallFailed."""

    cause_id: str


@dataclass(frozen=True, slots=True)
class ClaimWriter:
    """Become the config log's privileged writer: WriterClaimed or CallFailed."""

    cause_id: str
    term: Term


@dataclass(frozen=True, slots=True)
class WriteConnectorConfig:
    """Write a connector's config: ConfigWritten or CallFailed."""

    cause_id: str
    name: str
    config: ConfigMap
    initial_state: TargetState | None
    expected_revision: int | None
    writer_epoch: int
    request_id: str
    author: str = ""


@dataclass(frozen=True, slots=True)
class RemoveConnector:
    """Remove a connector: ConfigWritten or CallFailed."""

    cause_id: str
    name: str
    writer_epoch: int
    request_id: str
    author: str = ""


@dataclass(frozen=True, slots=True)
class WriteTaskConfigs:
    """Write a connector's whole set of task configs: ConfigWritten or CallFailed."""

    cause_id: str
    connector: str
    configs: Sequence[ConfigMap]
    writer_epoch: int
    request_id: str


@dataclass(frozen=True, slots=True)
class WriteTargetState:
    """Write a connector's target state: ConfigWritten or CallFailed."""

    cause_id: str
    name: str
    target_state: TargetState
    request_id: str
    author: str = ""


@dataclass(frozen=True, slots=True)
class WriteRestartRequest:
    """Write a restart request: ConfigWritten or CallFailed."""

    cause_id: str
    name: str
    only_failed: bool
    include_tasks: bool
    writer_epoch: int
    request_id: str
    author: str = ""


@dataclass(frozen=True, slots=True)
class WriteSessionKey:
    """Generate a session key and write it to the config log: ConfigWritten or CallFailed."""

    cause_id: str
    algorithm: str
    size_bytes: int
    writer_epoch: int
    request_id: str


@dataclass(frozen=True, slots=True)
class ReadHistory:
    """Read a connector's history from the config store: HistoryRead or CallFailed."""

    cause_id: str
    name: str


@dataclass(frozen=True, slots=True)
class SubmitToLeader:
    """Send a connector's task configs to the leader: TaskConfigsSubmitted or CallFailed."""

    cause_id: str
    leader_url: str
    connector: str
    configs: Sequence[ConfigMap]
    request_id: str


@dataclass(frozen=True, slots=True)
class ValidateConfig:
    """Validate a config in the engine: ConfigValidated or CallFailed.

    ``use_systems``: resolve placeholders, and check the systems that the config names.
    """

    cause_id: str
    config: ConfigMap
    author: str = ""
    use_systems: bool = True


@dataclass(frozen=True, slots=True)
class AlterOffsets:
    """Change a connector's offsets after its plugin agreed: OffsetsAltered or CallFailed."""

    cause_id: str
    member_id: str
    config: ConfigMap
    change: OffsetsChange


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Write a status; retried until it is written or replaced by a later one of its key."""

    write: StatusWrite


@dataclass(frozen=True, slots=True)
class PutTopicStatuses:
    """Record that a task uses topics: TopicStatusesWritten or CallFailed."""

    cause_id: str
    task: TaskId
    topics: Sequence[str]


@dataclass(frozen=True, slots=True)
class DeleteTopicStatuses:
    """Delete a connector's topics: TopicStatusesWritten or CallFailed."""

    cause_id: str
    connector: str


@dataclass(frozen=True, slots=True)
class StartEngine:
    """Start an engine besides the shared one, and start it again whenever it ends: EngineReady and
    EngineLost, any number.
    """

    engine: EngineSlot


@dataclass(frozen=True, slots=True)
class StopEngine:
    """Stop an engine that StartEngine started; no event of it follows."""

    engine: EngineSlot


@dataclass(frozen=True, slots=True)
class StartConnector:
    """Start a connector object in an engine: ConnectorStarted or ConnectorFailed."""

    name: str
    run_id: int
    config: ConfigMap
    engine: EngineSlot = SHARED


@dataclass(frozen=True, slots=True)
class StopConnector:
    """Stop a connector object: ConnectorStopped."""

    name: str
    run_id: int


@dataclass(frozen=True, slots=True)
class GenerateTaskConfigs:
    """Generate a connector's task configs: TaskConfigsGenerated or TaskConfigsNotGenerated."""

    name: str
    run_id: int
    tasks_max: int


@dataclass(frozen=True, slots=True)
class ClaimTask:
    """Claim a task, to become its only committer: TaskClaimed or TaskNotPrepared."""

    task: TaskId
    run_id: int
    member_id: str
    generation: int
    task_config_generation: int
    request_id: str


@dataclass(frozen=True, slots=True)
class FetchOffsets:
    """Read the committed offsets of the task's connector: OffsetsFetched or TaskNotPrepared.

    ``reads_topics`` is true for sinks, whose offsets are positions of ``consumer_group``; by
    default that is the group named after the connector.
    """

    task: TaskId
    run_id: int
    reads_topics: bool = False
    consumer_group: str = ""


@dataclass(frozen=True, slots=True)
class StartTask:
    """Start a task in an engine: TaskStarted or TaskFailed."""

    task: TaskId
    run_id: int
    connector_config: ConfigMap
    task_config: ConfigMap
    claim: Term
    offsets: Sequence[CommittedOffset]
    paused: bool
    engine: EngineSlot = SHARED


@dataclass(frozen=True, slots=True)
class SetTaskPaused:
    """Pause or resume a task: TaskPauseSet."""

    task: TaskId
    run_id: int
    paused: bool


@dataclass(frozen=True, slots=True)
class StopTask:
    """Stop a task: TaskStopped."""

    task: TaskId
    run_id: int


@dataclass(frozen=True, slots=True)
class Halt:
    """End the process: all work has stopped and the worker has left the group."""


HerderInstruction = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | WatchGroup
    | ReadConfigsToEnd
    | ClaimWriter
    | WriteConnectorConfig
    | RemoveConnector
    | WriteTaskConfigs
    | WriteTargetState
    | WriteRestartRequest
    | WriteSessionKey
    | ReadHistory
    | SubmitToLeader
    | ValidateConfig
    | AlterOffsets
    | WriteStatus
    | PutTopicStatuses
    | DeleteTopicStatuses
    | StartEngine
    | StopEngine
    | StartConnector
    | StopConnector
    | GenerateTaskConfigs
    | ClaimTask
    | FetchOffsets
    | StartTask
    | SetTaskPaused
    | StopTask
    | Halt
    | Complete
    | Fail
    | SetTimer
    | CancelTimer
)
