"""Rebalances as text."""

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.codec.common import decode_duration


def move_text(move: pb.RebalanceMove) -> str:
    """What moved, and between which workers."""
    name = f"{move.connector}-{move.task}" if move.HasField("task") else move.connector
    if not move.to_worker_id:
        return f"{name}: stopped on {move.from_worker_id}"
    if not move.from_worker_id:
        return f"{name}: started on {move.to_worker_id}"
    return f"{name}: {move.from_worker_id} → {move.to_worker_id}"


def moved_text(rebalance: pb.Rebalance) -> str:
    """How many connectors and tasks moved."""
    counted = [
        (rebalance.moved_connector_count, "connector"),
        (rebalance.moved_task_count, "task"),
    ]
    texts = [f"{count:,} {what}{'' if count == 1 else 's'}" for count, what in counted if count]
    return ", ".join(texts) or "nothing"


def duration_text(rebalance: pb.Rebalance) -> str:
    """How long it took."""
    if not rebalance.HasField("duration"):
        return "not finished"
    duration_ms = decode_duration(rebalance.duration)
    return f"{duration_ms:,} ms" if duration_ms < 10_000 else f"{duration_ms / 1000:,.0f} s"
