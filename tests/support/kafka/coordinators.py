"""Coordinators on Kafka: settings for in-process ones and for separate processes."""

import json
from collections.abc import Mapping
from typing import Any

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from drover.client import channel
from drover.model.ids import TaskId
from drover.model.offsets import CommitResult, CommittedOffset, TaskOffsets
from drover.rpc.server import STORAGE_HEALTH
from tests.support.group_members import GroupMember
from tests.support.kafka.clients import CALL_TIMEOUT_S


def kafka_settings(bootstrap: str, prefix: str, **others: object) -> dict[str, Any]:
    """A coordinator's settings with the test's own names and few partitions."""
    return {
        "storage_url": f"kafka://{bootstrap}",
        "group_id": f"{prefix}workers",
        "config_storage_topic": f"{prefix}configs",
        "offset_storage_topic": f"{prefix}offsets",
        "status_storage_topic": f"{prefix}statuses",
        "control_storage_topic": f"{prefix}control",
        "offset_storage_partitions": 3,
        **others,
    }


def as_environment(settings: Mapping[str, object]) -> dict[str, str]:
    """The same settings as environment variables."""
    return {
        f"DROVER_{name.upper()}": value if isinstance(value, str) else json.dumps(value)
        for name, value in settings.items()
    }


async def claim(member: GroupMember, task: TaskId) -> Any:
    """Claim a task for a member."""
    assert member.joined is not None
    return await member.client.claim_task(
        group_id=member.group_id,
        member_id=member.member_id,
        generation=member.joined.generation,
        task=task,
        task_config_generation=0,
        timeout_s=30,
    )


async def commit(
    member: GroupMember, task: TaskId, claim: Any, position: int, *, number: int = 0
) -> CommitResult:
    """Commit the position of a file."""
    offset = CommittedOffset('{"file":"f"}', json.dumps({"at": position}))
    [result] = await member.client.commit_offsets(
        group_id=member.group_id,
        tasks=[TaskOffsets(task, claim, [offset], number)],
        timeout_s=30,
    )
    return result


async def committed(member: GroupMember, task: TaskId) -> int | None:
    """The committed position."""
    found = await member.client.fetch_offsets(
        group_id=member.group_id, connector=task.connector, timeout_s=30
    )
    positions = [json.loads(each.offset_json or "null")["at"] for each in found]
    return positions[0] if positions else None


async def health(address: str, service: str = STORAGE_HEALTH) -> str:
    """A service's health status; UNKNOWN without a response."""
    async with channel(address) as connection:
        stub: Any = health_pb2_grpc.HealthStub(connection)
        try:
            answer = await stub.Check(
                health_pb2.HealthCheckRequest(service=service), timeout=CALL_TIMEOUT_S
            )
        except grpc.aio.AioRpcError:
            return "UNKNOWN"
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))
