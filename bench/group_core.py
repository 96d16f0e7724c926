"""The group core alone, without server, runtime and log; and its memory after ten million
heartbeats.

``python -m bench.group_core COUNT`` is the child whose memory is measured; it prints one line of
JSON.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import psutil

from bench.figure import Figure
from drover.machine import CancelTimer, Complete, Fail, Instruction, Replayed, SetTimer
from drover.model.group import Joined, MemberIdRequired, OfferedProtocol
from drover.runtime.timers import Timers
from drover_coordinator.core.groups.events import Heartbeat, JoinGroup, SyncGroup
from drover_coordinator.core.groups.machine import GroupsMachine
from drover_coordinator.core.groups.settings import GroupSettings

GROUP_COUNT = 10
MEMBERS_EACH = 100
SESSION_MS = 10_000
HEARTBEAT_INTERVAL_MS = 3_000
MEMORY_CALLS = 10_000_000
WARM_UP_CALLS = 1_000_000


class Core:
    """The machine with a manual clock, timers, and a log that discards its records."""

    def __init__(self) -> None:
        self.machine = GroupsMachine(GroupSettings(initial_rebalance_delay_ms=0))
        self.timers = Timers()
        self.now_ms = 0
        self.answers: dict[str, object] = {}
        self._call_count = 0
        self._offset = 0
        self.machine.loaded(0, 0)
        self.members = [
            member for number in range(GROUP_COUNT) for member in self._gather(f"group-{number}")
        ]

    def beat(self, count: int) -> None:
        """Send at least ``count`` heartbeats, member after member, at the members' heartbeat
        interval.
        """
        for first in range(0, count, len(self.members)):
            self.now_ms += HEARTBEAT_INTERVAL_MS
            self._fire()
            self._beat_once(first)

    def _beat_once(self, first: int) -> None:
        handle, now_ms = self.machine.handle, self.now_ms
        for number, (group_id, member_id, generation) in enumerate(self.members, first):
            outcome = handle(Heartbeat(str(number), group_id, member_id, generation), now_ms)
            answer = outcome.instructions[0]
            if not isinstance(answer, Complete) or answer.response is not False:
                raise AssertionError(f"heartbeat {number} was answered {outcome}")

    def _fire(self) -> None:
        while (due := self.timers.pop_due(self.now_ms)) is not None:
            self._handle(due[1])

    def _handle(self, event: object) -> None:
        outcome = self.machine.handle(event, self.now_ms)  # type: ignore[arg-type]
        for record in outcome.records:
            self._carry_out(self.machine.replay(Replayed(self._offset, record)))
            self._offset += 1
        self._carry_out(outcome.instructions)

    def _carry_out(self, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case SetTimer(key, deadline_ms, event):
                    self.timers.set(key, deadline_ms, event)
                case CancelTimer(key):
                    self.timers.cancel(key)
                case Complete(call_id, response):
                    self.answers[call_id] = response
                case Fail(_, error):
                    raise error

    def _gather(self, group_id: str) -> list[tuple[str, str, int]]:
        """Members of a stable group: group, member, generation."""
        ids = [f"{group_id}-member-{number}" for number in range(MEMBERS_EACH)]
        for member_id in ids:
            assert self._join(group_id, member_id, is_new=True) == MemberIdRequired(member_id)
        for member_id in ids:
            self._join(group_id, member_id, is_new=False)
        self._fire()
        joined = [each for each in self.answers.values() if isinstance(each, Joined)]
        for each in joined:
            self._handle(SyncGroup(self._call_id(), group_id, each.member_id, each.generation))
        self.answers.clear()
        return [(group_id, each.member_id, each.generation) for each in joined]

    def _join(self, group_id: str, member_id: str, *, is_new: bool) -> object:
        call_id = self._call_id()
        self._handle(
            JoinGroup(
                call_id=call_id,
                group_id=group_id,
                member_id="" if is_new else member_id,
                new_member_id=member_id,
                client_id="bench",
                client_host="127.0.0.1",
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=60_000,
                protocol_type="connect",
                protocols=(OfferedProtocol("default", b"{}"),),
                parked_until_ms=60_000,
            )
        )
        return self.answers.get(call_id)

    def _call_id(self) -> str:
        self._call_count += 1
        return str(self._call_count)


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident bytes of a process after the warm-up and at the end."""

    warm_bytes: int
    end_bytes: int


def _grow(calls: int) -> Memory:
    core = Core()
    process = psutil.Process()
    core.beat(min(calls, WARM_UP_CALLS))
    warm_bytes = process.memory_info().rss
    core.beat(calls)
    return Memory(warm_bytes, process.memory_info().rss)


def memory(calls: int = MEMORY_CALLS) -> Memory:
    """Measure the memory growth of ``calls`` heartbeats in a separate process."""
    output = subprocess.run(
        [sys.executable, "-m", "bench.group_core", str(calls)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return Memory(**json.loads(output))


def memory_figure(calls: int = MEMORY_CALLS) -> Figure:
    """The growth, compared with the memory before."""
    grown = memory(calls)
    growth = grown.end_bytes - grown.warm_bytes
    return Figure(
        "group_core_memory",
        grown.end_bytes,
        f"bytes (RSS after {calls} heartbeats; {growth} grown)",
        peer="the same process before them",
        peer_value=grown.warm_bytes,
        limit="ratio <= 1.05",
    )


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(_grow(int(sys.argv[1])))) + "\n")
