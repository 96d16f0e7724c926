"""The coordinator's records in the control topic, as compact JSON. Pure.

Partition 0: ``lease:<shard>`` and ``coordinator:<address>``. A partition of task claims:
``["claim",connector,task]``, ``["commit",connector,task]``,
``["mark",connector,group,topic,partition]`` and ``["owner"]``, its last writer.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from drover.log.connect_json import UnreadableRecordError, dump, parse_object
from drover.model.claims import TaskClaim
from drover.model.ids import TaskId, Term
from drover.model.offsets import TopicPartition
from drover.model.sink_outputs import OutputMark, SinkOutput
from drover_coordinator.core.claims.task_claims import (
    ClaimRecord,
    ClaimsRecord,
    CommitRecord,
    MarkRecord,
)
from drover_coordinator.core.ownership.lease_table import LeaseTable
from drover_coordinator.core.ownership.machine import Lease, Peer

LEASE_PREFIX = "lease:"
COORDINATOR_PREFIX = "coordinator:"

KeyValue = tuple[bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class OwnerRecord:
    """The last owner of a partition of task claims, with the epoch of the shard's lease."""

    owner: str
    epoch: int


# --- leases ------------------------------------------------------------------------------------


def encode_changes(table: LeaseTable, before: LeaseTable) -> list[KeyValue]:
    """The records that change ``before`` into ``table``."""
    records: list[KeyValue] = [
        (f"{LEASE_PREFIX}{shard}".encode(), _encode_lease(lease))
        for shard, lease in table.changed_shards(before).items()
    ]
    records += [
        (f"{COORDINATOR_PREFIX}{address}".encode(), None if peer is None else _encode_peer(peer))
        for address, peer in table.changed_peers(before).items()
    ]
    return records


def decode_table(
    values: Mapping[str, bytes], shard_count: int, unreadable: Callable[[str, str], None]
) -> LeaseTable:
    """The table from the newest value of each key; a missing lease is free.

    An unreadable record counts as missing; ``unreadable`` is called with its key and the cause.
    """
    leases = [Lease()] * shard_count
    peers: dict[str, Peer] = {}
    for key, value in values.items():
        try:
            if key.startswith(COORDINATOR_PREFIX):
                peers[key.removeprefix(COORDINATOR_PREFIX)] = _decode_peer(value)
            elif key.startswith(LEASE_PREFIX):
                leases[_shard(key, shard_count)] = _decode_lease(value)
        except UnreadableRecordError as error:
            unreadable(key, str(error))
    return LeaseTable(tuple(leases), peers)


def _shard(key: str, shard_count: int) -> int:
    number = key.removeprefix(LEASE_PREFIX)
    if not (number.isascii() and number.isdigit() and int(number) < shard_count):
        raise UnreadableRecordError(f"the shard is not a number from 0 to {shard_count - 1}")
    return int(number)


def _encode_lease(lease: Lease) -> bytes:
    return dump(
        {
            "owner": lease.owner,
            "incarnation": lease.incarnation,
            "epoch": lease.epoch,
            "renewals": lease.renewals,
        }
    )


def _decode_lease(value: bytes) -> Lease:
    fields = parse_object(value)
    return Lease(
        _text(fields, "owner"),
        _text(fields, "incarnation"),
        _number(fields, "epoch"),
        _number(fields, "renewals"),
    )


def _encode_peer(peer: Peer) -> bytes:
    return dump({"incarnation": peer.incarnation, "beats": peer.beats, "lease_ms": peer.lease_ms})


def _decode_peer(value: bytes) -> Peer:
    fields = parse_object(value)
    return Peer(_text(fields, "incarnation"), _number(fields, "beats"), _number(fields, "lease_ms"))


# --- task claims -------------------------------------------------------------------------------


def encode_claims_record(record: ClaimsRecord | OwnerRecord) -> KeyValue:
    """The key and the value of a record."""
    match record:
        case MarkRecord(connector, group_id, (topic, partition), mark, marked_ms):
            key = _key("mark", connector, group_id, topic, partition)
            return key, None if mark is None else _encode_mark(mark, marked_ms)
        case OwnerRecord(owner, epoch):
            return _key("owner"), dump({"owner": owner, "epoch": epoch})
        case CommitRecord(task, claim, number):
            fields: dict[str, object] = {**_encode_term(claim), "number": number}
            return _key("commit", task.connector, task.task), dump(fields)
        case ClaimRecord(task, claim, requests):
            fields = {
                **_encode_term(claim.term),
                "owner": claim.owner,
                "task_config_generation": claim.task_config_generation,
                "requests": {id_: [term.generation, term.sequence] for id_, term in requests},
            }
            if claim.own_producer:
                fields["own_producer"] = True
            return _key("claim", task.connector, task.task), dump(fields)


def decode_claims_record(key: bytes, value: bytes | None) -> ClaimsRecord | OwnerRecord | None:
    """Decode a record; None for other tombstones, and for a kind that a later version added.

    Raises:
        UnreadableRecordError: Not a record of task claims.
    """
    parts = _parse_key(key)
    if value is None:
        match parts:
            case ["mark", str(connector), str(group_id), str(topic), int(number)]:
                return MarkRecord(connector, group_id, TopicPartition(topic, number), None)
        return None
    fields = parse_object(value)
    match parts:
        case ["mark", str(connector), str(group_id), str(topic), int(number)]:
            partition = TopicPartition(topic, number)
            marked_ms = _number(fields, "marked_ms")
            return MarkRecord(connector, group_id, partition, _decode_mark(fields), marked_ms)
        case ["owner"]:
            return OwnerRecord(_text(fields, "owner"), _number(fields, "epoch"))
        case ["commit", str(connector), int(number)]:
            task = TaskId(connector, number)
            return CommitRecord(task, _decode_term(fields), _number(fields, "number"))
        case ["claim", str(connector), int(number)]:
            claim = TaskClaim(
                _decode_term(fields),
                _text(fields, "owner"),
                _number(fields, "task_config_generation"),
                own_producer=fields.get("own_producer") is True,
            )
            return ClaimRecord(TaskId(connector, number), claim, _decode_requests(fields))
    return None


def _key(*parts: object) -> bytes:
    return json.dumps(parts, separators=(",", ":"), ensure_ascii=False).encode()


def _parse_key(key: bytes) -> list[object]:
    try:
        parsed = json.loads(key.decode())
    except (ValueError, RecursionError) as error:
        raise UnreadableRecordError(f"the key is not JSON ({error})") from error
    if not (isinstance(parsed, list) and parsed and isinstance(parsed[0], str)):
        raise UnreadableRecordError("the key is not a JSON array whose first element is a string")
    return parsed


def _encode_mark(mark: OutputMark, marked_ms: int) -> bytes:
    return dump(
        {
            "topic_id": mark.output.topic_id,
            "output_id": mark.output.output_id,
            "offset": mark.offset,
            "is_reset": mark.is_reset,
            "marked_ms": marked_ms,
        }
    )


def _decode_mark(fields: Mapping[str, Any]) -> OutputMark:
    output = SinkOutput(_text(fields, "topic_id"), _text(fields, "output_id"))
    return OutputMark(output, _number(fields, "offset"), fields.get("is_reset") is True)


def _encode_term(term: Term) -> dict[str, object]:
    return {"generation": term.generation, "sequence": term.sequence}


def _decode_term(fields: Mapping[str, Any]) -> Term:
    return Term(_number(fields, "generation"), _number(fields, "sequence"))


def _decode_requests(fields: Mapping[str, Any]) -> tuple[tuple[str, Term], ...]:
    terms = fields.get("requests")
    if not isinstance(terms, dict):
        raise UnreadableRecordError("requests is not a JSON object")
    requests = []
    for id_, term in terms.items():
        if not (isinstance(term, list) and [type(each) for each in term] == [int, int]):
            raise UnreadableRecordError(f"the term of request {id_!r} is not two numbers")
        requests.append((id_, Term(*term)))
    return tuple(requests)


def _text(fields: Mapping[str, Any], name: str) -> str:
    text = fields.get(name)
    if not isinstance(text, str):
        raise UnreadableRecordError(f"{name} is not a string")
    return text


def _number(fields: Mapping[str, Any], name: str) -> int:
    number = fields.get(name)
    if not isinstance(number, int) or isinstance(number, bool):
        raise UnreadableRecordError(f"{name} is not an integer")
    return number
