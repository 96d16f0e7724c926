"""CoordinatorService over gRPC: decode, submit to the runtime or the store, encode."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any
from urllib.parse import unquote

import grpc.aio

from drover.api.coordinator.v1 import coordinator_service_pb2 as pb
from drover.api.coordinator.v1 import coordinator_service_pb2_grpc as pb_grpc
from drover.clock import Clock
from drover.codec.common import decode_duration, decode_task_id, encode_term
from drover.codec.coordinator import (
    GROUP_STATES,
    decode_assignment,
    decode_leaving_member,
    decode_offset,
    decode_protocol,
    decode_task_offsets,
    encode_commit_result,
    encode_group_description,
    encode_group_page,
    encode_join_outcome,
    encode_leave_result,
    encode_offset,
    encode_sync_outcome,
    encode_watched_group,
)
from drover.codec.group_offsets import (
    decode_group_offset,
    decode_partition,
    encode_group_commit,
    encode_group_offset_deleted,
    encode_group_offset_page,
)
from drover.errors import DroverError, InvalidArgumentError, Violation
from drover.model.claims import ClaimRequest, TaskSet
from drover.model.group import GroupPage
from drover.model.offsets import CommittedOffset, OffsetsChange, TopicPartition
from drover.model.sink_offsets import parse_partition
from drover.rpc.interceptors import ended_by_server, remaining_s
from drover.rpc.log_servicer import LogServicer
from drover_coordinator.bounds import check_counts, fit_in_message
from drover_coordinator.core.groups.events import (
    CallAbandoned,
    CheckMember,
    CommitGroupOffsets,
    DeleteGroup,
    DeleteGroupOffsets,
    DescribeGroup,
    FetchGroupOffsets,
    GroupChanged,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    MemberRemoved,
    MemberStreamBroken,
    SyncGroup,
    WatchEnded,
    WatchOpened,
    WatchStarted,
    member_channel,
    watch_channel,
)
from drover_coordinator.core.groups.failures import fenced_instance, unknown_member
from drover_coordinator.core.groups.listing import page_size
from drover_coordinator.core.groups.validate import (
    check_claim,
    check_commit,
    check_fetch,
    check_group,
    check_list,
    check_offsets_change,
    check_states,
    check_tasks_group,
)
from drover_coordinator.offset_store import OffsetStore
from drover_coordinator.sharding.shards import GroupRuntime, Shards

SERVICE_NAME = "drover.api.coordinator.v1.CoordinatorService"
#: Unread messages of a watch, one for each step of a rebalance; a watch with more is ended.
WATCH_QUEUE_MAX = 256
#: A parked join completes this long before its caller's deadline.
JOIN_MARGIN_S = 0.25

Context = grpc.aio.ServicerContext[Any, Any]


class CoordinatorServicer(LogServicer, pb_grpc.CoordinatorServiceServicer):
    """The service. The proto documents each call.

    Args:
        shards: Find the runtime of each group.
        offsets: Stores claims and committed offsets.
        clock: The clock of the shards.
        tasks_group: The only group whose members may claim tasks; any group if it is empty.
    """

    def __init__(
        self,
        shards: Shards,
        offsets: OffsetStore,
        clock: Clock,
        *,
        tasks_group: str = "",
    ) -> None:
        super().__init__()
        self._tasks_group = tasks_group
        self._shards = shards
        self._offsets = offsets
        self._clock = clock

    # --- membership --------------------------------------------------------------------------

    async def FindCoordinator(
        self, request: pb.FindCoordinatorRequest, context: Context
    ) -> pb.FindCoordinatorResponse:
        """Return the owner of a group; every coordinator knows it from the shared leases."""
        _raise(check_group("FindCoordinator", request.group_id))
        return pb.FindCoordinatorResponse(address=self._shards.owner_of(request.group_id))

    async def JoinGroup(
        self, request: pb.JoinGroupRequest, context: Context
    ) -> pb.JoinGroupResponse:
        """Join a group; the machine parks the call until the generation starts.

        Cancelling the call ends the parking.
        """
        check_counts(request)
        call_id = self.next_call_id()
        instance_id = _instance_id(request)
        new_member_id = f"{instance_id or request.client_id or 'member'}-{uuid.uuid4()}"
        rebalance_timeout_ms = decode_duration(request.rebalance_timeout)
        patience_ms = int(remaining_s(context, JOIN_MARGIN_S) * 1_000)
        event = JoinGroup(
            call_id=call_id,
            group_id=request.group_id,
            member_id=request.member_id,
            new_member_id=new_member_id,
            client_id=request.client_id,
            client_host=_host(context.peer()),
            session_timeout_ms=decode_duration(request.session_timeout),
            rebalance_timeout_ms=rebalance_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=tuple(decode_protocol(each) for each in request.protocols),
            parked_until_ms=self._clock.now_ms() + min(rebalance_timeout_ms, patience_ms),
            instance_id=instance_id,
        )
        parked_id = request.member_id or new_member_id
        abandoned = CallAbandoned(request.group_id, parked_id, call_id)
        return encode_join_outcome(await self._submit(event, on_cancel=abandoned))

    async def SyncGroup(
        self, request: pb.SyncGroupRequest, context: Context
    ) -> pb.SyncGroupResponse:
        """Return a member's assignment; the machine parks the call until it is durable."""
        check_counts(request)
        call_id = self.next_call_id()
        event = SyncGroup(
            call_id=call_id,
            group_id=request.group_id,
            member_id=request.member_id,
            generation=request.generation,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments=tuple(decode_assignment(each) for each in request.assignments),
            instance_id=_instance_id(request),
        )
        abandoned = CallAbandoned(request.group_id, request.member_id, call_id)
        return encode_sync_outcome(await self._submit(event, on_cancel=abandoned))

    async def Heartbeat(
        self, request: pb.HeartbeatRequest, context: Context
    ) -> pb.HeartbeatResponse:
        """Extend a member's session."""
        event = Heartbeat(
            self.next_call_id(),
            request.group_id,
            request.member_id,
            request.generation,
            _instance_id(request),
        )
        if self._shards.is_loading(request.group_id):  # the load restarts all sessions (G1)
            return pb.HeartbeatResponse(rebalance_in_progress=False)
        return pb.HeartbeatResponse(rebalance_in_progress=await self._submit(event))

    async def LeaveGroup(
        self, request: pb.LeaveGroupRequest, context: Context
    ) -> pb.LeaveGroupResponse:
        """Remove members from a group, with one rebalance for all."""
        check_counts(request)
        leaving = tuple(decode_leaving_member(each) for each in request.members)
        event = LeaveGroup(self.next_call_id(), request.group_id, leaving)
        results = await self._submit(event)
        return pb.LeaveGroupResponse(results=[encode_leave_result(each) for each in results])

    async def WatchGroup(
        self, request: pb.WatchGroupRequest, context: Context
    ) -> AsyncIterator[pb.WatchGroupResponse]:
        """Stream changes of a group; its end is reported to the machine."""
        group_id, member_id = request.group_id, request.member_id
        runtime = self._shards.runtime(group_id)
        channel, own = watch_channel(group_id), member_channel(group_id, member_id)
        with runtime.watch(channel, WATCH_QUEUE_MAX, also=[own]) as watcher:
            opened = WatchOpened(self.next_call_id(), group_id, member_id)
            try:
                started: WatchStarted = await self._submit(opened)
            except asyncio.CancelledError:  # the machine may have opened the watch
                _post_watch_end(runtime, opened, by_server=ended_by_server())
                raise
            ended_here = False
            try:
                last_change = started.change
                yield encode_watched_group(started.watched)
                async for message in watcher:
                    assert isinstance(message, GroupChanged | MemberRemoved)
                    if isinstance(message, MemberRemoved):
                        raise _removal(group_id, message)
                    if message.change > last_change:
                        last_change = message.change
                        yield encode_watched_group(message.watched)
            except DroverError:
                ended_here = True
                raise
            finally:
                by_server = ended_here or ended_by_server()
                _post_watch_end(runtime, opened, by_server=by_server)

    async def DescribeGroup(
        self, request: pb.DescribeGroupRequest, context: Context
    ) -> pb.DescribeGroupResponse:
        """Describe one group."""
        event = DescribeGroup(self.next_call_id(), request.group_id)
        return fit_in_message(encode_group_description(await self._submit(event)))

    async def ListGroups(
        self, request: pb.ListGroupsRequest, context: Context
    ) -> pb.ListGroupsResponse:
        """List the groups by page."""
        check_counts(request)
        states = [GROUP_STATES.find(number) for number in request.states]
        _raise(check_states(states))
        event = ListGroups(
            self.next_call_id(),
            states=frozenset(state for state in states if state is not None),
            protocol_types=frozenset(request.protocol_types),
            page_size=request.page_size,
            page_token=request.page_token,
        )
        return encode_group_page(await _list(self._shards, event))

    async def DeleteGroup(
        self, request: pb.DeleteGroupRequest, context: Context
    ) -> pb.DeleteGroupResponse:
        """Delete a group without members."""
        await self._submit(DeleteGroup(self.next_call_id(), request.group_id))
        return pb.DeleteGroupResponse()

    # --- claims and offsets ------------------------------------------------------------------

    async def ClaimTask(
        self, request: pb.ClaimTaskRequest, context: Context
    ) -> pb.ClaimTaskResponse:
        """Claim a task: the machine checks membership, the store grants a higher term."""
        self._shards.runtime(request.group_id)
        task = decode_task_id(request.task)
        _raise(check_claim(request.group_id, request.member_id, task, request.request_id))
        _raise(check_tasks_group(request.group_id, self._tasks_group))
        await self._submit(
            CheckMember(
                self.next_call_id(), request.group_id, request.member_id, request.generation
            )
        )
        term = await self._offsets.claim(
            ClaimRequest(
                task,
                request.generation,
                request.member_id,
                request.request_id,
                request.task_config_generation,
            )
        )
        return pb.ClaimTaskResponse(claim=encode_term(term))

    async def CommitOffsets(
        self, request: pb.CommitOffsetsRequest, context: Context
    ) -> pb.CommitOffsetsResponse:
        """Commit tasks' offsets under their claims; membership is not checked."""
        check_counts(request)
        self._shards.runtime(request.group_id)
        tasks = [decode_task_offsets(each) for each in request.tasks]
        _raise(check_commit(request.group_id, tasks))
        _raise(check_tasks_group(request.group_id, self._tasks_group))
        results = await self._offsets.commit(tasks)
        return pb.CommitOffsetsResponse(results=[encode_commit_result(each) for each in results])

    async def FetchOffsets(
        self, request: pb.FetchOffsetsRequest, context: Context
    ) -> pb.FetchOffsetsResponse:
        """Return a connector's offsets by page."""
        self._shards.runtime(request.group_id)
        _raise(check_fetch(request.group_id, request.connector, request.consumer_group))
        _raise(check_tasks_group(request.group_id, self._tasks_group))
        page, token = await self._offsets.fetch(
            request.connector,
            request.page_token,
            without_positions=request.without_positions,
            consumer_group=request.consumer_group,
            with_marks=request.with_marks,
        )
        return pb.FetchOffsetsResponse(
            offsets=[encode_offset(each) for each in page], next_page_token=token
        )

    async def AlterOffsets(
        self, request: pb.AlterOffsetsRequest, context: Context
    ) -> pb.AlterOffsetsResponse:
        """Write offsets of a connector without tasks."""
        check_counts(request)
        offsets = [decode_offset(each) for each in request.offsets]
        await self._change("AlterOffsets", request, offsets)
        return pb.AlterOffsetsResponse()

    async def DeleteOffsets(
        self, request: pb.DeleteOffsetsRequest, context: Context
    ) -> pb.DeleteOffsetsResponse:
        """Delete a connector's offsets, of the given partitions or of all."""
        check_counts(request)
        offsets = [CommittedOffset(each, None) for each in request.partition_json] or None
        written = _written(request.written_partitions)
        await self._change(
            "DeleteOffsets",
            request,
            offsets,
            without_positions=request.without_positions,
            written=written,
        )
        return pb.DeleteOffsetsResponse()

    async def _change(
        self,
        call: str,
        request: pb.AlterOffsetsRequest | pb.DeleteOffsetsRequest,
        offsets: Sequence[CommittedOffset] | None,
        *,
        without_positions: bool = False,
        written: Sequence[TopicPartition] = (),
    ) -> None:
        """Check membership in the machine; let the store revoke the claims and write."""
        self._shards.runtime(request.group_id)
        group_id, member_id, generation = request.group_id, request.member_id, request.generation
        ids = (group_id, member_id, request.connector, request.consumer_group)
        _raise(check_offsets_change(call, ids, offsets, request.offsets_topic))
        _raise(check_tasks_group(group_id, self._tasks_group))
        await self._submit(CheckMember(self.next_call_id(), group_id, member_id, generation))
        await self._offsets.change(
            OffsetsChange(
                connector=request.connector,
                task_set=TaskSet(generation, request.task_config_generation),
                offsets=offsets,
                consumer_group=request.consumer_group,
                without_positions=without_positions,
                offsets_topic=request.offsets_topic,
                written=written,
            )
        )

    # --- a group's own offsets ---------------------------------------------------------------

    async def CommitGroupOffsets(
        self, request: pb.CommitGroupOffsetsRequest, context: Context
    ) -> pb.CommitGroupOffsetsResponse:
        """Commit a group's offsets, as a member or for a group without members."""
        check_counts(request)
        event = CommitGroupOffsets(
            self.next_call_id(),
            request.group_id,
            request.member_id,
            request.generation,
            tuple(decode_group_offset(each) for each in request.offsets),
            _instance_id(request),
        )
        return encode_group_commit(await self._submit(event))

    async def FetchGroupOffsets(
        self, request: pb.FetchGroupOffsetsRequest, context: Context
    ) -> pb.FetchGroupOffsetsResponse:
        """Return offsets of the given partitions, or of all by page."""
        check_counts(request)
        event = FetchGroupOffsets(
            self.next_call_id(),
            request.group_id,
            tuple(decode_partition(each) for each in request.partitions),
            request.page_size,
            request.page_token,
        )
        return encode_group_offset_page(await self._submit(event))

    async def DeleteGroupOffsets(
        self, request: pb.DeleteGroupOffsetsRequest, context: Context
    ) -> pb.DeleteGroupOffsetsResponse:
        """Delete offsets of topics that no member subscribes to."""
        check_counts(request)
        partitions = tuple(decode_partition(each) for each in request.partitions)
        event = DeleteGroupOffsets(self.next_call_id(), request.group_id, partitions)
        return pb.DeleteGroupOffsetsResponse(
            results=[encode_group_offset_deleted(each) for each in await self._submit(event)]
        )

    # --- helpers -----------------------------------------------------------------------------

    async def _submit(self, event: Any, *, on_cancel: object | None = None) -> Any:
        """Submit a group's event to the runtime of its shard."""
        runtime = self._shards.runtime(event.group_id)
        return await self.submit_to(runtime, event, on_cancel=on_cancel)


def _written(partition_json: Sequence[str]) -> list[TopicPartition]:
    """The topic partitions in ``written_partitions``.

    Raises:
        InvalidArgumentError: INVALID_REQUEST with every violation.
    """
    written, violations = [], []
    for index, each in enumerate(partition_json):
        try:
            written.append(parse_partition(each))
        except ValueError as error:
            violations.append(Violation(f"written_partitions[{index}]", str(error)))
    if violations:
        raise InvalidArgumentError.listing(violations)
    return written


async def _list(shards: Shards, event: ListGroups) -> GroupPage:
    """A page over all shards of this server, merged from one page of each shard."""
    _raise(check_list(event))
    pages: list[Any] = [
        await runtime.submit(event, call_id=event.call_id) for runtime in shards.owned()
    ]
    groups = sorted((g for page in pages for g in page.groups), key=lambda group: group.group_id)
    size = page_size(event.page_size, groups[0].group_id if groups else None)
    more = len(groups) > size or any(page.next_page_token for page in pages)
    token = groups[:size][-1].group_id if more else ""
    return GroupPage(tuple(groups[:size]), token, shards.owners())


def _post_watch_end(runtime: GroupRuntime, opened: WatchOpened, *, by_server: bool) -> None:
    ended = WatchEnded if by_server else MemberStreamBroken
    with contextlib.suppress(DroverError):  # the runtime is closing, and so are its watches
        runtime.post_nowait(ended(opened.group_id, opened.member_id, opened.call_id))


def _raise(error: DroverError | None) -> None:
    if error is not None:
        raise error


def _instance_id(
    request: pb.JoinGroupRequest
    | pb.SyncGroupRequest
    | pb.HeartbeatRequest
    | pb.CommitGroupOffsetsRequest,
) -> str | None:
    return request.instance_id if request.HasField("instance_id") else None


def _removal(group_id: str, message: MemberRemoved) -> DroverError:
    """The error that ends the watch of a removed member."""
    if message.fenced_instance_id is not None:
        return fenced_instance(group_id, message.member_id, message.fenced_instance_id)
    return unknown_member(group_id, message.member_id)


def _host(peer: str) -> str:
    """The host of gRPC's "ipv4:10.0.0.1:4711" or "ipv6:%5B::1%5D:4711"."""
    address = unquote(peer).split(":", 1)[-1]
    return address.rpartition(":")[0].strip("[]") or peer
