"""What workers and their engines use, as text and as JSON documents."""

from typing import Any

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.codec.common import decode_duration

_MIB, _GIB = 2**20, 2**30


def memory_cell(worker: pb.WorkerInfo) -> str:
    """The memory of all engines of a worker, such as "1.2 GiB"; empty if unknown."""
    return size_text(_total_bytes(worker.engine_memory)) if worker.HasField("engine_memory") else ""


def memory_text(memory: pb.EngineMemory) -> str:
    """The memory by kind of process; empty if no engine runs."""
    if not _total_bytes(memory):
        return ""
    count = memory.python_workers_count
    return (
        f"engine {size_text(memory.engine_bytes)}, JVM {size_text(memory.jvm_bytes)}, "
        f"{count} Python worker{'' if count == 1 else 's'} {size_text(memory.python_workers_bytes)}"
    )


def memory_document(memory: pb.EngineMemory) -> dict[str, Any]:
    """The memory as a JSON document."""
    return {
        "engine_bytes": memory.engine_bytes,
        "jvm_bytes": memory.jvm_bytes,
        "python_workers_bytes": memory.python_workers_bytes,
        "python_workers_count": memory.python_workers_count,
    }


def usage_document(usage: pb.WorkerUsage) -> dict[str, Any]:
    """What a worker's processes use, as a JSON document."""
    return {
        "worker_bytes": usage.worker_bytes,
        "cpu_ms": decode_duration(usage.cpu),
        "uptime_ms": decode_duration(usage.uptime),
        "core_count": usage.core_count,
    }


def size_text(size_bytes: int) -> str:
    """A size in MiB or GiB."""
    if size_bytes < _GIB:
        return f"{size_bytes / _MIB:.0f} MiB"
    return f"{size_bytes / _GIB:.1f} GiB"


def _total_bytes(memory: pb.EngineMemory) -> int:
    return memory.engine_bytes + memory.jvm_bytes + memory.python_workers_bytes
