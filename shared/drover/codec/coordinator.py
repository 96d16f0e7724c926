"""Codecs of the coordinator: group membership, task claims, committed offsets."""

from drover.api.coordinator.v1 import coordinator_service_pb2 as pb
from drover.codec.common import (
    EnumCodec,
    decode_duration,
    decode_task_id,
    decode_term,
    decode_timestamp,
    encode_duration,
    encode_task_id,
    encode_term,
    encode_timestamp,
    invalid_field,
)
from drover.model.group import (
    GroupDescription,
    GroupListing,
    GroupMember,
    GroupPage,
    GroupState,
    Joined,
    JoinedMember,
    JoinOutcome,
    LeaveOutcome,
    LeaveResult,
    LeavingMember,
    MemberAssignment,
    MemberIdRequired,
    OfferedProtocol,
    RebalanceInProgress,
    RetryJoin,
    Synced,
    SyncOutcome,
    WatchedGroup,
)
from drover.model.offsets import CommitOutcome, CommitResult, CommittedOffset, TaskOffsets

GROUP_STATES = EnumCodec(pb.GroupState, "GROUP_STATE_", GroupState)
LEAVE_OUTCOMES = EnumCodec(pb.LeaveOutcome, "LEAVE_OUTCOME_", LeaveOutcome)
COMMIT_OUTCOMES = EnumCodec(pb.CommitOutcome, "COMMIT_OUTCOME_", CommitOutcome)


def _decode_state(number: int) -> GroupState:
    """As model; DEAD for an unknown state, as for an unknown group."""
    return GROUP_STATES.decode_response(number, GroupState.DEAD)


def encode_protocol(protocol: OfferedProtocol) -> pb.GroupProtocol:
    """As proto."""
    return pb.GroupProtocol(name=protocol.name, metadata=protocol.metadata)


def decode_protocol(message: pb.GroupProtocol) -> OfferedProtocol:
    """As model."""
    return OfferedProtocol(message.name, message.metadata)


def encode_join_outcome(outcome: JoinOutcome) -> pb.JoinGroupResponse:
    """As proto."""
    match outcome:
        case Joined():
            return pb.JoinGroupResponse(
                joined=pb.JoinGroupResponse.Joined(
                    generation=outcome.generation,
                    member_id=outcome.member_id,
                    leader_id=outcome.leader_id,
                    protocol_type=outcome.protocol_type,
                    protocol_name=outcome.protocol_name,
                    members=[
                        pb.JoinedMember(
                            member_id=member.member_id,
                            instance_id=member.instance_id,
                            metadata=member.metadata,
                        )
                        for member in outcome.members
                    ],
                    skip_assignment=outcome.skip_assignment,
                    disconnected_member_ids=outcome.disconnected_member_ids,
                )
            )
        case MemberIdRequired(member_id):
            return pb.JoinGroupResponse(
                member_id_required=pb.JoinGroupResponse.MemberIdRequired(member_id=member_id)
            )
        case RetryJoin(member_id):
            return pb.JoinGroupResponse(
                retry_join=pb.JoinGroupResponse.RetryJoin(member_id=member_id)
            )


def decode_join_outcome(message: pb.JoinGroupResponse) -> JoinOutcome:
    """As model."""
    match message.WhichOneof("outcome"):
        case "joined":
            joined = message.joined
            return Joined(
                generation=joined.generation,
                member_id=joined.member_id,
                leader_id=joined.leader_id,
                protocol_type=joined.protocol_type,
                protocol_name=joined.protocol_name,
                members=tuple(
                    JoinedMember(
                        member.member_id,
                        member.metadata,
                        member.instance_id if member.HasField("instance_id") else None,
                    )
                    for member in joined.members
                ),
                skip_assignment=joined.skip_assignment,
                disconnected_member_ids=tuple(joined.disconnected_member_ids),
            )
        case "member_id_required":
            return MemberIdRequired(message.member_id_required.member_id)
        case "retry_join":
            return RetryJoin(message.retry_join.member_id)
        case _:
            raise invalid_field("outcome", "not set")


def encode_assignment(assignment: MemberAssignment) -> pb.MemberAssignment:
    """As proto."""
    return pb.MemberAssignment(member_id=assignment.member_id, assignment=assignment.assignment)


def decode_assignment(message: pb.MemberAssignment) -> MemberAssignment:
    """As model."""
    return MemberAssignment(message.member_id, message.assignment)


def encode_sync_outcome(outcome: SyncOutcome) -> pb.SyncGroupResponse:
    """As proto."""
    match outcome:
        case Synced():
            return pb.SyncGroupResponse(
                synced=pb.SyncGroupResponse.Synced(
                    assignment=outcome.assignment,
                    protocol_type=outcome.protocol_type,
                    protocol_name=outcome.protocol_name,
                )
            )
        case RebalanceInProgress():
            return pb.SyncGroupResponse(
                rebalance_in_progress=pb.SyncGroupResponse.RebalanceInProgress()
            )


def decode_sync_outcome(message: pb.SyncGroupResponse) -> SyncOutcome:
    """As model."""
    match message.WhichOneof("outcome"):
        case "synced":
            synced = message.synced
            return Synced(synced.assignment, synced.protocol_type, synced.protocol_name)
        case "rebalance_in_progress":
            return RebalanceInProgress()
        case _:
            raise invalid_field("outcome", "not set")


def encode_leaving_member(member: LeavingMember) -> pb.LeavingMember:
    """As proto."""
    return pb.LeavingMember(
        member_id=member.member_id, instance_id=member.instance_id, reason=member.reason
    )


def decode_leaving_member(message: pb.LeavingMember) -> LeavingMember:
    """As model."""
    instance_id = message.instance_id if message.HasField("instance_id") else None
    return LeavingMember(message.member_id, instance_id, message.reason)


def encode_leave_result(result: LeaveResult) -> pb.LeaveGroupResponse.Result:
    """As proto."""
    return pb.LeaveGroupResponse.Result(
        member_id=result.member_id,
        instance_id=result.instance_id,
        outcome=LEAVE_OUTCOMES.encode(result.outcome),
    )


def decode_leave_result(message: pb.LeaveGroupResponse.Result) -> LeaveResult:
    """As model; an unknown outcome is decoded as a failure."""
    return LeaveResult(
        message.member_id,
        LEAVE_OUTCOMES.decode_response(message.outcome, LeaveOutcome.UNKNOWN_MEMBER_ID),
        message.instance_id if message.HasField("instance_id") else None,
    )


def encode_watched_group(watched: WatchedGroup) -> pb.WatchGroupResponse:
    """As proto."""
    return pb.WatchGroupResponse(
        created=watched.created,
        state=GROUP_STATES.encode(watched.state),
        generation=watched.generation,
        rejoin_needed=watched.rejoin_needed,
    )


def decode_watched_group(message: pb.WatchGroupResponse) -> WatchedGroup:
    """As model."""
    return WatchedGroup(
        message.created,
        _decode_state(message.state),
        message.generation,
        message.rejoin_needed,
    )


def encode_group_member(member: GroupMember) -> pb.GroupMember:
    """As proto."""
    return pb.GroupMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        metadata=member.metadata,
        assignment=member.assignment,
        session_timeout=encode_duration(member.session_timeout_ms),
        rebalance_timeout=encode_duration(member.rebalance_timeout_ms),
    )


def decode_group_member(message: pb.GroupMember) -> GroupMember:
    """As model."""
    return GroupMember(
        member_id=message.member_id,
        client_id=message.client_id,
        client_host=message.client_host,
        session_timeout_ms=decode_duration(message.session_timeout),
        rebalance_timeout_ms=decode_duration(message.rebalance_timeout),
        metadata=message.metadata,
        assignment=message.assignment,
        instance_id=message.instance_id if message.HasField("instance_id") else None,
    )


def encode_group_description(group: GroupDescription) -> pb.DescribeGroupResponse:
    """As proto."""
    return pb.DescribeGroupResponse(
        group_id=group.group_id,
        state=GROUP_STATES.encode(group.state),
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        generation=group.generation,
        leader_id=group.leader_id,
        members=[encode_group_member(member) for member in group.members],
        state_change_time=encode_timestamp(group.state_change_time_ms),
        details_omitted=group.details_omitted,
    )


def decode_group_description(message: pb.DescribeGroupResponse) -> GroupDescription:
    """As model."""
    return GroupDescription(
        group_id=message.group_id,
        state=_decode_state(message.state),
        protocol_type=message.protocol_type,
        protocol_name=message.protocol_name,
        generation=message.generation,
        leader_id=message.leader_id,
        members=tuple(decode_group_member(member) for member in message.members),
        state_change_time_ms=decode_timestamp(message.state_change_time),
        details_omitted=message.details_omitted,
    )


def encode_group_page(page: GroupPage) -> pb.ListGroupsResponse:
    """As proto."""
    return pb.ListGroupsResponse(
        groups=[
            pb.ListGroupsResponse.Group(
                group_id=group.group_id,
                state=GROUP_STATES.encode(group.state),
                protocol_type=group.protocol_type,
                member_count=group.member_count,
                generation=group.generation,
            )
            for group in page.groups
        ],
        next_page_token=page.next_page_token,
        coordinators=page.coordinators,
    )


def decode_group_page(message: pb.ListGroupsResponse) -> GroupPage:
    """As model."""
    return GroupPage(
        tuple(
            GroupListing(
                group.group_id,
                _decode_state(group.state),
                group.protocol_type,
                group.member_count,
                group.generation,
            )
            for group in message.groups
        ),
        message.next_page_token,
        tuple(message.coordinators),
    )


def encode_offset(offset: CommittedOffset) -> pb.CommittedOffset:
    """As proto."""
    return pb.CommittedOffset(
        partition_json=offset.partition_json,
        offset_json=offset.offset_json,
        metadata=offset.metadata,
    )


def decode_offset(message: pb.CommittedOffset) -> CommittedOffset:
    """As model; the JSON is not parsed here."""
    offset_json = message.offset_json if message.HasField("offset_json") else None
    return CommittedOffset(message.partition_json, offset_json, message.metadata)


def encode_task_offsets(offsets: TaskOffsets) -> pb.TaskOffsets:
    """As proto."""
    return pb.TaskOffsets(
        task=encode_task_id(offsets.task),
        claim=encode_term(offsets.claim),
        offsets=[encode_offset(offset) for offset in offsets.offsets],
        number=offsets.number,
        consumer_group=offsets.consumer_group,
        own_producer=offsets.own_producer,
        refresh_marks=offsets.refreshes_marks,
    )


def decode_task_offsets(message: pb.TaskOffsets) -> TaskOffsets:
    """As model."""
    return TaskOffsets(
        decode_task_id(message.task),
        decode_term(message.claim),
        tuple(decode_offset(offset) for offset in message.offsets),
        message.number,
        message.consumer_group,
        message.own_producer,
        message.refresh_marks,
    )


def encode_commit_result(result: CommitResult) -> pb.CommitOffsetsResponse.Result:
    """As proto."""
    return pb.CommitOffsetsResponse.Result(
        task=encode_task_id(result.task),
        outcome=COMMIT_OUTCOMES.encode(result.outcome),
        message=result.message,
    )


def decode_commit_result(message: pb.CommitOffsetsResponse.Result) -> CommitResult:
    """As model."""
    return CommitResult(
        decode_task_id(message.task),
        COMMIT_OUTCOMES.decode_response(message.outcome, CommitOutcome.INVALID),
        message.message,
    )
