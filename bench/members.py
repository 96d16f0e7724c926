"""Members that join a group as workers do: join for an id, join, sync, heartbeat."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from google.protobuf.duration_pb2 import Duration

from bench.processes import Stub
from drover.api.coordinator.v1 import coordinator_service_pb2 as pb

#: The metadata that a worker sends, and the assignment that a leader gives it.
METADATA = b"{" + b"m" * 62 + b"}"
ASSIGNMENT = b"{" + b"a" * 126 + b"}"
TIMEOUT = Duration(seconds=300)
CALL_TIMEOUT_S = 120.0
HEARTBEAT_INTERVAL_S = 0.05


@dataclass(slots=True)
class Gathering:
    """``member_count`` members that join one generation of an empty group.

    ``rpc_count`` counts their calls. With an initial delay of 0 the first few may get a generation
    of their own; its leader detects with heartbeats whether they must rejoin.
    """

    stub: Stub
    group_id: str
    member_count: int
    rpc_count: int = 0
    _synced: Counter[int] = field(default_factory=Counter)
    #: by generation: True once all are members of it, False when a newer one will follow
    _outcomes: dict[int, "asyncio.Future[bool]"] = field(default_factory=dict)

    async def run(self) -> list[pb.HeartbeatRequest]:
        """Join all members; returns a heartbeat for each."""
        return list(await asyncio.gather(*(self._member() for _ in range(self.member_count))))

    async def leave(self, beats: list[pb.HeartbeatRequest]) -> None:
        """Remove all members from the group."""
        members = [pb.LeavingMember(member_id=beat.member_id) for beat in beats]
        await self.stub.LeaveGroup(
            pb.LeaveGroupRequest(group_id=self.group_id, members=members), timeout=CALL_TIMEOUT_S
        )

    async def _member(self) -> pb.HeartbeatRequest:
        request = pb.JoinGroupRequest(
            group_id=self.group_id,
            client_id="bench",
            session_timeout=TIMEOUT,
            rebalance_timeout=TIMEOUT,
            protocol_type="connect",
            protocols=[pb.GroupProtocol(name="default", metadata=METADATA)],
        )
        while True:
            joined = await self._join(request)
            if await self._sync(joined) and await self._is_final(joined):
                return _beat(self.group_id, joined)

    async def _join(self, request: pb.JoinGroupRequest) -> pb.JoinGroupResponse.Joined:
        while True:
            self.rpc_count += 1
            answer = await self.stub.JoinGroup(request, timeout=CALL_TIMEOUT_S)
            if answer.HasField("joined"):
                return answer.joined
            if answer.HasField("member_id_required"):
                request.member_id = answer.member_id_required.member_id

    async def _sync(self, joined: pb.JoinGroupResponse.Joined) -> bool:
        self.rpc_count += 1
        request = pb.SyncGroupRequest(
            group_id=self.group_id,
            member_id=joined.member_id,
            generation=joined.generation,
            assignments=[
                pb.MemberAssignment(member_id=each.member_id, assignment=ASSIGNMENT)
                for each in joined.members
            ],
        )
        answer = await self.stub.SyncGroup(request, timeout=CALL_TIMEOUT_S)
        return bool(answer.HasField("synced"))

    async def _is_final(self, joined: pb.JoinGroupResponse.Joined) -> bool:
        outcome = self._outcomes.setdefault(
            joined.generation, asyncio.get_running_loop().create_future()
        )
        self._synced[joined.generation] += 1
        if self._synced[joined.generation] == self.member_count:
            outcome.set_result(True)
        elif joined.leader_id == joined.member_id:
            await self._look_after(_beat(self.group_id, joined), outcome)
        return await asyncio.shield(outcome)

    async def _look_after(self, beat: pb.HeartbeatRequest, outcome: "asyncio.Future[bool]") -> None:
        while not (await asyncio.wait([outcome], timeout=HEARTBEAT_INTERVAL_S))[0]:
            self.rpc_count += 1
            answer = await self.stub.Heartbeat(beat, timeout=CALL_TIMEOUT_S)
            if answer.rebalance_in_progress and not outcome.done():
                outcome.set_result(False)


def _beat(group_id: str, joined: pb.JoinGroupResponse.Joined) -> pb.HeartbeatRequest:
    return pb.HeartbeatRequest(
        group_id=group_id, member_id=joined.member_id, generation=joined.generation
    )
