"""Figures of a connector over the last hour, from the workers that run its tasks."""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from google.protobuf.duration_pb2 import Duration

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.api.worker.v1 import worker_service_pb2 as worker_pb
from drover.codec.common import decode_timestamp, encode_timestamp
from drover_worker.admin.call import AdminCall
from drover_worker.admin.forwarding import ForwardedMethod, RequestForwarder
from drover_worker.admin.reads import Reads
from drover_worker.admin.views import ConnectorViews
from drover_worker.shell.connector_figures import INTERVAL_MS, ROWS_MAX, Row

_WORKER_TIMEOUT_S = 2.0
_COUNTS = ("read_count", "written_count", "dead_lettered_count")
_TIMES = ("batch_times", "poll_times", "write_times", "commit_times")

GET = ForwardedMethod(
    "GetOwnFigures", worker_pb.GetOwnFiguresRequest, worker_pb.GetOwnFiguresResponse
)
#: The rows of a connector on this worker.
OwnRows = Callable[[str], Iterable[Row]]


class Figures:
    """Collects the figures of connectors."""

    def __init__(
        self,
        *,
        worker_id: str,
        forwarder: RequestForwarder,
        own: OwnRows,
        reads: Reads,
        views: ConnectorViews,
    ) -> None:
        self._worker_id = worker_id
        self._forwarder = forwarder
        self._own = own
        self._reads = reads
        self._views = views

    async def get(
        self, request: pb.GetConnectorFiguresRequest, call: AdminCall
    ) -> pb.GetConnectorFiguresResponse:
        """Return the figures of a connector."""
        name = await self._reads.existing(request.name, call.deadline)
        tasks = self._views.status(name).tasks
        workers = sorted({each.worker_id for each in tasks} - {"", self._worker_id})
        timeout_s = min(_WORKER_TIMEOUT_S, call.deadline.remaining_s() / 2)
        ask = worker_pb.GetOwnFiguresRequest(connector=name)
        answers = await asyncio.gather(
            *(self._forwarder.ask(GET, ask, each, timeout_s=timeout_s) for each in workers)
        )
        rows = [_encoded(each) for each in self._own(name)]
        for answer in answers:
            rows += answer.rows if answer is not None else ()
        silent = [each for each, answer in zip(workers, answers, strict=True) if answer is None]
        return pb.GetConnectorFiguresResponse(points=points_of(rows), silent_worker_ids=silent)

    async def serve(
        self, request: worker_pb.GetOwnFiguresRequest, _call: AdminCall
    ) -> worker_pb.GetOwnFiguresResponse:
        """Return what a connector's tasks on this worker did, to another worker."""
        rows = [_encoded(each) for each in self._own(request.connector)]
        return worker_pb.GetOwnFiguresResponse(rows=rows)


def points_of(rows: Sequence[worker_pb.FigureRow]) -> list[pb.FigurePoint]:
    """The points of a connector from the rows of all its workers."""
    sums: dict[int, worker_pb.FigureRow] = {}
    for row in rows:
        interval = decode_timestamp(row.begin_time) // INTERVAL_MS
        _add(sums.setdefault(interval, worker_pb.FigureRow()), row)
    if not sums:
        return []
    last = max(sums)
    intervals = range(max(min(sums), last - ROWS_MAX + 1), last + 1)
    nothing = worker_pb.FigureRow()
    return [_point(each * INTERVAL_MS, sums.get(each, nothing)) for each in intervals]


def _add(total: worker_pb.FigureRow, row: worker_pb.FigureRow) -> None:
    for name in _COUNTS:
        setattr(total, name, getattr(total, name) + getattr(row, name))
    for name in _TIMES:
        times, more = getattr(total, name), getattr(row, name)
        times.count += more.count
        times.total_us += more.total_us
    if row.HasField("lag"):
        total.lag += row.lag


def _point(begin_ms: int, row: worker_pb.FigureRow) -> pb.FigurePoint:
    point = pb.FigurePoint(
        begin_time=encode_timestamp(begin_ms),
        read_per_second=row.read_count * 1000 / INTERVAL_MS,
        written_per_second=row.written_count * 1000 / INTERVAL_MS,
        dead_lettered_per_second=row.dead_lettered_count * 1000 / INTERVAL_MS,
    )
    if row.HasField("lag"):
        point.lag = row.lag
    for name in _TIMES:
        times: worker_pb.FigureRow.Times = getattr(row, name)
        if times.count:
            mean: Duration = getattr(point, name.replace("_times", "_duration"))
            mean.FromMicroseconds(round(times.total_us / times.count))
    return point


def _encoded(row: Row) -> worker_pb.FigureRow:
    message = worker_pb.FigureRow(begin_time=encode_timestamp(row.begin_ms))
    for name, count in zip(_COUNTS, row.amounts.counts, strict=True):
        setattr(message, name, count)
    for at, name in enumerate(_TIMES):
        times: worker_pb.FigureRow.Times = getattr(message, name)
        times.count, times.total_us = row.amounts.times[2 * at : 2 * at + 2]
    if row.lag is not None:
        message.lag = row.lag
    return message
