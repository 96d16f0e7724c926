"""Members of a group over real gRPC, and a coordinator in this process."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Self

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from grpc_health.v1 import health_pb2, health_pb2_grpc

from drover.api.coordinator.v1 import coordinator_service_pb2 as pb
from drover.client import CoordinatorClient, channel
from drover.errors import DroverError, NotFoundError
from drover.model.group import (
    Joined,
    JoinOutcome,
    MemberAssignment,
    MemberIdRequired,
    OfferedProtocol,
    RetryJoin,
    Synced,
    WatchedGroup,
)
from drover.model.ids import TaskId, Term
from drover.rpc.status import from_rpc_error
from drover_coordinator.__main__ import serve
from drover_coordinator.settings import CoordinatorSettings
from tests.support.addresses import free_address
from tests.support.waiting import wait_until_async

GROUP = "workers"
CALL_S = 30.0


class RunningCoordinator:
    """A coordinator on a directory that can be started, stopped and restarted at the same
    address.
    """

    def __init__(self, directory: Path, **settings: object) -> None:
        self._directory = directory
        self._settings = settings
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.address = free_address()

    async def start(self) -> None:
        """Start it; returns once its health check is SERVING."""
        addresses: list[str] = []
        settings = CoordinatorSettings(
            coordinator_listen=self.address,
            **{  # type: ignore[arg-type]
                "storage_url": f"sqlite://{self._directory}",
                "initial_rebalance_delay_ms": 50,
                **self._settings,
            },
        )
        self._stopping = asyncio.Event()
        task = asyncio.create_task(
            serve(settings, self._stopping, on_bound=addresses.append), name="coordinator"
        )
        self._task = task
        await wait_until_async(lambda: task.done() or addresses)
        if task.done():
            await task
        self.address = addresses[0]
        await wait_until_async(self._serves_or_stopped, describe="the coordinator serves")
        if task.done():
            await task

    async def _serves_or_stopped(self) -> bool:
        return self._task is None or self._task.done() or await self.serves()

    async def serves(self) -> bool:
        """Whether its health check is SERVING."""
        async with channel(self.address) as connection:
            stub: Any = health_pb2_grpc.HealthStub(connection)
            try:
                answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=CALL_S)
            except grpc.aio.AioRpcError:
                return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    async def stop(self) -> None:
        """Drain and stop."""
        self._stopping.set()
        if self._task is not None:
            await self._task

    @asynccontextmanager
    async def client(self) -> AsyncIterator[CoordinatorClient]:
        """A client on a new connection."""
        async with channel(self.address) as connection:
            yield CoordinatorClient(connection)


def join_request(**changes: Any) -> pb.JoinGroupRequest:
    """A join that is good but for the changes."""
    good: dict[str, Any] = {
        "group_id": "odd",
        "client_id": "c",
        "session_timeout": Duration(seconds=10),
        "rebalance_timeout": Duration(seconds=60),
        "protocol_type": "connect",
        "protocols": [pb.GroupProtocol(name="default", metadata=b"x")],
    }
    return pb.JoinGroupRequest(**{**good, **changes})


async def failure(call: Awaitable[Any]) -> DroverError:
    """The error that a raw call ends with, fit for a caller to read."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert "Traceback" not in (caught.value.details() or "")
    error = from_rpc_error(caught.value)
    assert error.code != "INTERNAL"
    assert len(error.message) <= 1_100
    return error


class GroupMember:
    """One member: its own connection, its watch, and its view of the group."""

    def __init__(
        self,
        address: str,
        name: str,
        *,
        instance_id: str | None = None,
        group_id: str = GROUP,
        **options: int,
    ) -> None:
        self.name = name
        self.group_id = group_id
        self.instance_id = instance_id
        self.member_id = ""
        self.joined: Joined | None = None
        self.seen: list[WatchedGroup] = []
        self.watch_error: DroverError | None = None
        self._address = address
        self._session_ms = options.get("session_ms", 600_000)
        self._rebalance_ms = options.get("rebalance_ms", 60_000)
        self._stack = AsyncExitStack()
        self._watching: asyncio.Task[None] | None = None
        self.client: CoordinatorClient

    async def __aenter__(self) -> Self:
        connection = await self._stack.enter_async_context(channel(self._address))
        self.client = CoordinatorClient(connection)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.vanish()

    async def vanish(self) -> None:
        """Close the connection without leaving, as a killed process does."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        await self._stack.aclose()

    async def join(self, timeout_s: float = CALL_S) -> Joined:
        """Join; retry until it is a member of a generation."""
        while True:
            try:
                answer = await self._join_once(timeout_s)
            except NotFoundError:
                # an unused member id is lost when the group moves, as after a stall
                if self.joined is not None or not self.member_id:
                    raise
                self.member_id = ""
                continue
            match answer:
                case Joined(member_id=member_id):
                    self.member_id = member_id
                    self.joined = answer
                    return answer
                case MemberIdRequired(member_id) | RetryJoin(member_id):
                    self.member_id = member_id

    async def _join_once(self, timeout_s: float) -> JoinOutcome:
        return await self.client.join(
            group_id=self.group_id,
            member_id=self.member_id,
            client_id=self.name,
            session_timeout_ms=self._session_ms,
            rebalance_timeout_ms=self._rebalance_ms,
            protocol_type="connect",
            protocols=[OfferedProtocol("default", self.name.encode())],
            instance_id=self.instance_id,
            timeout_s=timeout_s,
        )

    @property
    def leads(self) -> bool:
        """Whether it leads the generation that it joined."""
        return self.joined is not None and self.joined.leader_id == self.member_id

    async def sync(self) -> Synced:
        """Sync; the leader sends an assignment for each member."""
        assert self.joined is not None
        answer = await self.client.sync(
            group_id=self.group_id,
            member_id=self.member_id,
            generation=self.joined.generation,
            assignments=[
                MemberAssignment(each.member_id, b"for " + each.metadata)
                for each in self.joined.members
            ],
            instance_id=self.instance_id,
            timeout_s=CALL_S,
        )
        assert isinstance(answer, Synced)
        return answer

    async def heartbeat(self) -> bool:
        """Send a heartbeat; returns whether a rebalance is under way."""
        assert self.joined is not None
        return await self.client.heartbeat(
            group_id=self.group_id,
            member_id=self.member_id,
            generation=self.joined.generation,
            instance_id=self.instance_id,
            timeout_s=CALL_S,
        )

    async def claim(self, task: TaskId, **changes: Any) -> Term:
        """Claim a task of its generation."""
        return await self.client.claim_task(
            **{
                "group_id": self.group_id,
                "member_id": self.member_id,
                "generation": self.joined.generation if self.joined else 0,
                "task": task,
                "task_config_generation": 1,
                **changes,
            }
        )

    async def wait_until_rejoin_needed(self) -> None:
        """Wait until the watch reports that this member must rejoin."""
        await self.wait_until(lambda: self.seen[-1].rejoin_needed)

    async def wait_until_watch_ended(self) -> None:
        """Wait until the watch broke or was ended."""
        await self.wait_until(lambda: self.watch_error is not None)

    async def watch(self) -> None:
        """Keep a watch open; returns after its first message."""
        begun = len(self.seen)

        async def follow() -> None:
            try:
                watching = self.client.watch_group(group_id=self.group_id, member_id=self.member_id)
                async for watched in watching:
                    self.seen.append(watched)
            except DroverError as error:
                self.watch_error = error

        self._watching = asyncio.create_task(follow(), name=f"watch of {self.name}")
        await self.wait_until(lambda: len(self.seen) > begun)

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition on this member's view."""
        await wait_until_async(condition, describe=lambda: (self.seen, self.watch_error))


async def form_group(*members: GroupMember) -> None:
    """Join, sync and watch with all members; the group is then stable."""
    await asyncio.gather(*(each.join() for each in members))
    generation = max(each.joined.generation for each in members if each.joined)
    while any(each.joined is None or each.joined.generation < generation for each in members):
        await asyncio.gather(*(each.join() for each in members))
        generation = max(each.joined.generation for each in members if each.joined)
    await asyncio.gather(*(each.sync() for each in members))
    await asyncio.gather(*(each.watch() for each in members))
