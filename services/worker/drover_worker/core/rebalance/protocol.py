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

#: Version of the eager protocol, and of protocols whose metadata lists a member's work (KIP-415).
_VERSION_EAGER = 0
_VERSION_COOPERATIVE = 1
#: Represents the connector object among a connector's task indexes.
_CONNECTOR_ITSELF = -1


class AssignmentError(IntEnum):
    """Why an assignment has no work."""

    #: The assignment is valid, even if it is empty.
    NO_ERROR = 0
    #: The leader has read less of the config log than some member: read to its end and rejoin.
    CONFIG_MISMATCH = 1


@dataclass(frozen=True, slots=True)
class MemberMetadata:
    """The metadata of a worker in JoinGroup.

    Attributes:
        worker_url: The host:port for clients.
        config_offset: The offset up to which the worker has read the config log.
        internal_url: The host:port for other workers; empty if it is ``worker_url``.
        held: The connectors and tasks that the worker keeps running; None under the eager protocol,
            where it has stopped all work.
        draining: The worker shall get no work.
    """

    worker_url: str
    config_offset: int
    internal_url: str = ""
    held: Sequence[StatusKey] | None = None
    draining: bool = False


@dataclass(frozen=True, slots=True)
class Assignment:
    """The connectors and tasks of one worker in one generation.

    An encoded cooperative assignment is incremental: ``connectors`` and ``tasks`` are to be
    started in addition to the held ones, and ``stops`` are to be stopped. A follow-up rebalance is
    due ``delay_ms`` after it; 0 for none.

    ``config_offset`` is the offset up to which the leader had read the config log (after
    CONFIG_MISMATCH: the highest offset of any member). ``leader_internal_url`` is the
    ``internal_url`` of the leader's metadata.
    """

    error: AssignmentError
    leader_id: str
    leader_url: str
    config_offset: int
    connectors: Sequence[str] = ()
    tasks: Sequence[TaskId] = ()
    leader_internal_url: str = ""
    stops: Sequence[StatusKey] = ()
    delay_ms: int = 0

    @property
    def keys(self) -> tuple[StatusKey, ...]:
        """The connectors and tasks."""
        return (*self.connectors, *self.tasks)


def encode_metadata(metadata: MemberMetadata) -> bytes:
    """Encode a member's metadata."""
    return _dump(
        {
            "version": _VERSION_EAGER if metadata.held is None else _VERSION_COOPERATIVE,
            "worker_url": metadata.worker_url,
            "config_offset": metadata.config_offset,
            **_optional("internal_url", metadata.internal_url),
            **({} if metadata.held is None else {"held": _by_connector(metadata.held)}),
            **({"draining": True} if metadata.draining else {}),
        }
    )


def decode_metadata(data: bytes) -> MemberMetadata:
    """Decode a member's metadata.

    Raises:
        InvalidArgumentError: INVALID_REQUEST, the bytes are malformed.
    """
    try:
        value = _load(data)
        return MemberMetadata(
            worker_url=_text(value["worker_url"]),
            config_offset=_whole(value["config_offset"]),
            internal_url=_text(value.get("internal_url", "")),
            held=_keys(value["held"]) if "held" in value else None,
            draining=value.get("draining") is True,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _malformed("member metadata", error) from error


def encode_assignment(assignment: Assignment) -> bytes:
    """Encode an assignment."""
    increments = assignment.stops or assignment.delay_ms
    return _dump(
        {
            "version": _VERSION_COOPERATIVE if increments else _VERSION_EAGER,
            "error": int(assignment.error),
            "leader_id": assignment.leader_id,
            "leader_url": assignment.leader_url,
            **_optional("leader_internal_url", assignment.leader_internal_url),
            "config_offset": assignment.config_offset,
            "work": _by_connector(assignment.keys),
            **({"stops": _by_connector(assignment.stops)} if assignment.stops else {}),
            **({"delay_ms": assignment.delay_ms} if assignment.delay_ms else {}),
        }
    )


def decode_assignment(data: bytes) -> Assignment:
    """Decode an assignment; its connectors and tasks are sorted.

    Raises:
        InvalidArgumentError: INVALID_REQUEST, the bytes are malformed or empty.
    """
    try:
        value = _load(data)
        keys = _keys(value["work"])
        return Assignment(
            error=AssignmentError(_whole(value["error"])),
            leader_id=_text(value["leader_id"]),
            leader_url=_text(value["leader_url"]),
            config_offset=_whole(value["config_offset"]),
            connectors=tuple(key for key in keys if not isinstance(key, TaskId)),
            tasks=tuple(key for key in keys if isinstance(key, TaskId)),
            leader_internal_url=_text(value.get("leader_internal_url", "")),
            stops=_keys(value.get("stops", {})),
            delay_ms=_whole(value.get("delay_ms", 0)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _malformed("assignment", error) from error


def _by_connector(keys: Sequence[StatusKey]) -> dict[str, list[int]]:
    work: dict[str, list[int]] = {}
    for key in keys:
        if isinstance(key, TaskId):
            work.setdefault(key.connector, []).append(key.task)
        else:
            work.setdefault(key, []).append(_CONNECTOR_ITSELF)
    return work


def _keys(value: object) -> tuple[StatusKey, ...]:
    """Connectors and tasks, sorted by name, each connector before its tasks."""
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is not an object")
    items = sorted((name, _whole(index)) for name, indexes in value.items() for index in indexes)
    return tuple(
        name if index == _CONNECTOR_ITSELF else TaskId(name, index)
        for name, index in items
        if index >= _CONNECTOR_ITSELF
    )


def _optional(name: str, text: str) -> dict[str, object]:
    """A field that Kafka Connect's format does not have; left out if it is empty."""
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
        raise TypeError(f"{value!r} is not an integer")
    return value


def _malformed(what: str, error: Exception) -> InvalidArgumentError:
    return InvalidArgumentError(
        Reason.INVALID_REQUEST, f"malformed {what} of the rebalance protocol: {error}"
    )
