"""A simulated worker, as far as its group sees it: joins, assigns if it leads, works, dies."""

import json
from collections.abc import Callable, Sequence

from drover.errors import DroverError, Reason
from drover.model.group import (
    Joined,
    JoinedMember,
    MemberAssignment,
    MemberIdRequired,
    OfferedProtocol,
    RetryJoin,
    Synced,
)
from services.coordinator.core.events import (
    GroupChanged,
    Heartbeat,
    JoinGroup,
    MemberStreamBroken,
    SyncGroup,
    WatchEnded,
    WatchOpened,
)
from tests.simulation.coordinator import SimulatedCoordinator
from tests.simulation.world import World

GROUP = "workers"
ITEMS = tuple(f"task-{index}" for index in range(7))
SESSION_TIMEOUT_MS = 10_000
REBALANCE_TIMEOUT_MS = 20_000
HEARTBEAT_INTERVAL_MS = 3_000
CALL_TIMEOUT_MS = 8_000
PARKED_CALL_TIMEOUT_MS = 30_000
RETRY_MS = 250


class SimulatedMember:
    """A worker's side of the group protocol, over a network that loses calls and answers."""

    def __init__(self, world: World, coordinator: SimulatedCoordinator, name: str) -> None:
        self._world = world
        self._coordinator = coordinator
        self.name = name
        self.alive = True
        self.paused_until_ms = 0
        self.member_id = ""
        self.generation = -1
        self.highest_generation = -1
        #: what it works on; None while it has no assignment
        self.owned: frozenset[str] | None = None
        self._call_count = 0
        self._epoch = 0
        self._watch_id = ""
        world.after(0, self._join)

    # --- faults ------------------------------------------------------------------------------

    def crash(self) -> None:
        """The process is gone: its stream breaks, its calls are heard of no more."""
        self._world.tell(f"{self.name} crashes")
        self.alive = False
        self.owned = None
        self._epoch += 1
        self._coordinator.unwatch(self.member_id)
        if self._coordinator.alive and self.member_id:
            self._coordinator.handle(MemberStreamBroken(GROUP, self.member_id, self._watch_id))

    def pause(self, duration_ms: int) -> None:
        """The process stops and goes on later, knowing nothing of it."""
        self._world.tell(f"{self.name} pauses for {duration_ms} ms")
        self.paused_until_ms = self._world.now_ms + duration_ms

    # --- the protocol ------------------------------------------------------------------------

    def _join(self) -> None:
        self.owned = None
        self._epoch += 1
        joined_epoch = self._epoch
        call_id = self._new_call_id()
        event = JoinGroup(
            call_id=call_id,
            group_id=GROUP,
            member_id=self.member_id,
            new_member_id=f"{self.name}-{call_id}",
            client_id=self.name,
            client_host="127.0.0.1",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            protocol_type="connect",
            protocols=(OfferedProtocol("default", self.name.encode()),),
            parked_until_ms=self._world.now_ms + PARKED_CALL_TIMEOUT_MS - 1_000,
        )

        def answered(answer: object) -> None:
            match answer:
                case Joined():
                    self._joined(answer)
                case MemberIdRequired(member_id) | RetryJoin(member_id):
                    self.member_id = member_id
                    self._join()
                case DroverError():
                    self._failed(answer)
                case None:
                    self._join()

        self._call(event, call_id, answered, joined_epoch, PARKED_CALL_TIMEOUT_MS)

    def _joined(self, joined: Joined) -> None:
        assert joined.generation >= self.highest_generation, (
            f"{self.name} saw generation {self.highest_generation} and now {joined.generation}"
        )
        self.member_id = joined.member_id
        self.generation = self.highest_generation = joined.generation
        assignments = assign(joined.members) if joined.leader_id == self.member_id else ()
        call_id = self._new_call_id()
        event = SyncGroup(
            call_id=call_id,
            group_id=GROUP,
            member_id=self.member_id,
            generation=self.generation,
            assignments=assignments,
        )

        def answered(answer: object) -> None:
            match answer:
                case Synced(assignment):
                    self.owned = frozenset(json.loads(assignment or b"[]"))
                    self._world.tell(
                        f"{self.name} owns {sorted(self.owned)} in generation {self.generation}"
                    )
                    self._watch()
                    self._heartbeat_later(self._epoch)
                case DroverError():
                    self._failed(answer)
                case _:
                    self._join()

        self._call(event, call_id, answered, self._epoch, PARKED_CALL_TIMEOUT_MS)

    def _watch(self) -> None:
        if self._watch_id and self._coordinator.alive:
            self._coordinator.handle(WatchEnded(GROUP, self.member_id, self._watch_id))
        epoch = self._epoch
        call_id = self._watch_id = self._new_call_id()

        def changed(message: object) -> None:
            if (
                self._is_current(epoch)
                and isinstance(message, GroupChanged)
                and message.watched.rejoin_needed
                and message.watched.generation == self.generation
            ):
                self._join()

        self._coordinator.watch(self.member_id, changed)
        event = WatchOpened(call_id, GROUP, self.member_id)
        self._call(event, call_id, lambda answer: None, epoch, CALL_TIMEOUT_MS)

    def _heartbeat_later(self, epoch: int) -> None:
        self._world.after(HEARTBEAT_INTERVAL_MS, lambda: self._heartbeat(epoch))

    def _heartbeat(self, epoch: int) -> None:
        if not self._is_current(epoch):
            return
        call_id = self._new_call_id()
        event = Heartbeat(call_id, GROUP, self.member_id, self.generation)

        def answered(answer: object) -> None:
            match answer:
                case True:
                    self._join()
                case DroverError() if answer.reason in (
                    Reason.UNKNOWN_MEMBER_ID,
                    Reason.ILLEGAL_GENERATION,
                ):
                    self._failed(answer)
                case _:
                    self._heartbeat_later(epoch)

        self._call(event, call_id, answered, epoch, CALL_TIMEOUT_MS)

    def _failed(self, error: DroverError) -> None:
        self.owned = None
        if error.reason is Reason.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        self._epoch += 1
        epoch = self._epoch
        self._world.after(RETRY_MS, lambda: self._join() if self._is_current(epoch) else None)

    # --- calls -------------------------------------------------------------------------------

    def _call(
        self,
        event: JoinGroup | SyncGroup | Heartbeat | WatchOpened,
        call_id: str,
        answered: Callable[[object], None],
        epoch: int,
        timeout_ms: int,
    ) -> None:
        """Send a call; its answer, or None after the timeout, comes once and only if it matters."""
        heard = False

        def hear(answer: object) -> None:
            nonlocal heard
            if heard:
                return
            if self.alive and self._world.now_ms < self.paused_until_ms:
                self._world.after(self.paused_until_ms - self._world.now_ms, lambda: hear(answer))
                return
            heard = True
            if self._is_current(epoch):
                answered(answer)

        self._world.send(lambda: self._coordinator.call(event, call_id, hear))
        self._world.after(timeout_ms, lambda: hear(None))

    def _is_current(self, epoch: int) -> bool:
        return self.alive and self._epoch == epoch

    def _new_call_id(self) -> str:
        self._call_count += 1
        return f"{self.name}.{self._call_count}"


def assign(members: Sequence[JoinedMember]) -> tuple[MemberAssignment, ...]:
    """Deal the items out, round robin over the member ids."""
    member_ids = sorted(member.member_id for member in members)
    return tuple(
        MemberAssignment(member_id, json.dumps(ITEMS[index :: len(member_ids)]).encode())
        for index, member_id in enumerate(member_ids)
    )
