"""The clients of coordinators: membership, task claims, committed offsets."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterable, Sequence
from contextlib import aclosing, suppress
from typing import Self, cast

import grpc.aio

from drover.api.coordinator.v1 import coordinator_service_pb2 as pb
from drover.api.coordinator.v1 import coordinator_service_pb2_grpc as pb_grpc
from drover.client.calls import CALL_TIMEOUT_S, new_request_id, pages, server_stream, unary
from drover.client.owner_routing import OwnerRoutingChannel
from drover.client.secure import Connect, plaintext
from drover.codec.common import decode_term, encode_duration, encode_task_id
from drover.codec.coordinator import (
    GROUP_STATES,
    decode_commit_result,
    decode_group_description,
    decode_group_page,
    decode_join_outcome,
    decode_leave_result,
    decode_offset,
    decode_sync_outcome,
    decode_watched_group,
    encode_assignment,
    encode_leaving_member,
    encode_offset,
    encode_protocol,
    encode_task_offsets,
)
from drover.codec.group_offsets import (
    decode_group_commit,
    decode_group_offset,
    decode_group_offset_deleted,
    encode_group_offset,
    encode_partition,
)
from drover.errors import Reason, UnavailableError
from drover.model.group import (
    GroupDescription,
    GroupListing,
    GroupPage,
    GroupState,
    JoinOutcome,
    LeaveResult,
    LeavingMember,
    MemberAssignment,
    OfferedProtocol,
    SyncOutcome,
    WatchedGroup,
)
from drover.model.ids import TaskId, Term
from drover.model.offsets import (
    CommitResult,
    CommittedOffset,
    GroupCommit,
    GroupOffset,
    GroupOffsetDeleted,
    OffsetsChange,
    TaskOffsets,
    TopicPartition,
)
from drover.model.sink_offsets import sink_offset

_PAGE_SIZE = 1000
#: The maximum wait for further coordinators' groups after the first response.
_SLOW_COORDINATOR_S = 2.0


class CoordinatorClient:
    """Calls a coordinator over one channel; see ``drover.client`` for timeouts and retries."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = pb_grpc.CoordinatorServiceStub(channel)

    async def find_coordinator(self, group_id: str, *, timeout_s: float = CALL_TIMEOUT_S) -> str:
        """host:port of the server that owns a group."""
        request = pb.FindCoordinatorRequest(group_id=group_id)
        response = await unary(self._stub.FindCoordinator, request, timeout_s=timeout_s, retry=True)
        return response.address

    async def join(
        self,
        *,
        group_id: str,
        member_id: str,
        client_id: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocol_type: str,
        protocols: Sequence[OfferedProtocol],
        instance_id: str | None = None,
        reason: str = "",
        timeout_s: float,
    ) -> JoinOutcome:
        """Join a group or its next generation; parked until the rebalance completes.

        With an ``instance_id`` the member is static: a process that joins without a member id
        replaces the previous process of this instance, which gets FENCED_INSTANCE_ID and must end.

        The call is retried only with a member id or an instance id, since a retried first join of a
        dynamic member could leave a stale member in the group. ``timeout_s`` should be above the
        rebalance timeout; shortly before it the response is RetryJoin.
        """
        request = pb.JoinGroupRequest(
            group_id=group_id,
            member_id=member_id,
            client_id=client_id,
            session_timeout=encode_duration(session_timeout_ms),
            rebalance_timeout=encode_duration(rebalance_timeout_ms),
            protocol_type=protocol_type,
            protocols=[encode_protocol(protocol) for protocol in protocols],
            reason=reason,
            instance_id=instance_id,
        )
        response = await unary(
            self._stub.JoinGroup,
            request,
            timeout_s=timeout_s,
            retry=bool(member_id or instance_id),
        )
        return decode_join_outcome(response)

    async def sync(
        self,
        *,
        group_id: str,
        member_id: str,
        generation: int,
        protocol_type: str = "",
        protocol_name: str = "",
        assignments: Sequence[MemberAssignment] = (),
        instance_id: str | None = None,
        timeout_s: float,
    ) -> SyncOutcome:
        """Get the member's assignment; the leader also sends all assignments. Parked until the
        leader has synced.
        """
        request = pb.SyncGroupRequest(
            group_id=group_id,
            member_id=member_id,
            generation=generation,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[encode_assignment(assignment) for assignment in assignments],
            instance_id=instance_id,
        )
        response = await unary(self._stub.SyncGroup, request, timeout_s=timeout_s, retry=True)
        return decode_sync_outcome(response)

    async def heartbeat(
        self,
        *,
        group_id: str,
        member_id: str,
        generation: int,
        instance_id: str | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> bool:
        """Keep the session alive; returns whether a rebalance is in progress (join again)."""
        request = pb.HeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            instance_id=instance_id,
            generation=generation,
        )
        response = await unary(self._stub.Heartbeat, request, timeout_s=timeout_s, retry=True)
        return response.rebalance_in_progress

    async def leave(
        self,
        *,
        group_id: str,
        members: Sequence[LeavingMember],
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> list[LeaveResult]:
        """Remove members; returns a result for each, in order."""
        request = pb.LeaveGroupRequest(
            group_id=group_id, members=[encode_leaving_member(member) for member in members]
        )
        response = await unary(self._stub.LeaveGroup, request, timeout_s=timeout_s, retry=True)
        return [decode_leave_result(result) for result in response.results]

    async def watch_group(
        self, *, group_id: str, member_id: str
    ) -> AsyncGenerator[WatchedGroup, None]:
        """Yield a group's changes until the stream breaks; close it to stop.

        The coordinator considers the member's process alive while the stream is open.
        """
        request = pb.WatchGroupRequest(group_id=group_id, member_id=member_id)
        async with aclosing(server_stream(self._stub.WatchGroup, request)) as messages:
            async for message in messages:
                yield decode_watched_group(message)

    async def describe(
        self, group_id: str, *, timeout_s: float = CALL_TIMEOUT_S
    ) -> GroupDescription:
        """A group's state and members; an unknown group is DEAD."""
        request = pb.DescribeGroupRequest(group_id=group_id)
        response = await unary(self._stub.DescribeGroup, request, timeout_s=timeout_s, retry=True)
        return decode_group_description(response)

    async def list_groups(
        self,
        *,
        states: Sequence[GroupState] = (),
        protocol_types: Sequence[str] = (),
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> list[GroupListing]:
        """The matching groups by group id, from all pages; ``timeout_s`` applies to each page.

        With several coordinators, the list has the groups of all of them. Unreachable coordinators
        are skipped, since the others take over their groups.

        Raises:
            DroverError: A coordinator rejected the call, or no coordinator can be reached.
        """
        group_pages = await self.group_pages(states, protocol_types, timeout_s)
        groups = {group.group_id: group for page in group_pages for group in page.groups}
        return [groups[group_id] for group_id in sorted(groups)]

    async def group_pages(
        self, states: Sequence[GroupState], protocol_types: Sequence[str], timeout_s: float
    ) -> list[GroupPage]:
        """The pages of ``list_groups``; at least one."""

        async def fetch(token: str) -> pb.ListGroupsResponse:
            request = pb.ListGroupsRequest(
                states=[GROUP_STATES.encode(state) for state in states],
                protocol_types=protocol_types,
                page_size=_PAGE_SIZE,
                page_token=token,
            )
            return await unary(self._stub.ListGroups, request, timeout_s=timeout_s, retry=True)

        return [decode_group_page(page) async for page in pages(fetch)]

    async def delete_group(self, group_id: str, *, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Remove a group without members, and its offsets."""
        request = pb.DeleteGroupRequest(group_id=group_id)
        await unary(self._stub.DeleteGroup, request, timeout_s=timeout_s, retry=True)

    async def commit_group_offsets(
        self,
        *,
        group_id: str,
        offsets: Sequence[GroupOffset],
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> GroupCommit:
        """Commit a group's positions, as a member or to a group without members."""
        request = pb.CommitGroupOffsetsRequest(
            group_id=group_id,
            member_id=member_id,
            instance_id=instance_id,
            generation=generation,
            offsets=[encode_group_offset(offset) for offset in offsets],
        )
        response = await unary(
            self._stub.CommitGroupOffsets, request, timeout_s=timeout_s, retry=True
        )
        return decode_group_commit(response)

    async def fetch_group_offsets(
        self,
        *,
        group_id: str,
        partitions: Sequence[TopicPartition] = (),
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> list[GroupOffset]:
        """A group's positions in ``partitions``, -1 for partitions without a committed position.

        Without ``partitions``, all committed positions. ``timeout_s`` applies to each page.
        """

        async def fetch(token: str) -> pb.FetchGroupOffsetsResponse:
            request = pb.FetchGroupOffsetsRequest(
                group_id=group_id,
                partitions=[encode_partition(partition) for partition in partitions],
                page_token=token,
            )
            return await unary(
                self._stub.FetchGroupOffsets, request, timeout_s=timeout_s, retry=True
            )

        return [
            decode_group_offset(offset) async for page in pages(fetch) for offset in page.offsets
        ]

    async def delete_group_offsets(
        self,
        *,
        group_id: str,
        partitions: Sequence[TopicPartition],
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> list[GroupOffsetDeleted]:
        """Remove a group's positions in partitions that no member consumes; returns a result for
        each, in order.
        """
        request = pb.DeleteGroupOffsetsRequest(
            group_id=group_id, partitions=[encode_partition(each) for each in partitions]
        )
        response = await unary(
            self._stub.DeleteGroupOffsets, request, timeout_s=timeout_s, retry=True
        )
        return [decode_group_offset_deleted(result) for result in response.results]

    async def claim_task(
        self,
        *,
        group_id: str,
        member_id: str,
        generation: int,
        task: TaskId,
        task_config_generation: int,
        request_id: str = "",
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> Term:
        """Claim a task as its only committer; earlier claims are fenced.

        Use the same ``request_id`` to repeat a claim after a lost response; by default it is
        generated here.
        """
        request = pb.ClaimTaskRequest(
            group_id=group_id,
            member_id=member_id,
            generation=generation,
            task=encode_task_id(task),
            task_config_generation=task_config_generation,
            request_id=request_id or new_request_id(),
        )
        response = await unary(self._stub.ClaimTask, request, timeout_s=timeout_s, retry=True)
        return decode_term(response.claim)

    async def commit_offsets(
        self,
        *,
        group_id: str,
        tasks: Sequence[TaskOffsets],
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> list[CommitResult]:
        """Commit offsets of tasks, each under its claim; returns a result for each, in order."""
        request = pb.CommitOffsetsRequest(
            group_id=group_id, tasks=[encode_task_offsets(offsets) for offsets in tasks]
        )
        response = await unary(self._stub.CommitOffsets, request, timeout_s=timeout_s, retry=True)
        return [decode_commit_result(result) for result in response.results]

    async def fetch_offsets(
        self,
        *,
        group_id: str,
        connector: str,
        without_positions: bool = False,
        consumer_group: str = "",
        with_marks: bool = False,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> list[CommittedOffset]:
        """A connector's committed offsets, from all pages; ``timeout_s`` applies to each page.

        On Kafka they include a sink's positions in its consumer group, unless
        ``without_positions``. The default of ``consumer_group`` is the connector's default group.
        ``with_marks`` adds marks of missing sink offsets, without an offset (see ``OutputMark``).
        """

        async def fetch(token: str) -> pb.FetchOffsetsResponse:
            request = pb.FetchOffsetsRequest(
                group_id=group_id,
                connector=connector,
                page_token=token,
                without_positions=without_positions,
                consumer_group=consumer_group,
                with_marks=with_marks,
            )
            return await unary(self._stub.FetchOffsets, request, timeout_s=timeout_s, retry=True)

        return [decode_offset(offset) async for page in pages(fetch) for offset in page.offsets]

    async def change_offsets(
        self,
        *,
        group_id: str,
        member_id: str,
        change: OffsetsChange,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> None:
        """Write or remove offsets of a connector without tasks; revokes its tasks' claims."""
        generation, number = change.task_set
        if change.offsets is None:
            deletion = pb.DeleteOffsetsRequest(
                group_id=group_id,
                connector=change.connector,
                member_id=member_id,
                generation=generation,
                task_config_generation=number,
                consumer_group=change.consumer_group,
                without_positions=change.without_positions,
                offsets_topic=change.offsets_topic,
                written_partitions=[
                    sink_offset(each, None).partition_json for each in change.written
                ],
            )
            await unary(self._stub.DeleteOffsets, deletion, timeout_s=timeout_s, retry=True)
            return
        request = pb.AlterOffsetsRequest(
            group_id=group_id,
            member_id=member_id,
            generation=generation,
            connector=change.connector,
            task_config_generation=number,
            offsets=[encode_offset(offset) for offset in change.offsets],
            consumer_group=change.consumer_group,
            offsets_topic=change.offsets_topic,
        )
        await unary(self._stub.AlterOffsets, request, timeout_s=timeout_s, retry=True)


class CoordinatorsClient(CoordinatorClient):
    """Calls several coordinators that share the groups: each call goes to the group's owner.

    It follows a group to its new owner; see ``OwnerRoutingChannel``. An async context manager.

    Args:
        addresses: host:port of some or all coordinators, at least one.
        connect: Opens a channel to a coordinator.
    """

    def __init__(self, addresses: Sequence[str], *, connect: Connect = plaintext) -> None:
        self._routing = OwnerRoutingChannel(addresses, connect=connect)
        super().__init__(cast("grpc.aio.Channel", self._routing))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection."""
        await self._routing.close()

    def direct(self, address: str) -> grpc.aio.Channel:
        """The channel to one coordinator, for calls about the coordinator itself."""
        return self._routing.direct(address)

    async def group_pages(
        self, states: Sequence[GroupState], protocol_types: Sequence[str], timeout_s: float
    ) -> list[GroupPage]:
        """The pages of all coordinators, including coordinators that only the others know."""

        def fetch(address: str) -> Coroutine[None, None, list[GroupPage]]:
            client = CoordinatorClient(self.direct(address))
            return client.group_pages(states, protocol_types, timeout_s)

        configured = set(self._routing.addresses)
        group_pages = await _first_responses([fetch(address) for address in configured], timeout_s)
        others = {address for page in group_pages for address in page.coordinators} - configured
        if others:
            with suppress(UnavailableError):
                group_pages += await _first_responses(
                    [fetch(address) for address in others], timeout_s
                )
        return group_pages


async def _first_responses(
    calls: Iterable[Coroutine[None, None, list[GroupPage]]], timeout_s: float
) -> list[GroupPage]:
    """The pages of calls that end within ``_SLOW_COORDINATOR_S`` after the first one."""
    lists = [asyncio.ensure_future(call) for call in calls]
    try:
        await asyncio.wait(lists, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait(lists, timeout=min(_SLOW_COORDINATOR_S, timeout_s))
        group_pages: list[GroupPage] = []
        unavailable: UnavailableError | None = None
        for each in lists:
            try:
                group_pages += _result_of(each)
            except UnavailableError as error:
                unavailable = error
        if unavailable is not None and not group_pages:
            raise unavailable
        return group_pages
    finally:
        for each in lists:
            each.cancel()
        await asyncio.gather(*lists, return_exceptions=True)


def _result_of(task: "asyncio.Future[list[GroupPage]]") -> list[GroupPage]:
    if not task.done():
        raise UnavailableError(Reason.SERVICE_UNREACHABLE, "a coordinator did not respond in time")
    return task.result()
