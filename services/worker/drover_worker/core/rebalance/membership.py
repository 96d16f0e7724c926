"""This worker as a member of the group: join, catch up, settle, heartbeat, leave."""

from collections.abc import Mapping, Sequence

from drover.errors import DroverError, InvalidArgumentError, Reason
from drover.model.group import (
    Joined,
    JoinOutcome,
    MemberIdRequired,
    RebalanceInProgress,
    RetryJoin,
    SyncOutcome,
)
from drover.model.status import StatusKey
from drover_worker.core.causes import Cause
from drover_worker.core.context import Context
from drover_worker.core.events import (
    HeartbeatDue,
    JoinDue,
    RebalanceDelayOver,
    RejoinDue,
    SessionElapsed,
)
from drover_worker.core.instructions import (
    Halt,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ReadConfigsToEnd,
    SyncGroup,
    WatchGroup,
)
from drover_worker.core.lifecycle.work import Work
from drover_worker.core.rebalance.drain import Drain
from drover_worker.core.rebalance.log import RebalanceLog
from drover_worker.core.rebalance.protocol import Assignment, AssignmentError, MemberMetadata
from drover_worker.core.rebalance.stage import Stage
from drover_worker.core.rebalance.strategy import RebalanceStrategy

#: Stages in a generation, in which the member must send heartbeats.
_IN_GENERATION = frozenset({Stage.STOPPING_WORK, Stage.SYNCING, Stage.CATCHING_UP, Stage.SETTLED})
#: Stages before the next generation; heartbeats continue while the member still runs work.
_REJOINING = frozenset({Stage.JOINING, Stage.BACKING_OFF})
#: A change within this time after a rebalance continues a series of rebalances. A new connector
#: needs two, for itself and for its tasks; a connector created right after it needs a third.
_SERIES_GAP_MS = 500
#: The first rebalances of a series start after the short delay.
_QUICK_REBALANCES = 4


class Membership:
    """Keeps this worker a member of the group: joins, syncs, sends heartbeats, leaves.

    The strategy decides which work continues during a rebalance, and computes the assignments.
    """

    def __init__(self, context: Context, work: Work, strategy: RebalanceStrategy) -> None:
        self._context = context
        self._work = work
        self._strategy = strategy
        self.stage = Stage.STARTING
        #: Why the stage was entered; part of messages to callers.
        self.reason = ""
        #: The last assignment; None without a membership.
        self.assignment: Assignment | None = None
        #: Leader only: the assignment of each worker, by worker url.
        self.assignments: dict[str, Assignment] = {}
        #: Leader only: the work of draining workers when they joined, by worker url.
        self.draining: dict[str, Sequence[StatusKey]] = {}
        #: The drain of this worker.
        self.drain = Drain()
        self.rebalances = RebalanceLog()
        #: Internal urls by worker url: of all workers on the leader, else of the leader only.
        self._call_urls: dict[str, str] = {}
        #: Leader only: the worker url of the owner of each assigned connector and task.
        self._owners: dict[StatusKey, str] = {}
        #: How often the worker has settled.
        self.settled_count = 0
        self._settled_ms = -_SERIES_GAP_MS
        #: The number of the present rebalance in its series.
        self._series_count = 0
        self._call_id = ""
        self._heartbeat_id = ""
        self._heartbeat_sent_ms = 0
        self._watched_member_id = ""
        #: The last generation whose end WatchGroup has announced.
        self._ended_generation = -1
        #: While changes of connectors and tasks are gathered: the log's offset after the last one,
        #: and the latest time of the rejoin.
        self._gathered_offset = 0
        self._rejoin_by_ms: int | None = None

    @property
    def settled(self) -> bool:
        """Whether the worker has its assignment and has read the config log up to its offset."""
        return self.stage is Stage.SETTLED

    @property
    def has_joined(self) -> bool:
        """Whether the worker has ever settled in its group."""
        return self.settled_count > 0

    @property
    def ending(self) -> bool:
        """Whether the worker is shutting down or has shut down."""
        return self.stage in (Stage.LEAVING, Stage.ENDED)

    @property
    def leads(self) -> bool:
        """Whether this worker leads its settled generation."""
        return (
            self.settled
            and self.assignment is not None
            and self.assignment.leader_id == self._context.member_id
        )

    @property
    def leader_url(self) -> str:
        """The worker url of the leader of the settled generation; empty if unknown."""
        return self.assignment.leader_url if self.settled and self.assignment else ""

    def call_url(self, worker_url: str) -> str:
        """The address for calls to another worker: its internal url, or else its worker url."""
        return self._call_urls.get(worker_url) or worker_url

    # Queries

    @property
    def protocol_name(self) -> str:
        """The group's rebalance protocol; the preferred one before the first join."""
        return self._strategy.protocol_name

    @property
    def signs_calls(self) -> bool:
        """Whether the members of the group sign their calls to each other."""
        return self._strategy.signs_calls

    def owner(self, key: StatusKey) -> str:
        """Leader only: the worker url of a connector's or task's owner; empty if unassigned."""
        return self._owners.get(key, "")

    # Events

    def ready_changed(self) -> None:
        """Join if the engine is up and the config log is loaded."""
        if self.stage is Stage.STARTING and self._context.engine_up and self._context.view.loaded:
            self._join("the worker is ready")

    def engine_lost(self, reason: str) -> None:
        """Record that the engine ended, as the reason why the worker has not joined yet."""
        if self.stage is Stage.STARTING:
            self.reason = f"the engine ended: {reason}"

    def request_rejoin(self, reason: str) -> None:
        """Rejoin if this worker is settled or catching up; first stop work that must not run."""
        if self.stage in (Stage.SETTLED, Stage.CATCHING_UP):
            self._stop_work(reason, membership_lost=False)

    def structure_changed(self) -> None:
        """Schedule a rejoin if connectors or tasks changed, after a bounded quiet time.

        A rebalance can interrupt every worker, so a burst of changes should cause few of them. The
        first changes of a series wait only briefly, because most changes come alone.
        """
        offset = self._strategy.structure_offset
        assigned = self.assignment.config_offset if self.assignment else offset
        if not self.settled or offset <= max(assigned, self._gathered_offset):
            return
        self._gathered_offset = offset
        if self._rejoin_by_ms is None:
            now_ms = self._context.now_ms
            self._rejoin_by_ms = now_ms + self._context.settings.rejoin_delay_max_ms
            follows = now_ms - self._settled_ms < _SERIES_GAP_MS
            self._series_count = self._series_count + 1 if follows else 1
        self._set_rejoin_timer(self._rejoin_by_ms)

    def rejoin_due(self, *, more_expected: bool) -> None:
        """Rejoin after the quiet time, or wait longer if ``more_expected`` changes may follow."""
        if self._rejoin_by_ms is None:
            return
        if (
            more_expected
            and self._strategy.stops_for_a_rebalance
            and self._context.now_ms < self._rejoin_by_ms
        ):
            self._set_rejoin_timer(self._rejoin_by_ms)
        else:
            self.request_rejoin("connectors or tasks changed")

    def lose_membership(self, reason: str) -> None:
        """Stop all work and join as a new member, after the coordinator has removed this one."""
        self._forget_member()
        if self.stage in (Stage.SETTLED, Stage.CATCHING_UP):
            self._stop_work(reason, membership_lost=True)
        elif self.stage is Stage.SYNCING:
            self._strategy.membership_lost()
            self._back_off(self._context.settings.join_backoff_ms, reason)
        elif self.stage in _REJOINING:
            self._strategy.membership_lost()

    def handle_fencing_error(self, error: DroverError) -> bool:
        """Handle an error that fences this member or its generation; False for another error."""
        if error.reason is Reason.UNKNOWN_MEMBER_ID:
            self.lose_membership("the coordinator does not know this member")
            return True
        if error.reason in (Reason.ILLEGAL_GENERATION, Reason.STALE_TERM):
            self.request_rejoin("the group is in another generation")
            return True
        return False

    def handle_claim_error(self, error: DroverError) -> bool:
        """As ``handle_fencing_error``, for the error of a task's claim."""
        if error.reason is Reason.STALE_TERM and not self._strategy.stops_for_a_rebalance:
            return True  # another worker claimed under task configs that this one has yet to read
        return self.handle_fencing_error(error)

    def pump(self) -> None:
        """Join or leave once the work has stopped."""
        self._advance_drain()
        reason = self._strategy.rejoin_reason() if self.settled else ""
        if reason:
            self.request_rejoin(reason)
        if self.stage is Stage.STOPPING_WORK and self._strategy.may_join():
            self._join(self.reason)
        elif self.stage is Stage.LEAVING and self._work.idle and not self._call_id:
            self._leave()

    def stop(self, *, hand_over: bool = True) -> None:
        """Stop the work, leave the group, end; with ``hand_over`` drain first.

        There is no drain if the group is eager, if this worker has no work, or if it is the only
        member.
        """
        if self.ending:
            return
        alone = self.leads and len(self.assignments) == 1
        if hand_over and self._strategy.hands_over and not self._work.idle and not alone:
            self.drain.start(ends=True)
        else:
            self._stop_and_leave()

    def start_assigned_work(self) -> None:
        """Start the work that the settled generation assigns to this worker."""
        if self.assignment is not None:
            self._strategy.start_assigned(self.assignment)

    def task_configs_changed(self, name: str) -> None:
        """Restart or stop a connector's tasks, after its set of task configs changed."""
        self._strategy.task_configs_changed(name)

    def delay_over(self) -> None:
        """Rejoin for the follow-up rebalance of the last assignment."""
        self.request_rejoin("the scheduled rebalance is due")

    def validate(self) -> None:
        """Raise AssertionError when an invariant is broken."""
        if self.stage in self._strategy.stages_without_work:
            assert self._work.idle, f"the worker runs work while it is {self.stage}"
        if self.settled and self.assignment is not None:
            running = {item.key for item in self._work.all() if not item.revoked}
            assert running <= set(self.assignment.keys), "the worker runs unassigned work"
            self._strategy.validate(self.assignment)

    # Draining

    def has_other_takers(self, worker_url: str) -> bool:
        """Leader only: whether a worker other than ``worker_url`` accepts work."""
        return any(url != worker_url and url not in self.draining for url in self.assignments)

    def _advance_drain(self) -> None:
        """Announce a drain by a rejoin; end or cancel it if no other worker accepts the work."""
        drain = self.drain
        if drain.ends and self.stage in (Stage.STARTING, Stage.BACKING_OFF):
            self._stop_and_leave()  # the worker is in no group
        if not self.settled:
            return
        if drain.needs_rejoin:
            self.request_rejoin(drain.rejoin_reason)
            return
        no_takers = drain.requested and any(not item.revoked for item in self._work.all())
        if drain.ends and (no_takers or self._work.idle):
            self._stop_and_leave()
        elif no_takers:
            drain.cancel()
            self.request_rejoin(drain.rejoin_reason)

    def _stop_and_leave(self) -> None:
        self._call_id = ""
        self._enter(Stage.LEAVING, "the worker is shutting down")
        self._work.revoke_all()

    # Join and sync

    def join_answered(self, cause_id: str, outcome: JoinOutcome) -> None:
        """Handle the response to JoinGroup."""
        if not self._end_call(cause_id, Stage.JOINING):
            return
        self._context.member_id = outcome.member_id
        match outcome:
            case MemberIdRequired():
                self._join(self.reason)
            case RetryJoin():
                self._join(self.reason)
            case Joined():
                self._joined(outcome)

    def sync_answered(self, cause_id: str, outcome: SyncOutcome) -> None:
        """Handle the response to SyncGroup."""
        if not self._end_call(cause_id, Stage.SYNCING):
            return
        if isinstance(outcome, RebalanceInProgress):
            self._join("another rebalance started")
            return
        try:
            self.assignment = self._strategy.assigned(outcome, generation=self._context.generation)
        except InvalidArgumentError as error:
            self._back_off(self._context.settings.join_backoff_ms, error.message)
            return
        self._call_urls[self.assignment.leader_url] = self.assignment.leader_internal_url
        self._assigned(self.assignment)

    def read_to_end(self, cause_id: str) -> None:
        """Settle or rejoin, now that the config view has reached the end of the log."""
        if not self._end_call(cause_id, Stage.CATCHING_UP) or self.assignment is None:
            return
        if self.assignment.error is not AssignmentError.NO_ERROR:
            self._join("the config log has been read to its end")
        elif self._context.view.offset < self.assignment.config_offset:
            self._join("the config log ends before the assignment")
        else:
            self._settle()

    def call_failed(self, cause_id: str, error: DroverError) -> None:
        """Handle the failure of a call of the membership."""
        if cause_id == self._heartbeat_id:
            self._heartbeat_id = ""
            self.handle_fencing_error(error)
            return
        if cause_id != self._call_id:
            return
        self._call_id = ""
        settings = self._context.settings
        if self.stage is Stage.LEAVING:
            self._end()
        elif self.stage is Stage.CATCHING_UP:
            # a member that cannot read the log delays every rebalance: leave and join later
            member_id = self._context.member_id
            self._context.emit(
                LeaveGroup(self._context.next_cause(Cause.LEAVE), member_id, "cannot read the log")
            )
            self._forget_member()
            self._strategy.membership_lost()
            self._back_off(settings.catch_up_backoff_ms, f"config log: {error.message}")
        elif error.reason is Reason.ILLEGAL_GENERATION:
            self._join("the group is in another generation")
        else:
            if error.reason in (Reason.UNKNOWN_MEMBER_ID, Reason.FENCED_INSTANCE_ID):
                self._forget_member()
                self._strategy.membership_lost()
            self._back_off(settings.join_backoff_ms, error.message)

    def join_due(self) -> None:
        """Join after a back-off."""
        if self.stage is Stage.BACKING_OFF:
            self._enter(Stage.STOPPING_WORK, self.reason)

    def left(self, cause_id: str) -> None:
        """Handle the response to LeaveGroup."""
        if self._end_call(cause_id, Stage.LEAVING):
            self._end()

    # Heartbeats

    def heartbeat_due(self) -> None:
        """Send a heartbeat unless one is in flight, and set the timer for the next."""
        rejoins_with_work = self.stage in _REJOINING and not self._work.idle
        if (self.stage in _IN_GENERATION or rejoins_with_work) and self._context.member_id:
            if not self._heartbeat_id:
                self._heartbeat_id = self._context.next_cause(Cause.HEARTBEAT)
                self._heartbeat_sent_ms = self._context.now_ms
                self._context.emit(
                    Heartbeat(self._heartbeat_id, self._context.member_id, self._context.generation)
                )
            self._set_heartbeat_timer()

    def heartbeat_answered(self, cause_id: str, rebalance_in_progress: bool) -> None:
        """Renew the session from the time at which the heartbeat was sent."""
        if cause_id != self._heartbeat_id:
            return
        self._heartbeat_id = ""
        self._renew_session(self._heartbeat_sent_ms)
        if rebalance_in_progress:
            self.request_rejoin("the group rebalances")

    def pushed(self, member_id: str, generation: int, rejoin_needed: bool) -> None:
        """Handle a notification of WatchGroup; one for an earlier membership is ignored."""
        current = member_id == self._context.member_id and generation >= self._context.generation
        if current and rejoin_needed:
            # it may arrive before the response to SyncGroup, so ``_settle`` checks it again
            self._ended_generation = generation
            self.request_rejoin("the group rebalances")

    def session_elapsed(self) -> None:
        """Stop all work after a session timeout without a heartbeat: other workers may run it."""
        if self.stage in (Stage.SETTLED, Stage.CATCHING_UP):
            reason = "the coordinator was unreachable for a session timeout"
            self._stop_work(reason, membership_lost=True)
        elif not self.ending:
            self._strategy.membership_lost()

    # Steps

    def _joined(self, joined: Joined) -> None:
        context = self._context
        context.generation = context.status_generation = joined.generation
        self._renew_session(context.now_ms)
        self._heartbeat_id = ""
        self._set_heartbeat_timer()
        if self._watched_member_id != joined.member_id:
            self._watched_member_id = joined.member_id
            context.emit(WatchGroup(joined.member_id))
        assignments: Mapping[str, bytes] = {}
        self._forget_assignments()
        if joined.leader_id == joined.member_id:
            try:
                assignments = self._assign(joined)
            except InvalidArgumentError as error:
                self._back_off(context.settings.join_backoff_ms, error.message)
                return
        else:
            self.rebalances.followed()
        self._enter(Stage.SYNCING, f"joined generation {joined.generation}")
        self._call_id = context.next_cause(Cause.SYNC)
        context.emit(
            SyncGroup(
                cause_id=self._call_id,
                member_id=joined.member_id,
                generation=joined.generation,
                protocol_name=joined.protocol_name,
                assignments=assignments,
            )
        )

    def _assign(self, joined: Joined) -> Mapping[str, bytes]:
        task_counts, now_ms = self._context.view.task_counts(), self._context.now_ms
        computed = self._strategy.compute_assignments(
            joined,
            task_counts=task_counts,
            config_offset=self._context.view.offset,
            now_ms=now_ms,
        )
        self.rebalances.led(computed, task_counts, joined.generation, self.reason, now_ms=now_ms)
        self.assignments = {
            computed.members[member_id].worker_url: assignment
            for member_id, assignment in computed.assignments.items()
        }
        self.draining = {
            member.worker_url: member.held or ()
            for member in computed.members.values()
            if member.draining
        }
        self._owners = {
            key: worker_url for worker_url, part in self.assignments.items() for key in part.keys
        }
        self._call_urls = {
            member.worker_url: member.internal_url for member in computed.members.values()
        }
        return computed.encoded

    def _assigned(self, assignment: Assignment) -> None:
        context = self._context
        behind = context.view.offset < assignment.config_offset
        if assignment.error is not AssignmentError.NO_ERROR:
            if behind or assignment.leader_id == context.member_id:
                self._catch_up()
            else:
                self._join("the leader has to read the config log first")
        elif behind:
            self._catch_up()
        else:
            self._settle()

    def _settle(self) -> None:
        if self._ended_generation >= self._context.generation:
            self._join("the group rebalances")
            return
        self._enter(Stage.SETTLED, "")
        self.settled_count += 1
        self._settled_ms = self._context.now_ms
        self._context.claim_generation = self._context.generation
        if self.assignment is not None and self.assignment.delay_ms:
            self._context.set_timer("delay", self.assignment.delay_ms, RebalanceDelayOver())
        # changes since the assignment lead to the next rebalance only after the gathering delay,
        # so that work proceeds under a steady stream of changes
        self.structure_changed()

    def _set_rejoin_timer(self, rejoin_by_ms: int) -> None:
        settings = self._context.settings
        long_delay = self._series_count > _QUICK_REBALANCES or self._strategy.stops_for_a_rebalance
        quiet_ms = settings.rejoin_delay_ms if long_delay else settings.rejoin_delay_first_ms
        delay_ms = min(quiet_ms, max(rejoin_by_ms - self._context.now_ms, 0))
        self._context.set_timer("rejoin", delay_ms, RejoinDue())

    def _catch_up(self) -> None:
        self._enter(Stage.CATCHING_UP, "the leader has read more of the config log")
        self._call_id = self._context.next_cause(Cause.READ_CONFIGS)
        self._context.emit(ReadConfigsToEnd(self._call_id))

    def _stop_work(self, reason: str, *, membership_lost: bool) -> None:
        self._call_id = ""
        self._enter(Stage.STOPPING_WORK, reason)
        if membership_lost:
            self._strategy.membership_lost()
        else:
            self._strategy.revoke_before_join()

    def _join(self, reason: str) -> None:
        context = self._context
        self._enter(Stage.JOINING, reason)
        context.cancel_timer("delay")
        # a restarted coordinator does not know that the generation was ending; the join may return
        # the same generation, which is then valid
        self._ended_generation = -1
        self._call_id = context.next_cause(Cause.JOIN)
        self.drain.announced = self.drain.requested
        metadata = MemberMetadata(
            worker_url=context.settings.worker_id,
            config_offset=context.view.offset,
            internal_url=context.settings.internal_url,
            draining=self.drain.requested,
        )
        protocols = self._strategy.supported_protocols(metadata)
        context.emit(JoinGroup(self._call_id, context.member_id, protocols, reason))

    def _back_off(self, delay_ms: int, reason: str) -> None:
        self._enter(Stage.BACKING_OFF, reason)
        self._context.set_timer("join", delay_ms, JoinDue())

    def _leave(self) -> None:
        if not self._context.member_id:
            self._end()
            return
        self._call_id = self._context.next_cause(Cause.LEAVE)
        self._context.emit(
            LeaveGroup(self._call_id, self._context.member_id, "the worker is shutting down")
        )

    def _end(self) -> None:
        self._forget_member()
        for key in ("join", "heartbeat", "session", "delay"):
            self._context.cancel_timer(key)
        self._enter(Stage.ENDED, "")
        self._context.emit(Halt())

    def _forget_member(self) -> None:
        self._context.member_id = ""
        self._context.generation = -1
        self._ended_generation = -1
        self.assignment = None
        self._forget_assignments()
        if self._watched_member_id:
            self._watched_member_id = ""
            self._context.emit(WatchGroup(""))

    def _forget_assignments(self) -> None:
        self.assignments = {}
        self.draining = {}
        self._owners = {}
        self._call_urls = {}

    def _renew_session(self, renewed_ms: int) -> None:
        settings = self._context.settings
        remaining_ms = renewed_ms + settings.session_timeout_ms - self._context.now_ms
        self._context.set_timer("session", max(remaining_ms, 0), SessionElapsed())

    def _set_heartbeat_timer(self) -> None:
        self._context.set_timer(
            "heartbeat", self._context.settings.heartbeat_interval_ms, HeartbeatDue()
        )

    def _end_call(self, cause_id: str, stage: Stage) -> bool:
        """End the call in flight; False if ``cause_id`` is stale."""
        if cause_id != self._call_id or self.stage is not stage:
            return False
        self._call_id = ""
        return True

    def _enter(self, stage: Stage, reason: str) -> None:
        if self._rejoin_by_ms is not None:
            self._rejoin_by_ms = None
            self._context.cancel_timer("rejoin")
        self._gathered_offset = 0
        self.rebalances.entered(stage, self._context.now_ms)
        self.stage = stage
        self.reason = reason
