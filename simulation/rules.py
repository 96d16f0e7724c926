"""Safety rules that hold under every fault, checked on durable records and on responses.

Each rule checks from outside; none reads the state of a machine.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from drover.errors import InvalidArgumentError
from drover.log.log import LogRecord, StoredRecord
from drover.model.config import ConfigSnapshot, HistoryEntry
from drover.model.group import Joined, Synced
from drover.model.ids import TaskId, Term
from drover.model.offsets import NO_OFFSET, GroupOffset, GroupOffsetPage, TaskOffsets
from drover_coordinator.core.groups.events import FetchGroupOffsets, JoinGroup, SyncGroup
from drover_coordinator.core.groups.records import GroupMetadata, GroupRecord, OffsetRecord
from drover_coordinator.record_codec import decode_record
from drover_worker.core.rebalance.protocol import (
    PROTOCOL_TYPE,
    decode_assignment,
    decode_metadata,
)
from simulation.events import Event, Span, What
from simulation.history import Checker, Violation
from simulation.process import Process
from simulation.reference import ReferenceConfigs
from simulation.world import START_MS, BrokenRuleError, World

#: Config record keys that a writer without the privileged epoch may write.
_UNPRIVILEGED = b"target-state-"


class Rules:
    """Sees every durable record and every response; raises BrokenRuleError."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.configs = ReferenceConfigs()
        self._config_epoch = 0
        #: the members of each generation, and their assignments, by group and generation
        self._members: dict[tuple[str, int], frozenset[str]] = {}
        self._assigned: dict[tuple[str, int], Mapping[str, bytes]] = {}
        self.generations: dict[str, int] = {}
        #: the highest generation that a process saw, by process and group
        self._seen: dict[tuple[str, int, str, str], int] = {}
        #: group offsets: the last of each partition, and all that ever became durable
        self._group_offsets: dict[tuple[str, str, int], int] = {}
        self._group_offsets_ever: set[tuple[str, str, int, int]] = set()
        self._view_offsets: dict[tuple[str, int], int] = {}
        #: the current claim of each task; the highest term ever granted
        self._claims: dict[TaskId, Term | None] = {}
        self._highest: dict[TaskId, Term] = {}
        self._sets: dict[str, int] = {}
        #: What tasks did and what readers found.
        self.history = Checker()
        self.claim_count = 0
        self.commit_count = 0
        self._positions: dict[tuple[str, str], int] = {}
        #: When a committed position of each task last increased.
        self.advanced_ms: dict[TaskId, int] = {}

    # --- groups ------------------------------------------------------------------------------

    def groups_written(
        self, records: Sequence[LogRecord], first_offset: int, epoch: int | None
    ) -> None:
        """Check durable records of a group log."""
        for offset, record in enumerate(records, first_offset):
            decoded = decode_record(StoredRecord(offset, 0, record))
            if isinstance(decoded, GroupRecord) and decoded.metadata is not None:
                self._group_written(decoded.group_id, decoded.metadata)
            elif isinstance(decoded, OffsetRecord):
                self._group_offset_written(decoded)

    def _group_offset_written(self, record: OffsetRecord) -> None:
        at = (record.group_id, record.partition.topic, record.partition.partition)
        if record.offset is None:
            self._group_offsets.pop(at, None)
            return
        before, offset = self._group_offsets.get(at, -1), record.offset.offset
        self._world.tell((f"{record.group_id}/offsets",), "{} is committed: {}", at, offset)
        if offset < before:
            raise BrokenRuleError(
                "a group's committed offset never goes back",
                f"{at}: {before}, then {offset}",
                record.group_id,
            )
        self._group_offsets[at] = offset
        self._group_offsets_ever.add((*at, offset))

    def group_commit_acknowledged(self, group_id: str, offset: GroupOffset) -> None:
        """A consumer received the acknowledgement of its commit."""
        if (group_id, offset.topic, offset.partition, offset.offset) not in (
            self._group_offsets_ever
        ):
            raise BrokenRuleError(
                "no acknowledged offset commit is lost", f"{group_id}: {offset}", group_id
            )

    def _group_written(self, group_id: str, metadata: GroupMetadata) -> None:
        generation = metadata.generation
        key = (group_id, generation)
        before = self.generations.get(group_id, 0)
        if generation < before:
            raise BrokenRuleError(
                "a group's generation never goes back", f"{before} to {generation}", group_id
            )
        self.generations[group_id] = generation
        self._members[key] = frozenset(each.member_id for each in metadata.members)
        self._world.tell(
            (group_id,),
            "{} is durable at generation {} {}: {}",
            group_id,
            generation,
            "assigned" if metadata.assigned else "started",
            ", ".join(each.member_id for each in metadata.members) or "no members",
        )
        if not metadata.assigned:
            return
        assigned = {each.member_id: each.assignment for each in metadata.members}
        known = self._assigned.setdefault(key, assigned)
        if sorted(known.values()) != sorted(assigned.values()):
            raise BrokenRuleError(
                "a generation is assigned once", f"generation {generation}", group_id
            )
        self._assigned[key] = assigned
        if metadata.protocol_type == PROTOCOL_TYPE:
            self._check_disjoint(group_id, generation, assigned)
            self._check_drained(group_id, metadata)

    def _check_drained(self, group_id: str, metadata: GroupMetadata) -> None:
        for member in metadata.members:
            told = {offer.name: offer.metadata for offer in member.protocols}
            try:
                draining = decode_metadata(told[metadata.protocol_name]).draining
                given = decode_assignment(member.assignment).keys
            except InvalidArgumentError:
                continue  # a member unknown to the leader
            if draining and given:
                raise BrokenRuleError(
                    "a drained worker is given no work",
                    f"{member.client_id} is given {', '.join(map(str, given))} in generation"
                    f" {metadata.generation}",
                    group_id,
                    member.client_id,
                )

    def _check_disjoint(
        self, group_id: str, generation: int, assigned: Mapping[str, bytes]
    ) -> None:
        owners: dict[object, str] = {}
        for member_id, data in assigned.items():
            try:
                assignment = decode_assignment(data)
            except InvalidArgumentError:
                continue  # a member unknown to the leader
            for item in (*assignment.connectors, *assignment.tasks):
                owner = owners.setdefault(item, member_id)
                if owner != member_id:
                    raise BrokenRuleError(
                        "one owner in a generation",
                        f"{item} is {owner}'s and {member_id}'s in generation {generation}",
                        group_id,
                        item,
                    )

    def group_answered(self, event: object, response: object) -> None:
        """Check a response that leaves a group's machine."""
        if isinstance(event, JoinGroup) and isinstance(response, Joined):
            members = self._members.get((event.group_id, response.generation), frozenset())
            if response.member_id not in members:
                raise BrokenRuleError(
                    "a generation is durable before its joins are answered",
                    f"{response.member_id} joined generation {response.generation}",
                    event.group_id,
                    response.member_id,
                )
        elif isinstance(event, SyncGroup) and isinstance(response, Synced):
            assigned = self._assigned.get((event.group_id, event.generation), {})
            if assigned.get(event.member_id) != response.assignment:
                raise BrokenRuleError(
                    "an assignment is durable and of the member's generation",
                    f"{event.member_id} synced with generation {event.generation}",
                    event.group_id,
                    event.member_id,
                )
        elif isinstance(event, FetchGroupOffsets) and isinstance(response, GroupOffsetPage):
            for offset in response.offsets:
                at = (event.group_id, offset.topic, offset.partition)
                if offset.offset != self._group_offsets.get(at, NO_OFFSET):
                    raise BrokenRuleError(
                        "what is committed is what is fetched",
                        f"{at} is at {self._group_offsets.get(at)}, not {offset.offset}",
                        event.group_id,
                    )

    def generation_seen(self, who: Process, what: str, group_id: str, generation: int) -> None:
        """A process received a generation; ``what`` names the message (join response, watch
        message).
        """
        key = (who.name, who.incarnation, what, group_id)
        before = self._seen.get(key, -1)
        if generation < before:
            raise BrokenRuleError(
                "no process sees a generation decrease",
                f"{who.name} saw {before}, then {generation} ({what})",
                group_id,
                who.name,
            )
        self._seen[key] = generation

    # --- the history -------------------------------------------------------------------------

    def happened(
        self,
        what: What,
        connector: str,
        spans: Iterable[Span] = (),
        task: TaskId | None = None,
        claim: Term | None = None,
    ) -> None:
        """Add an event to the history, and check it."""
        event = Event(
            what,
            connector,
            tuple(spans),
            None if task is None else task.task,
            None if claim is None else (claim.generation, claim.sequence),
            self._world.now_ms - START_MS,
        )
        self._broken_by(self.history.add(event))
        if what is What.COMMITTED and task is not None:
            for span in event.spans:
                key = connector, span.partition
                if span.start > self._positions.get(key, 0):
                    self._positions[key] = span.start
                    self.advanced_ms[task] = self._world.now_ms

    def did(self, what: What, task: TaskId, claim: Term | None, spans: Iterable[Span] = ()) -> None:
        """A task did something; see ``happened``."""
        self.happened(what, task.connector, spans, task, claim)

    def history_ended(self) -> None:
        """Check what must be true at the end."""
        self._broken_by(self.history.end())

    def _broken_by(self, violations: Sequence[Violation]) -> None:
        for violation in violations:
            event = self.history.history[violation.number]
            task = f"{event.connector}-{event.task}"
            text = violation.report(self.history.history).removeprefix(f"{violation.rule}: ")
            raise BrokenRuleError(violation.rule, text, task, event.connector)

    # --- claims and offsets ------------------------------------------------------------------

    def claim_granted(
        self, task: TaskId, term: Term, owner: str, set_number: int, *, fences: bool
    ) -> None:
        """Check a claim that became durable; ``fences`` means that it ends earlier ones at once."""
        self.claim_count += 1
        self._world.tell(
            (task, task.connector),
            "{} is claimed by {}: {} of set {}",
            task,
            owner,
            term,
            set_number,
        )
        if self._claims.get(task) == term:
            return  # a repeated request
        highest = self._highest.get(task)
        if highest is not None and term <= highest:
            raise BrokenRuleError(
                "a claim never goes back", f"{task}: {highest}, then {term}", task, task.connector
            )
        if self._sets.get(task.connector) != set_number:
            self._sets[task.connector] = set_number
            if fences:
                self.happened(What.REVOKED, task.connector)
            for other in self._claims:
                if other.connector == task.connector:
                    self._claims[other] = None
        self._claims[task] = self._highest[task] = term
        if fences:
            self.did(What.CLAIMED, task, term)

    def commit_accepted(self, commit: TaskOffsets) -> None:
        """Check a durable commit."""
        self.commit_count += 1
        task = commit.task
        self._world.tell((task,), "{} commits under {}", task, commit.claim)
        held = self._claims.get(task)
        if held != commit.claim:
            raise BrokenRuleError(
                "one accepted committer",
                f"{task} commits under {commit.claim} while {held or 'another set'} counts",
                task,
                task.connector,
            )

    def gave_up(self, task: TaskId, claim: Term, counts: Term | None) -> None:
        """A fenced task ended while ``counts`` is the current claim."""
        if claim == counts:
            raise BrokenRuleError(
                "the owner of a task keeps running",
                f"{task} ends under {claim}",
                task,
                task.connector,
            )

    # --- configs -----------------------------------------------------------------------------

    def writer_claimed(self, owner: str, term: Term, epoch: int) -> None:
        """A config store became the config log's privileged writer."""
        self._world.tell(("config",), "{} claims the config log: {}, epoch {}", owner, term, epoch)
        self._config_epoch = max(self._config_epoch, epoch)

    def configs_written(
        self, records: Sequence[LogRecord], first_offset: int, epoch: int | None
    ) -> None:
        """Check durable records of the config log."""
        for offset, record in enumerate(records, first_offset):
            key = record.key.decode()
            name = key.removeprefix("connector-").removeprefix("commit-").removeprefix("task-")
            name = name.removeprefix("target-state-").removeprefix("restart-")
            items = (key, name, name.rsplit("-", 1)[0], "config")
            self._world.tell(items, "config log {}: {} = {}", offset, key, record.value)
            if not record.key.startswith(_UNPRIVILEGED) and epoch is None:
                raise BrokenRuleError("a config is written by the leader", key, key)
            if offset != self.configs.end_offset:
                raise BrokenRuleError(
                    "config offsets never go back",
                    f"{offset} follows {self.configs.end_offset - 1}",
                    key,
                )
            self.configs.write(offset, record)
        if epoch is not None and epoch != self._config_epoch:
            raise BrokenRuleError(
                "only the last writer writes",
                f"epoch {epoch} is accepted, {self._config_epoch} was granted",
                "config",
                records[0].key.decode(),
            )

    def marker_written_by_another(self, offset: int, record: LogRecord) -> None:
        """Another cluster appended to the same log."""
        name = record.key.decode().removeprefix("commit-")
        self._world.tell((name, "config"), "config log {}: a stranger's {}", offset, record.value)
        self.configs.write(offset, record)

    def statuses_written(
        self, records: Sequence[LogRecord], first_offset: int, epoch: int | None
    ) -> None:
        """Check durable records of the status log."""
        for offset, record in enumerate(records, first_offset):
            key = record.key.decode().removeprefix("status-connector-")
            key = key.removeprefix("status-task-")
            items = (key, key.rsplit("-", 1)[0], "statuses")
            self._world.tell(items, "status log {}: {} = {}", offset, key, record.value)

    def configs_loaded(
        self, snapshot: ConfigSnapshot, history: Callable[[str], Sequence[HistoryEntry]]
    ) -> None:
        """Check the config store's state after it loaded its log, or when it serves a snapshot."""
        difference = self.configs.difference(snapshot) or self.configs.history_difference(history)
        if difference is not None:
            raise BrokenRuleError(
                "no durable config is lost",
                f"connector {difference[0]} {difference[1]}",
                difference[0],
            )

    def config_acknowledged(self, request_id: str, what: str) -> None:
        """An operator received the acknowledgement of a write."""
        if request_id not in self.configs.request_ids:
            raise BrokenRuleError(
                "no acknowledged config write is lost", f"{what} ({request_id})", request_id
            )

    def view_moved(self, who: Process, offset: int) -> None:
        """A worker's view has reached this offset of the config log."""
        key = (who.name, who.incarnation)
        before = self._view_offsets.get(key, 0)
        if offset < before or offset > self.configs.end_offset:
            raise BrokenRuleError(
                "config offsets never go back",
                f"{who.name} saw {before}, then {offset}; the log ends at"
                f" {self.configs.end_offset}",
                who.name,
                "config",
            )
        self._view_offsets[key] = offset
