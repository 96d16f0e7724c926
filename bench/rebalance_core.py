"""The leader's time for a rebalance with 10,000 tasks, in the core alone.

The leader reads each member's owned work, assigns, and writes each member's starts and revocations.
During this time its herder does nothing else, heartbeats included.
"""

import json
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.figure import Figure
from drover.model.group import Joined, JoinedMember
from drover.model.ids import TaskId
from drover.model.status import StatusKey
from drover_worker.core.context import Context, HerderSettings
from drover_worker.core.lifecycle.work import Work
from drover_worker.core.rebalance.cooperative import SESSIONED_PROTOCOL, CooperativeStrategy
from drover_worker.core.rebalance.protocol import (
    MemberMetadata,
    decode_assignment,
    encode_metadata,
)

CONNECTORS = 1_000
TASKS_EACH = 10
MEMBERS = 10
ROUNDS = 5
_NOW_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Rebalance:
    """One generation: the leader's time for it, the number of revoked items, and the sizes of what
    the leader reads (owned work of all members) and writes (changes for all members).
    """

    seconds: float
    stop_count: int
    read_bytes: int
    written_bytes: int


class Group:
    """Members that own their assignments, and the leader's strategy."""

    def __init__(self, connectors: int, members: int) -> None:
        context = Context(HerderSettings(worker_id="leader", group_id="bench"))
        self._strategy = CooperativeStrategy(
            Work(context), context.view, delay_max_ms=0, sessioned=True
        )
        self.task_counts = {f"connector-{number}": TASKS_EACH for number in range(connectors)}
        self.held: dict[str, set[StatusKey]] = {f"member-{n}": set() for n in range(members)}
        self._generation = 0

    def rebalance(self) -> Rebalance:
        """The next generation, with the current members."""
        self._generation += 1
        joined = Joined(
            generation=self._generation,
            member_id="member-0",
            leader_id="member-0",
            protocol_type="connect",
            protocol_name=SESSIONED_PROTOCOL,
            members=[
                JoinedMember(member_id, encode_metadata(MemberMetadata(member_id, 0, held=held)))
                for member_id, held in _sorted(self.held).items()
            ],
        )
        began_s = time.process_time()
        computed = self._strategy.compute_assignments(
            joined, task_counts=self.task_counts, config_offset=0, now_ms=_NOW_MS
        )
        seconds = time.process_time() - began_s
        stop_count = 0
        for member_id, encoded in computed.encoded.items():
            change = decode_assignment(encoded)
            self.held[member_id] = {*self.held[member_id], *change.keys} - {*change.stops}
            stop_count += len(change.stops)
        return Rebalance(
            seconds,
            stop_count,
            read_bytes=sum(len(each.metadata) for each in joined.members),
            written_bytes=sum(map(len, computed.encoded.values())),
        )

    def settle(self) -> Sequence[Rebalance]:
        """Rebalance until every item has one owner and nothing is revoked."""
        found: list[Rebalance] = []
        while not found or found[-1].stop_count or self.held_count < self.wanted_count:
            found.append(self.rebalance())
        return found

    @property
    def held_count(self) -> int:
        """The number of connectors and tasks with an owner."""
        return sum(map(len, self.held.values()))

    @property
    def wanted_count(self) -> int:
        """The number of all connectors and tasks."""
        return len(self.task_counts) + sum(self.task_counts.values())


def _sorted(held: Mapping[str, set[StatusKey]]) -> dict[str, list[StatusKey]]:
    return {
        member_id: sorted(keys, key=lambda key: (isinstance(key, TaskId), str(key)))
        for member_id, keys in held.items()
    }


def _round(connectors: int, members: int) -> tuple[float, float]:
    """The longest rebalance of a group's life, and the time to read and write all its work as
    JSON.
    """
    group = Group(connectors, members)
    rebalances = [*group.settle()]
    group.held.pop(f"member-{members - 1}")
    rebalances += group.settle()
    group.held["member-new"] = set()
    rebalances += group.settle()
    names = [[name, index] for name, count in group.task_counts.items() for index in range(count)]
    began_s = time.process_time()
    json.dumps(json.loads(json.dumps(names)))
    return max(each.seconds for each in rebalances), time.process_time() - began_s


def measure(connectors: int = CONNECTORS, members: int = MEMBERS, rounds: int = ROUNDS) -> Figure:
    """The longest rebalance of a group that fills, loses a member and gains another."""
    found = [_round(connectors, members) for _ in range(rounds)]
    seconds = [each for each, _ in found]
    return Figure(
        "rebalance_core",
        statistics.median(seconds),
        f"s of CPU (the leader's longest of a rebalance, {connectors * TASKS_EACH} tasks of "
        f"{connectors} connectors, {members} members: first, one lost, one more)",
        peer="the tasks' names as JSON, written, read and written",
        peer_value=statistics.median(peer for _, peer in found),
        limit="<= 1 s (a third of the time between heartbeats)",
        samples=seconds,
    )


def figures() -> Iterator[Figure]:
    """The leader's CPU for a rebalance with 10,000 tasks, without services."""
    yield measure()
