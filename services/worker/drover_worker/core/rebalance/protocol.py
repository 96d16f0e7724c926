"""The metadata and assignments that workers exchange through the group coordinator.

They are opaque to the coordinator: compact JSON with a version. Decoding ignores unknown fields, so
a later version may add some.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from drover.errors import InvalidArgumentError, Reason
from drover.model.ids import TaskId
from drover.model.status import StatusKey

#: The kind of group that workers form.
PROTOCOL_TYPE = "connect"

_VERSION = 0
#: Stands for the connector object among a connector's task indexes.
_CONNECTOR_ITSELF = -1


class AssignmentError(IntEnum):
    """Why an assignment carries no work."""

    #: The assignment is valid, even if it is empty.
    NO_ERROR = 0
    #: The leader has read less of the config log than some member: read on, then rejoin.
    CONFIG_MISMATCH = 1


@dataclass(frozen=True, slots=True)
class MemberMetadata:
    """What a worker sends with its join.

    ``config_offset`` is the end of the config log as far as the worker has read it.
    ``internal_url`` is where the other workers call it; empty for a worker that names none, which
    is called at ``worker_url``.
    """

    worker_url: str
    config_offset: int
    internal_url: str = ""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The connectors and tasks of one worker in one generation.

    ``config_offset`` is how far the leader had read the config log when it assigned (after
    CONFIG_MISMATCH: how far the furthest member had). ``leader_internal_url`` is that of the
    leader's metadata.
    """

    error: AssignmentError
    leader_id: str
    leader_url: str
    config_offset: int
    connectors: Sequence[str] = ()
    tasks: Sequence[TaskId] = ()
    leader_internal_url: str = ""

    @property
    def keys(self) -> tuple[StatusKey, ...]:
        """Its connectors and tasks."""
        return (*self.connectors, *self.tasks)


def encode_metadata(metadata: MemberMetadata) -> bytes:
    """The bytes of a member's metadata."""
    return _dump(
        {
            "version": _VERSION,
            "worker_url": metadata.worker_url,
            "config_offset": metadata.config_offset,
            **_given("internal_url", metadata.internal_url),
        }
    )


def decode_metadata(data: bytes) -> MemberMetadata:
    """A member's metadata.

    Raises:
        InvalidArgumentError: the bytes are not what a worker writes.
    """
    try:
        value = _load(data)
        return MemberMetadata(
            worker_url=_text(value["worker_url"]),
            config_offset=_whole(value["config_offset"]),
            internal_url=_text(value.get("internal_url", "")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _malformed("member metadata", error) from error


def encode_assignment(assignment: Assignment) -> bytes:
    """The bytes of an assignment."""
    work: dict[str, list[int]] = {name: [_CONNECTOR_ITSELF] for name in assignment.connectors}
    for task in assignment.tasks:
        work.setdefault(task.connector, []).append(task.task)
    return _dump(
        {
            "version": _VERSION,
            "error": int(assignment.error),
            "leader_id": assignment.leader_id,
            "leader_url": assignment.leader_url,
            **_given("leader_internal_url", assignment.leader_internal_url),
            "config_offset": assignment.config_offset,
            "work": work,
        }
    )


def decode_assignment(data: bytes) -> Assignment:
    """An assignment; its connectors and tasks come in order.

    Raises:
        InvalidArgumentError: the bytes are not what a leader writes (empty ones included).
    """
    try:
        value = _load(data)
        work = value["work"]
        if not isinstance(work, dict):
            raise TypeError("work is not an object")
        items = sorted((name, _whole(index)) for name, indexes in work.items() for index in indexes)
        return Assignment(
            error=AssignmentError(_whole(value["error"])),
            leader_id=_text(value["leader_id"]),
            leader_url=_text(value["leader_url"]),
            config_offset=_whole(value["config_offset"]),
            connectors=tuple(name for name, index in items if index == _CONNECTOR_ITSELF),
            tasks=tuple(TaskId(name, index) for name, index in items if index >= 0),
            leader_internal_url=_text(value.get("leader_internal_url", "")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _malformed("assignment", error) from error


def _given(name: str, text: str) -> dict[str, object]:
    """A field of Drover's own, which Kafka Connect's format does not have."""
    return {name: text} if text else {}


def _dump(value: dict[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _load(data: bytes) -> dict[str, object]:
    value = json.loads(data)
    if not isinstance(value, dict):
        raise TypeError("not a JSON object")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not a whole number")
    return value


def _malformed(what: str, error: Exception) -> InvalidArgumentError:
    return InvalidArgumentError(
        Reason.INVALID_REQUEST, f"malformed {what} of the eager protocol: {error}"
    )
