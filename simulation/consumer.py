"""Simulated consumers: dynamic or static members of other groups that commit group offsets.

Two consumers may use the same instance id, as after a false failure detection: the coordinator
fences one of them, and it stops.
"""

from collections.abc import Sequence
from functools import partial

from drover.errors import DroverError, Reason
from drover.model.group import (
    Joined,
    LeavingMember,
    MemberAssignment,
    MemberIdRequired,
    OfferedProtocol,
    RebalanceInProgress,
    RetryJoin,
    Synced,
)
from drover.model.offsets import GroupCommit, GroupOffset, GroupOffsetPage, TopicPartition
from drover_coordinator.core.groups.events import (
    CommitGroupOffsets,
    DeleteGroup,
    FetchGroupOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    SyncGroup,
)
from simulation.channels import Routing
from simulation.network import Network
from simulation.process import Process
from simulation.rules import Rules

TOPIC = "t"
PROTOCOL_TYPE = "test"
SESSION_TIMEOUT_MS = 2_000
REBALANCE_TIMEOUT_MS = 4_000
PARKED_TIMEOUT_MS = 5_000
CALL_TIMEOUT_MS = 1_500
RETRY_MS = (100, 400)
AWAY_MS = (300, 4_000)


class Consumer(Process):
    """One member of a group.

    Args:
        network: Carries its calls.
        name: Its name.
        rules: Sees every response that it receives.
        coordinators: The names of all coordinators.
        group_id: Its group.
        instance_id: The instance id of a static member; None for a dynamic member.
    """

    def __init__(
        self,
        network: Network,
        name: str,
        rules: Rules,
        coordinators: Sequence[str],
        group_id: str,
        instance_id: str | None,
    ) -> None:
        super().__init__(network.world, name)
        self._network = network
        self._rules = rules
        self._coordinators = coordinators
        self.group_id = group_id
        self.instance_id = instance_id
        #: False: a consumer that left or was fenced does not rejoin.
        self.willing = True
        self.fenced = False
        self._forget()

    def _forget(self) -> None:
        self.member_id = ""
        self.generation = -1
        #: The assigned partition; None without an assignment.
        self.partition: int | None = None
        self._position = 0
        self._committing = False
        #: Counts joins: responses to earlier joins are dropped.
        self._round = 0

    def started(self) -> None:
        """Join within half a second."""
        self._forget()
        self.fenced = False
        self._routing = Routing(self._network, self, self._coordinators)
        self.after(self.world.between(0, 500), self._join)

    # --- membership --------------------------------------------------------------------------

    def _join(self) -> None:
        self.partition = None
        self._round += 1
        event = JoinGroup(
            call_id="",
            group_id=self.group_id,
            member_id=self.member_id,
            new_member_id="",
            client_id=self.name,
            client_host=self.name,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            protocol_type=PROTOCOL_TYPE,
            protocols=(OfferedProtocol("range", b""),),
            parked_until_ms=0,
            instance_id=self.instance_id,
        )
        heard = partial(self._joined, self._round)
        retry = bool(self.member_id or self.instance_id)
        self._routing.call(event, heard, timeout_ms=PARKED_TIMEOUT_MS, retry=retry)

    def _joined(self, this_round: int, outcome: object) -> None:
        if this_round != self._round:
            return
        match outcome:
            case MemberIdRequired(member_id) | RetryJoin(member_id):
                self.member_id = member_id
                self._join()
            case Joined():
                self._rules.generation_seen(self, "join", self.group_id, outcome.generation)
                self.member_id = outcome.member_id
                self.generation = outcome.generation
                self._sync(outcome)
            case _:
                assert isinstance(outcome, DroverError), outcome
                self._refused(outcome)

    def _sync(self, joined: Joined) -> None:
        assignments: tuple[MemberAssignment, ...] = ()
        if joined.leader_id == joined.member_id and not joined.skip_assignment:
            assignments = tuple(
                MemberAssignment(each.member_id, str(index).encode())
                for index, each in enumerate(joined.members)
            )
        event = SyncGroup(
            call_id="",
            group_id=self.group_id,
            member_id=self.member_id,
            generation=self.generation,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=assignments,
            instance_id=self.instance_id,
        )
        heard = partial(self._synced, self._round)
        self._routing.call(event, heard, timeout_ms=PARKED_TIMEOUT_MS)

    def _synced(self, this_round: int, outcome: object) -> None:
        if this_round != self._round:
            return
        match outcome:
            case Synced(assignment):
                self._heartbeat_later(this_round)
                if assignment:
                    self._fetch(this_round, int(assignment))
            case RebalanceInProgress():
                self._join()
            case _:
                assert isinstance(outcome, DroverError), outcome
                self._refused(outcome)

    def _refused(self, error: DroverError) -> None:
        if error.reason is Reason.FENCED_INSTANCE_ID:
            self.fenced = True
            self._leave_for_a_while("is fenced and ends")
            return
        if error.reason is Reason.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        self.partition = None
        self._round += 1
        self.after(self.world.between(*RETRY_MS), partial(self._join_again, self._round))

    def _join_again(self, this_round: int) -> None:
        if this_round == self._round:
            self._join()

    def _heartbeat_later(self, this_round: int) -> None:
        self.after(SESSION_TIMEOUT_MS // 4, partial(self._heartbeat, this_round))

    def _heartbeat(self, this_round: int) -> None:
        if this_round != self._round:
            return
        if self.willing and self.world.chance(0.01):
            self._leave()
            return
        event = Heartbeat("", self.group_id, self.member_id, self.generation, self.instance_id)
        heard = partial(self._beaten, this_round)
        self._routing.call(event, heard, timeout_ms=CALL_TIMEOUT_MS)

    def _beaten(self, this_round: int, answer: object) -> None:
        if this_round != self._round:
            return
        match answer:
            case True:
                self._join()
            case DroverError() if answer.reason in (
                Reason.UNKNOWN_MEMBER_ID,
                Reason.ILLEGAL_GENERATION,
                Reason.FENCED_INSTANCE_ID,
            ):
                self._refused(answer)
            case _:
                self._heartbeat_later(this_round)

    def _leave(self) -> None:
        """Leave; sometimes remove another static member in the same request, as an operator
        does.
        """
        leaving = [LeavingMember(self.member_id, self.instance_id)]
        if self.world.chance(0.5):
            leaving.append(LeavingMember("", f"{self.group_id}/0"))
        self._routing.call(
            LeaveGroup("", self.group_id, tuple(leaving)),
            self._left,
            timeout_ms=CALL_TIMEOUT_MS,
        )

    def _left(self, answer: object) -> None:
        delete = DeleteGroup("", self.group_id)
        if self.world.chance(0.5):
            self._routing.call(delete, lambda answer: None, timeout_ms=CALL_TIMEOUT_MS)
        self.after(
            self.world.between(0, CALL_TIMEOUT_MS), partial(self._leave_for_a_while, "leaves")
        )

    def _leave_for_a_while(self, what: str) -> None:
        self.crash(what)

        def come_back() -> None:
            if self.willing and not self.alive:
                self.start()

        self.world.after(self.world.between(*AWAY_MS), come_back)

    # --- offsets -----------------------------------------------------------------------------

    def _fetch(self, this_round: int, partition: int) -> None:
        if this_round != self._round:
            return
        if self._committing:  # an unanswered commit of an earlier round decides the start offset
            self.after(self.world.between(*RETRY_MS), partial(self._fetch, this_round, partition))
            return
        at = TopicPartition(TOPIC, partition)
        self._routing.call(
            FetchGroupOffsets("", self.group_id, (at,)),
            partial(self._fetched, this_round, partition),
            timeout_ms=CALL_TIMEOUT_MS,
        )

    def _fetched(self, this_round: int, partition: int, page: object) -> None:
        if this_round != self._round:
            return
        if isinstance(page, DroverError):
            self.after(self.world.between(*RETRY_MS), partial(self._fetch, this_round, partition))
            return
        assert isinstance(page, GroupOffsetPage)
        self.partition = partition
        self._position = max(page.offsets[0].offset, 0)
        self._work_later(this_round)

    def _work_later(self, this_round: int) -> None:
        self.after(2 * self._network.mix.work_ms, partial(self._commit, this_round))

    def _commit(self, this_round: int) -> None:
        if this_round != self._round or self.partition is None:
            return
        self._committing = True
        offset = GroupOffset(TOPIC, self.partition, self._position + 1)
        event = CommitGroupOffsets(
            "", self.group_id, self.member_id, self.generation, (offset,), self.instance_id
        )
        self._routing.call(
            event,
            partial(self._committed, this_round, offset),
            timeout_ms=CALL_TIMEOUT_MS,
        )

    def _committed(self, this_round: int, offset: GroupOffset, answer: object) -> None:
        self._committing = False
        if isinstance(answer, GroupCommit) and not answer.rebalance_in_progress:
            self._rules.group_commit_acknowledged(self.group_id, offset)
            if this_round == self._round:
                self._position = offset.offset
        if this_round == self._round:
            self._work_later(this_round)
