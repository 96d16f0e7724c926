"""The CPU of workers from their totals."""

from google.protobuf.duration_pb2 import Duration

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover_gateway.console.usage import CpuUse, CpuUses


def worker(cpu_s: int, uptime_s: int, worker_id: str = "w:1") -> pb.WorkerInfo:
    usage = pb.WorkerUsage(cpu=Duration(seconds=cpu_s), uptime=Duration(seconds=uptime_s))
    return pb.WorkerInfo(worker_id=worker_id, usage=usage)


def test_the_first_total_is_the_average_since_the_start() -> None:
    assert CpuUses().of(worker(50, 100)) == CpuUse(0.5, 100_000, since_start=True)


def test_later_totals_are_compared_with_the_one_before() -> None:
    uses = CpuUses()
    uses.of(worker(50, 100))
    second = uses.of(worker(70, 110))
    assert second == CpuUse(2.0, 10_000, since_start=False)
    # too soon for a new value
    assert uses.of(worker(71, 111)) == second
    assert uses.of(worker(50, 100, "w:2")) == CpuUse(0.5, 100_000, since_start=True)


def test_a_worker_that_started_again_begins_anew() -> None:
    uses = CpuUses()
    uses.of(worker(50, 100))
    assert uses.of(worker(1, 10)) == CpuUse(0.1, 10_000, since_start=True)


def test_totals_that_fall_are_no_negative_use() -> None:
    uses = CpuUses()
    uses.of(worker(50, 100))
    assert uses.of(worker(40, 110)) == CpuUse(0.0, 10_000, since_start=False)


def test_a_worker_without_totals_is_unknown() -> None:
    assert CpuUses().of(pb.WorkerInfo(worker_id="w:1")) is None
