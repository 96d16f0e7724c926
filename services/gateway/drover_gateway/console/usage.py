"""The CPU that each worker uses at present, from its totals at two times; pure."""

from collections import OrderedDict
from dataclasses import dataclass

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.codec.common import decode_duration

#: Totals are compared over this time at least.
_OVER_MS = 2_000
_WORKERS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class CpuUse:
    """The CPU that a worker's processes use.

    Attributes:
        cores: The average number of cores in use.
        over_ms: The time that it is the average of.
        since_start: Whether that is the whole time since the worker started.
    """

    cores: float
    over_ms: int
    since_start: bool


@dataclass(frozen=True, slots=True)
class _Total:
    cpu_ms: int
    uptime_ms: int


class CpuUses:
    """Remembers the totals of workers, which are the same for every caller."""

    def __init__(self) -> None:
        self._totals: OrderedDict[str, tuple[_Total, CpuUse]] = OrderedDict()

    def of(self, worker: pb.WorkerInfo) -> CpuUse | None:
        """What a worker has used since its last total; None if it reports none."""
        if not worker.HasField("usage"):
            return None
        usage = worker.usage
        total = _Total(decode_duration(usage.cpu), decode_duration(usage.uptime))
        before = self._totals.get(worker.worker_id)
        if before is None or total.uptime_ms < before[0].uptime_ms:
            use = CpuUse(total.cpu_ms / max(total.uptime_ms, 1), total.uptime_ms, since_start=True)
        elif total.uptime_ms - before[0].uptime_ms < _OVER_MS:
            return before[1]
        else:
            over_ms = total.uptime_ms - before[0].uptime_ms
            used_ms = max(total.cpu_ms - before[0].cpu_ms, 0)
            use = CpuUse(used_ms / over_ms, over_ms, since_start=False)
        self._totals[worker.worker_id] = total, use
        self._totals.move_to_end(worker.worker_id)
        if len(self._totals) > _WORKERS_MAX:
            self._totals.popitem(last=False)
        return use
