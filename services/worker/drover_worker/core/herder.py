"""The herder: decides what this worker runs and, while it leads, what every worker runs.

A volatile machine: ``step`` takes an event and returns instructions for the shell. Its parts share
one Context: Membership joins the group, Work has the assigned connectors and tasks, Reconfigurer
generates task configs, RequestHandler serves callers, ConfigLogLease claims the config log.

The herder never waits: an operation that takes time is an instruction, and its outcome an event.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from drover.errors import DroverError
from drover.model.config import (
    ConfigChange,
    ConnectorConfigRemoved,
    ConnectorConfigUpdated,
    RestartRequested,
    SessionKeyUpdated,
    TargetStateChanged,
    TaskConfigsUpdated,
)
from drover.model.status import StatusKey, TopicEvent
from drover_worker.core import events
from drover_worker.core.causes import Cause, cause_of
from drover_worker.core.config.healing import Healing
from drover_worker.core.config.lease import ConfigLogLease
from drover_worker.core.config.reconfigurer import Reconfigurer
from drover_worker.core.config.session_keys import SessionKeys
from drover_worker.core.context import Context, HerderSettings
from drover_worker.core.engine_slots import SHARED
from drover_worker.core.instructions import HerderInstruction
from drover_worker.core.lifecycle.connector import ConnectorLifecycle
from drover_worker.core.lifecycle.lifecycle import Lifecycle
from drover_worker.core.lifecycle.restart_plan import RestartRequest, preserve_highest_impact
from drover_worker.core.lifecycle.stopped import StoppedConnectors
from drover_worker.core.lifecycle.work import Work
from drover_worker.core.rebalance.membership import Membership
from drover_worker.core.rebalance.strategies import new_strategy
from drover_worker.core.requests.handler import RequestHandler
from drover_worker.core.requests.signatures import CallSignatures
from drover_worker.core.status.active_topics import ActiveTopics
from drover_worker.core.status.clean_up import StatusCleanUp
from drover_worker.core.status.correction import StatusCorrection
from drover_worker.core.status.counts import StatusCounts
from drover_worker.core.status.lost_owners import LostOwners


class Caller(Protocol):
    """A part of the herder that makes calls to other services."""

    def call_failed(self, cause_id: str, error: DroverError) -> None:
        """A call of this part failed; ignored when the part no longer waits for it."""


class ConfigWriter(Protocol):
    """A part of the herder that writes to the config log."""

    def config_written(self, event: events.ConfigWritten) -> None:
        """A write of this part is durable; ignored when the part no longer waits for it."""


class Herder:
    """One worker's decisions."""

    def __init__(self, settings: HerderSettings) -> None:
        self.context = Context(settings)
        self.work = Work(self.context)
        self.membership = Membership(self.context, self.work, new_strategy(self.context, self.work))
        self.lease = ConfigLogLease(self.context, self.membership)
        self.session_keys = SessionKeys(self.context, self.membership, self.lease)
        self.signatures = CallSignatures(
            self.session_keys,
            self.membership,
            algorithm=settings.signature_algorithm,
            accepted=settings.verification_algorithms,
        )
        self.requests = RequestHandler(
            self.context,
            self.work,
            self.membership,
            self.lease,
            describe_stage=self.describe_stage,
        )
        self.reconfigurer = Reconfigurer(
            self.context,
            self.work,
            self.membership,
            self.lease,
            is_stopping=self.requests.is_stopping,
        )
        self.healing = Healing(self.context, self.work, self.reconfigurer)
        self.stopped = StoppedConnectors(self.context, self.lease)
        self.topics = ActiveTopics(self.context, self.membership)
        self.status_clean_up = StatusCleanUp(self.context, self.membership)
        self.lost_owners = LostOwners(self.context, self.membership)
        self.status_correction = StatusCorrection(self.context, self.work)
        self.status_counts = StatusCounts(self.context, self.work)
        self._callers: Mapping[Cause, Caller] = {
            Cause.JOIN: self.membership,
            Cause.SYNC: self.membership,
            Cause.READ_CONFIGS: self.membership,
            Cause.HEARTBEAT: self.membership,
            Cause.LEAVE: self.membership,
            Cause.CLAIM_WRITER: self.lease,
            Cause.REQUEST: self.requests,
            Cause.EMPTY_STOPPED: self.stopped,
            Cause.SESSION_KEY: self.session_keys,
            Cause.TASK_CONFIGS: self.reconfigurer,
            Cause.PUT_TOPICS: self.topics,
            Cause.DELETE_TOPICS: self.topics,
        }
        self._config_writers: Mapping[Cause, ConfigWriter] = {
            Cause.REQUEST: self.requests,
            Cause.EMPTY_STOPPED: self.stopped,
            Cause.SESSION_KEY: self.session_keys,
            Cause.TASK_CONFIGS: self.reconfigurer,
        }
        self._restarts: dict[str, RestartRequest] = {}
        self._settled_count = 0

    def describe_stage(self) -> str:
        """The stage of the worker, for messages to callers and operators."""
        membership = self.membership
        because = f" ({membership.reason})" if membership.reason else ""
        drained = ""
        if membership.drain.requested:
            drained = ", and is drained" if self.work.idle else ", and is being drained"
        return f"the worker is {membership.stage}{because}{drained}"

    def step(self, event: events.HerderEvent, now_ms: int) -> Sequence[HerderInstruction]:
        """Handle an event; returns the instructions that it causes, in order."""
        self.context.now_ms = now_ms
        self.context.started_ms = self.context.started_ms or now_ms
        self.context.out = []
        _HANDLERS[type(event)](self, event)
        self._pump()
        return self.context.out

    def validate(self) -> None:
        """Raise AssertionError when an invariant is broken."""
        self.work.validate()
        self.membership.validate()
        self.lease.validate()
        self.requests.validate()

    def _pump(self) -> None:
        self.work.advance(self._work_changed)
        if self.membership.settled_count != self._settled_count:
            self._settled_count = self.membership.settled_count
            self._start_assigned_work()  # before a rejoin, whose metadata has the running work
        self.membership.pump()
        self.lease.pump()
        self.session_keys.pump()
        self.requests.pump()
        self.reconfigurer.pump()
        self.healing.pump()
        self.stopped.pump()
        self.topics.pump()
        if self.membership.settled:
            self._run_restarts()
        self.work.advance(self._work_changed)

    def _start_assigned_work(self) -> None:
        self.membership.start_assigned_work()
        self.status_clean_up.check_all()
        self.lost_owners.check_all()
        self.status_correction.check_all()
        self.topics.check_all()

    def _work_changed(self, item: Lifecycle) -> None:
        if isinstance(item, ConnectorLifecycle):
            self.reconfigurer.forget_stale(item)
        self.requests.work_changed(item)

    def _run_restarts(self) -> None:
        restarts, self._restarts = self._restarts, {}
        for request in restarts.values():
            self.work.restart(self.work.plan_restart(request))

    # Views

    def _configs_loaded(self, event: events.ConfigsLoaded) -> None:
        for change in self.context.view.load(event.snapshot):
            self._react(change)
        self.session_keys.loaded(event.snapshot.session_key)
        self.lost_owners.check_all()
        self.membership.ready_changed()
        self.membership.structure_changed()

    def _configs_changed(self, event: events.ConfigsChanged) -> None:
        for config_event in event.events:
            change = self.context.view.apply(config_event.offset, config_event.change)
            if change is not None:
                self._react(change)
        self.context.view.advance_to(event.end_offset)
        self.membership.structure_changed()

    def _react(self, change: ConfigChange) -> None:
        match change:
            case ConnectorConfigUpdated(connector):
                item = self.work.connectors.get(connector.name)
                if item is not None:
                    item.renew()
                self.work.isolation.release(connector.name)
                self.work.touch_connector(connector.name)  # it may have to move
            case ConnectorConfigRemoved(name):
                self._restarts.pop(name, None)
                self.work.isolation.release(name)
                self.work.revoke_connector(name)
                self.topics.check(name)
            case TaskConfigsUpdated(connector):
                self.membership.task_configs_changed(connector.name)
                self.stopped.changed(connector.name)
                self.reconfigurer.committed(connector.name)
            case SessionKeyUpdated(session_key):
                self.session_keys.changed(session_key)
            case TargetStateChanged(name):
                self.work.touch_connector(name)
                self.stopped.changed(name)
            case RestartRequested(name, only_failed, include_tasks):
                request = RestartRequest.of(
                    name, only_failed=only_failed, include_tasks=include_tasks
                )
                self._restarts = preserve_highest_impact(self._restarts, request)

    def _rejoin_due(self, event: events.RejoinDue) -> None:
        # delay the rejoin while work is starting: stopping it would waste the start, and new task
        # configs will require another rebalance soon
        self.membership.rejoin_due(
            more_expected=self.work.starting
            or self.reconfigurer.writing
            or self.requests.writing_task_configs
        )

    def _statuses_loaded(self, event: events.StatusesLoaded) -> None:
        self.context.statuses = dict(event.snapshot.statuses)
        self.topics.load(event.snapshot.topics)
        self.status_clean_up.loaded()
        self.lost_owners.check_all()
        self.status_correction.check_all()

    def _statuses_changed(self, event: events.StatusesChanged) -> None:
        keys: list[StatusKey] = []
        for change in event.events:
            if isinstance(change, TopicEvent):
                self.topics.changed(change)
                continue
            keys.append(change.key)
            if change.status is None:
                self.context.statuses.pop(change.key, None)
            else:
                self.context.statuses[change.key] = change.status
                item = self.work.find(change.key)
                if item is not None and item.status_seen(self.context, change.status):
                    self.work.touch(change.key)
        self.status_clean_up.changed(keys)
        self.lost_owners.changed(keys)
        self.status_correction.changed(keys)

    def _topics_used(self, event: events.TopicsUsed) -> None:
        item = self.work.tasks.get(event.task)
        if item is not None and item.run_id == event.run_id:
            self.topics.used(event.task, event.topics)

    # Engine

    def _engine_ready(self, event: events.EngineReady) -> None:
        if self.work.has_engine(event.engine):
            self.context.engines.up.add(event.engine)
            self.work.regain_engine(event.engine)
            self.membership.ready_changed()

    def _engine_lost(self, event: events.EngineLost) -> None:
        if not self.work.has_engine(event.engine):
            return
        self.context.engines.up.discard(event.engine)
        if event.engine == SHARED:
            self.membership.engine_lost(event.reason)
        reason, faults = self.work.isolation.judge(event, self.work.held_in(event.engine))
        self.work.lose_engine(event.engine, reason, faults=faults)

    def _plugins_reloaded(self, event: events.PluginsReloaded) -> None:
        for name in self.work.isolation.release_all():
            for item in self.work.of_connector(name):
                self.work.restart_item(item)

    # Calls

    def _config_written(self, event: events.ConfigWritten) -> None:
        cause = cause_of(event.cause_id)
        if cause is not None:
            self._config_writers[cause].config_written(event)

    def _call_failed(self, event: events.CallFailed) -> None:
        cause = cause_of(event.cause_id)
        if cause is not None:
            self._callers[cause].call_failed(event.cause_id, event.error)

    # Connectors

    def _connector_started(self, event: events.ConnectorStarted) -> None:
        item = self.work.connectors.get(event.name)
        if item is not None and item.started(self.context, event.run_id):
            self.work.touch(event.name)
            self.reconfigurer.request(event.name)

    def _connector_failed(self, event: events.ConnectorFailed) -> None:
        item = self.work.connectors.get(event.name)
        if item is not None and item.failed(self.context, event.run_id, event.trace, event.cause):
            self.work.touch(event.name)

    def _connector_stopped(self, event: events.ConnectorStopped) -> None:
        item = self.work.connectors.get(event.name)
        if item is not None and item.stopped(event.run_id):
            self.work.touch(event.name)

    def _reconfiguration_requested(self, event: events.ReconfigurationRequested) -> None:
        item = self.work.connectors.get(event.name)
        if item is not None and item.run_id == event.run_id:
            self.reconfigurer.request(event.name)

    # Tasks

    def _task_not_prepared(self, event: events.TaskNotPrepared) -> None:
        item = self.work.tasks.get(event.task)
        if item is None or item.run_id != event.run_id:
            return
        is_fenced = self.membership.handle_claim_error(event.error)
        item.not_prepared(self.context, event.run_id, event.error, fenced=is_fenced)
        self.work.touch(event.task)

    def _task_claimed(self, event: events.TaskClaimed) -> None:
        item = self.work.tasks.get(event.task)
        if item is not None:
            item.claimed(self.context, event.run_id, event.claim)

    def _offsets_fetched(self, event: events.OffsetsFetched) -> None:
        item = self.work.tasks.get(event.task)
        if item is not None:
            item.fetched(self.context, event.run_id, event.offsets)

    def _task_started(self, event: events.TaskStarted) -> None:
        item = self.work.tasks.get(event.task)
        if item is not None and item.started(self.context, event.run_id):
            self.work.touch(event.task)

    def _task_failed(self, event: events.TaskFailed) -> None:
        item = self.work.tasks.get(event.task)
        if item is not None and item.failed(self.context, event.run_id, event.trace, event.cause):
            self.work.touch(event.task)

    def _task_fenced(self, event: events.TaskFenced) -> None:
        item = self.work.tasks.get(event.task)
        if item is not None:
            item.fenced(event.run_id)
            self.work.touch(event.task)

    def _task_pause_set(self, event: events.TaskPauseSet) -> None:
        item = self.work.tasks.get(event.task)
        if item is not None:
            item.pause_set(self.context, event.run_id, event.paused)
            self.work.touch(event.task)

    def _task_stopped(self, event: events.TaskStopped) -> None:
        item = self.work.tasks.get(event.task)
        if item is not None and item.stopped(event.run_id):
            self.work.touch(event.task)

    def _task_retry_due(self, event: events.TaskRetryDue) -> None:
        item = self.work.tasks.get(event.task)
        if item is not None:
            item.retry_due(self.context, event.run_id)

    def _restart_due(self, event: events.RestartDue) -> None:
        item = self.work.find(event.key)
        if item is not None and item.restart_due(event.failure_count):
            self.work.touch(event.key)

    def _config_expired(self, event: events.ConfigExpired) -> None:
        item = self.work.find(event.key)
        if item is not None and item.run_id == event.run_id:
            item.renew()
            self.work.touch(event.key)

    def _stop_requested(self, event: events.StopRequested) -> None:
        self.membership.stop(hand_over=event.hand_over)


_HANDLERS: dict[type, Callable[[Herder, Any], object]] = {
    events.EngineReady: Herder._engine_ready,
    events.EngineLost: Herder._engine_lost,
    events.PluginsReloaded: Herder._plugins_reloaded,
    events.SuspectsDue: lambda h, e: h.work.isolation.suspects_due(),
    events.ConfigsLoaded: Herder._configs_loaded,
    events.ConfigsChanged: Herder._configs_changed,
    events.StatusesLoaded: Herder._statuses_loaded,
    events.StatusesChanged: Herder._statuses_changed,
    events.TopicsUsed: Herder._topics_used,
    events.TaskCounted: lambda h, e: h.status_counts.counted(e),
    events.TopicStatusesWritten: lambda h, e: h.topics.done(e.cause_id),
    events.TopicsDue: lambda h, e: h.topics.due(),
    events.JoinAnswered: lambda h, e: h.membership.join_answered(e.cause_id, e.outcome),
    events.SyncAnswered: lambda h, e: h.membership.sync_answered(e.cause_id, e.outcome),
    events.HeartbeatAnswered: lambda h, e: h.membership.heartbeat_answered(
        e.cause_id, e.rebalance_in_progress
    ),
    events.LeaveAnswered: lambda h, e: h.membership.left(e.cause_id),
    events.GroupPushed: lambda h, e: h.membership.pushed(
        e.member_id, e.generation, e.rejoin_needed
    ),
    events.ReadToEnd: lambda h, e: h.membership.read_to_end(e.cause_id),
    events.WriterClaimed: lambda h, e: h.lease.claimed(e.cause_id, e.writer_epoch, e.end_offset),
    events.ConfigWritten: Herder._config_written,
    events.TaskConfigsSubmitted: lambda h, e: h.reconfigurer.submitted(e.cause_id),
    events.HistoryRead: lambda h, e: h.requests.history_read(e),
    events.ConfigValidated: lambda h, e: h.requests.validated(e),
    events.OffsetsAltered: lambda h, e: h.requests.offsets_altered(e),
    events.CallFailed: Herder._call_failed,
    events.ConnectorStarted: Herder._connector_started,
    events.ConnectorFailed: Herder._connector_failed,
    events.ConnectorStopped: Herder._connector_stopped,
    events.ReconfigurationRequested: Herder._reconfiguration_requested,
    events.TaskConfigsGenerated: lambda h, e: h.reconfigurer.generated(e.name, e.run_id, e.configs),
    events.TaskConfigsNotGenerated: lambda h, e: h.reconfigurer.not_generated(
        e.name, e.run_id, e.trace
    ),
    events.TaskClaimed: Herder._task_claimed,
    events.OffsetsFetched: Herder._offsets_fetched,
    events.TaskNotPrepared: Herder._task_not_prepared,
    events.TaskStarted: Herder._task_started,
    events.TaskFailed: Herder._task_failed,
    events.TaskFenced: Herder._task_fenced,
    events.TaskPauseSet: Herder._task_pause_set,
    events.TaskStopped: Herder._task_stopped,
    events.RequestReceived: lambda h, e: h.requests.receive(e),
    events.RequestCancelled: lambda h, e: h.requests.cancel(e.call_id),
    events.StopRequested: Herder._stop_requested,
    events.HeartbeatDue: lambda h, e: h.membership.heartbeat_due(),
    events.SessionElapsed: lambda h, e: h.membership.session_elapsed(),
    events.JoinDue: lambda h, e: h.membership.join_due(),
    events.RejoinDue: Herder._rejoin_due,
    events.RebalanceDelayOver: lambda h, e: h.membership.delay_over(),
    events.ClaimWriterDue: lambda h, e: h.lease.claim_due(),
    events.EmptyStoppedDue: lambda h, e: h.stopped.due(),
    events.SessionKeyDue: lambda h, e: h.session_keys.due(),
    events.HealDue: lambda h, e: h.healing.due(e.name),
    events.CleanUpDue: lambda h, e: h.status_clean_up.due(),
    events.StatusCheckDue: lambda h, e: h.status_correction.due(),
    events.CountsDue: lambda h, e: h.status_counts.due(),
    events.PulseDue: lambda h, e: None,
    events.RequestRetryDue: lambda h, e: h.requests.retry_due(e.call_id),
    events.RequestExpired: lambda h, e: h.requests.expire(e.call_id),
    events.TaskRetryDue: Herder._task_retry_due,
    events.ConfigExpired: Herder._config_expired,
    events.RestartDue: Herder._restart_due,
    events.ReconfigureDue: lambda h, e: h.reconfigurer.due(e.name, e.run_id),
}
