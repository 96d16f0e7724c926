"""A stand-in for a Drover worker: it leads the group as its only member, and commits offsets."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from drover.client import CoordinatorClient
from drover.model.group import Joined, MemberAssignment, OfferedProtocol
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommitOutcome, CommittedOffset, TaskOffsets

_SESSION_MS = 60_000
_CALL_S = 30.0


@dataclass(slots=True)
class DroverMember:
    """The one member of a group."""

    coordinator: CoordinatorClient
    group_id: str
    member_id: str = ""
    generation: int = -1
    commits: int = field(default=0)

    async def join(self) -> None:
        """Join; returns once the group is stable."""
        joined: object = None
        while not isinstance(joined, Joined):
            joined = await self.coordinator.join(
                group_id=self.group_id,
                member_id=self.member_id,
                client_id="stand-in",
                session_timeout_ms=_SESSION_MS,
                rebalance_timeout_ms=_SESSION_MS,
                protocol_type="connect",
                protocols=[OfferedProtocol("default", b"")],
                timeout_s=_CALL_S,
            )
            self.member_id = joined.member_id
        self.generation = joined.generation
        await self.coordinator.sync(
            group_id=self.group_id,
            member_id=self.member_id,
            generation=self.generation,
            assignments=[MemberAssignment(self.member_id, b"")],
            timeout_s=_CALL_S,
        )

    async def claim(self, task: TaskId, *, task_config_generation: int) -> Term:
        """Claim the task: no other member can commit for it."""
        return await self.coordinator.claim_task(
            group_id=self.group_id,
            member_id=self.member_id,
            generation=self.generation,
            task=task,
            task_config_generation=task_config_generation,
        )

    async def commit(
        self,
        task: TaskId,
        claim: Term,
        offsets: Sequence[tuple[Mapping[str, object], Mapping[str, object] | None]],
        *,
        metadata: str = "",
    ) -> None:
        """Commit pairs of partition and offset; None removes one."""
        self.commits += 1
        committed = [
            CommittedOffset(_json(partition), None if offset is None else _json(offset), metadata)
            for partition, offset in offsets
        ]
        (result,) = await self.coordinator.commit_offsets(
            group_id=self.group_id,
            tasks=[TaskOffsets(task, claim, committed, number=self.commits)],
        )
        assert result.outcome is CommitOutcome.COMMITTED, result


def _json(value: Mapping[str, object]) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
