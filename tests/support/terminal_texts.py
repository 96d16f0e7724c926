"""What commands print in bad situations, for docs/operating.md.

The statuses are fixed values; the code of the commands formats them.
"""

import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from datetime import UTC, datetime

from drover.api.common.v1 import activity_pb2
from drover.api.common.v1.record_counts_pb2 import RecordCounts
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.console import Output, print_table
from drover.cli.doctor.cluster import (
    Answer,
    connector_findings,
    quarantine_finding,
    silent_worker,
    worker_findings,
)
from drover.cli.doctor.command import print_findings
from drover.cli.doctor.finding import Finding
from drover.cli.output.connectors import list_table
from drover.cli.output.statuses import print_description, print_status
from drover.codec.common import encode_timestamp
from drover.codec.connect import note_lags
from drover.codec.failures import encode_failures
from drover.connector.catalogue import PluginNotFoundError, PluginRegistry
from drover.errors import Reason, UnavailableError
from drover.model.failures import Failure, FailureCause, FailureHistory, RestartPolicy
from drover.model.ids import TaskId
from drover.pipeline.failures import RecordFailedError
from drover_worker.core.lifecycle.engine_deaths import SHARED_SLOT, EngineDeath, EngineDeaths
from drover_worker.engine.plugins.answers import timed_out_message
from drover_worker.engine.tasks.faults import failure_text

NOW_MS = int(datetime(2026, 11, 28, 3, 30, tzinfo=UTC).timestamp() * 1000)
ONE, TWO = "10.0.0.6:7411", "10.0.0.7:7411"
#: No line is wrapped.
_WIDTH = "1000"
_MINUTE_MS = 60_000
_STEPS = activity_pb2.TaskStep


def _activity(step: int, seconds: float, **fields: object) -> activity_pb2.TaskActivity:
    message = activity_pb2.TaskActivity(step=step, **fields)  # type: ignore[arg-type]
    message.step_time.CopyFrom(encode_timestamp(NOW_MS - round(seconds * 1000)))
    return message


def _retry(
    operation: str, count: int, since_s: float, next_s: float, message: str
) -> activity_pb2.TaskRetry:
    return activity_pb2.TaskRetry(
        operation=operation,
        failure_count=count,
        begin_time=encode_timestamp(NOW_MS - round(since_s * 1000)),
        next_attempt_time=encode_timestamp(NOW_MS + round(next_s * 1000)),
        message=message,
    )


def _task(
    number: int = 0,
    state: pb.RunState.ValueType = pb.RUN_STATE_RUNNING,
    worker: str = ONE,
    *,
    counts: Sequence[int] = (),
    rate: float | None = None,
    lag: int | None = None,
    trace: str = "",
    failures: FailureHistory | None = None,
    activity: activity_pb2.TaskActivity | None = None,
) -> pb.TaskState:
    task = pb.TaskState(task=number, state=state, worker_id=worker, trace=trace)
    if counts:
        names = ("read_count", "written_count", "filtered_count", "dead_lettered_count")
        task.counts.CopyFrom(RecordCounts(**dict(zip(names, counts, strict=False))))
    if rate is not None:
        task.records_per_second = rate
    if lag is not None:
        task.figures.add(name="lag_count", value=lag)
    if failures is not None:
        task.failures.CopyFrom(encode_failures(failures))
    if activity is not None:
        task.activity.CopyFrom(activity)
    return task


def _status(
    name: str,
    kind: pb.ConnectorType.ValueType,
    *tasks: pb.TaskState,
    state: pb.RunState.ValueType = pb.RUN_STATE_RUNNING,
    worker: str = ONE,
) -> pb.ConnectorStatus:
    connector = pb.ConnectorState(state=state, worker_id=worker)
    status = pb.ConnectorStatus(name=name, type=kind, connector=connector, tasks=tasks)
    if tasks and all(each.HasField("counts") for each in tasks):
        for each in tasks:
            status.counts.read_count += each.counts.read_count
            status.counts.written_count += each.counts.written_count
            status.counts.dead_lettered_count += each.counts.dead_lettered_count
    rates = [each.records_per_second for each in tasks if each.HasField("records_per_second")]
    if rates:
        status.records_per_second = sum(rates)
    note_lags(status)
    return status


def _failed(
    name: str, cause: FailureCause, message: str, *, times: int, ago_s: int, worker: str = ONE
) -> FailureHistory:
    history = FailureHistory(config_offset=7)
    for number in range(times):
        failed_ms = NOW_MS - ago_s * 1000 - (times - 1 - number) * _MINUTE_MS
        failure = Failure(failed_ms, cause, worker, message)
        history = history.with_failure(failure, RestartPolicy(), f"{name}-0")
    return history


SOURCE, SINK = pb.CONNECTOR_TYPE_SOURCE, pb.CONNECTOR_TYPE_SINK
_API_DOWN = "GET https://api.example.com/tickets: connection refused"
_LOCKED = (
    "writing to postgresql://db:5432/shop: canceling statement due to lock timeout: table orders"
)
_REJECTED = 'postgresql://db:5432/shop: password authentication failed for user "drover"'
_AWAY = "postgresql://db:5432/shop: connection refused"
_STACK = """\
/plugins/tickets.py:41 in poll: page = self._client.fetch(self._cursor)
/plugins/tickets_client.py:18 in fetch: return self._socket.recv(65536)"""


def _retrying_api() -> pb.ConnectorStatus:
    retry = _retry("poll()", 7, 130, 19, _API_DOWN)
    waiting = _activity(_STEPS.TASK_STEP_WAITING_TO_RETRY, 21, retry=retry)
    return _status("tickets", SOURCE, _task(counts=(5000, 5000), rate=0.0, activity=waiting))


def _retrying_write() -> pb.ConnectorStatus:
    retry = _retry("write()", 3, 65, -4, _LOCKED)
    writing = _activity(_STEPS.TASK_STEP_WRITING, 4, retry=retry)
    task = _task(worker=TWO, counts=(81_000, 80_951), rate=0.0, lag=49, activity=writing)
    return _status("shop-copy", SINK, task)


def _healthy() -> pb.ConnectorStatus:
    waiting = _activity(_STEPS.TASK_STEP_WAITING_FOR_RECORDS, 3)
    task = _task(counts=(120_000, 120_000), rate=412.0, lag=0, activity=waiting)
    return _status("orders-files", SINK, task)


def _credentials() -> pb.ConnectorStatus:
    trace = f"CredentialsRejectedError: {_REJECTED}"
    cause = FailureCause.CREDENTIALS
    history = _failed("shop-cdc", cause, trace, times=4, ago_s=20)
    failed = pb.RUN_STATE_FAILED
    return _status("shop-cdc", SOURCE, _task(0, failed, trace=trace, failures=history))


def _database_away() -> pb.ConnectorStatus:
    trace = f"RetriableError: {_AWAY}"
    history = _failed("shop-copy", FailureCause.OUTAGE, trace, times=6, ago_s=12)
    failed = pb.RUN_STATE_FAILED
    task = _task(0, failed, counts=(81_000, 80_951), trace=trace, failures=history)
    return _status("shop-copy", SINK, task)


def _bad_record() -> pb.ConnectorStatus:
    message = (
        "record at orders-0 offset 4711 failed in write (JdbcSink): column total: 12x is no number"
    )
    trace = failure_text(RecordFailedError(message), None, 0)
    history = _failed("shop-copy", FailureCause.PLUGIN, message, times=2, ago_s=3)
    writing = _activity(_STEPS.TASK_STEP_WRITING, 0)
    return _status(
        "shop-copy",
        SINK,
        _task(0, pb.RUN_STATE_FAILED, counts=(4711, 4711), trace=trace, failures=history),
        _task(1, counts=(9000, 9000), rate=30.0, lag=12, activity=writing),
    )


def _hang() -> pb.ConnectorStatus:
    polling = _activity(_STEPS.TASK_STEP_POLLING, 40, stack=_STACK)
    message = timed_out_message("poll() of task tickets-0", 60_000)
    history = _failed("tickets", FailureCause.PLUGIN, message, times=1, ago_s=95)
    task = _task(counts=(5000, 5000), rate=0.0, failures=history, activity=polling)
    return _status("tickets", SOURCE, task)


def _paused() -> pb.ConnectorStatus:
    pause = _activity(_STEPS.TASK_STEP_PAUSED, 1260)
    paused = pb.RUN_STATE_PAUSED
    task = _task(0, paused, counts=(5000, 5000), rate=0.0, lag=999, activity=pause)
    return _status("people-db", SINK, task, state=paused)


def _worker_gone() -> list[pb.ConnectorStatus]:
    gone = _task(0, pb.RUN_STATE_UNASSIGNED, TWO, counts=(81_000, 80_951))
    return [_healthy(), _status("shop-copy", SINK, gone, worker=ONE)]


def _snapshot() -> pb.ConnectorStatus:
    progress = activity_pb2.SnapshotProgress(
        table="public.orders",
        row_count=48_000,
        estimated_row_count=60_000,
        remaining_table_count=3,
    )
    converting = _activity(_STEPS.TASK_STEP_CONVERTING, 1, snapshot=progress)
    task = _task(counts=(68_000, 68_000), rate=9_400.0, activity=converting)
    return _status("shop-cdc", SOURCE, task)


def _plugin_missing() -> pb.ConnectorStatus:
    try:
        PluginRegistry().find("acme_tickets.TicketSource")
    except PluginNotFoundError as error:
        trace = str(error)
    history = _failed("tickets", FailureCause.PLUGIN, trace, times=3, ago_s=2, worker=TWO)
    task = _task(0, pb.RUN_STATE_FAILED, TWO, trace=trace, failures=history)
    return _status("tickets", SOURCE, task)


def _quarantined() -> pb.ConnectorStatus:
    deaths = EngineDeaths()
    task = TaskId("tickets", 0)
    for ago_ms, slot in ((4 * _MINUTE_MS, SHARED_SLOT), (2 * _MINUTE_MS, "suspects/1")):
        reason = "the engine ended with exit code 3"
        deaths.record(EngineDeath(slot, reason, [task], [task]), NOW_MS - ago_ms)
    note = deaths.note("tickets", lambda ms: datetime.fromtimestamp(ms / 1000, UTC).isoformat())
    status = _status("tickets", SOURCE, _task(counts=(5000, 5000), rate=2.0, trace=note))
    status.connector.trace = note
    return status


def _info(spark_version: str) -> pb.GetClusterInfoResponse:
    import drover

    info = pb.GetClusterInfoResponse(
        version=drover.__version__, stage="the worker is SETTLED", spark_version=spark_version
    )
    if spark_version:
        mib = 2**20
        info.engine_memory.CopyFrom(
            pb.EngineMemory(
                engine_bytes=1640 * mib,
                jvm_bytes=610 * mib,
                python_workers_bytes=284 * mib,
                python_workers_count=5,
            )
        )
    return info


def _print_list(statuses: Sequence[pb.ConnectorStatus]) -> None:
    classes = {
        "orders-files": "FilesSink",
        "shop-copy": "JdbcSink",
        "shop-cdc": "PostgresCdcSource",
        "tickets": "acme_tickets.TicketSource",
    }
    entries = [pb.ListConnectorsResponse.Entry(name=each.name, status=each) for each in statuses]
    for entry in entries:
        entry.connector.config["connector.class"] = classes[entry.name]
    print_table(*list_table(entries))


def _doctor(*findings: Finding) -> None:
    print_findings(findings, Output.TABLE)


#: The command and its output, by situation.
_TEXTS: Mapping[str, tuple[str, Callable[[], None]]] = {
    "an API is down": (
        "connector status tickets",
        lambda: print_status(_retrying_api(), now_ms=NOW_MS),
    ),
    "a table is locked": (
        "connector list",
        lambda: _print_list([_healthy(), _retrying_write(), _retrying_api()]),
    ),
    "operations are retried": (
        "doctor",
        lambda: _doctor(
            *worker_findings(ONE, Answer(_info("4.1.2"), 0.0)),
            *connector_findings([_healthy(), _retrying_write(), _retrying_api()], now_ms=NOW_MS),
        ),
    ),
    "the credentials are rejected": (
        "connector status shop-cdc",
        lambda: print_status(_credentials(), now_ms=NOW_MS),
    ),
    "the database is away": (
        "connector status shop-copy",
        lambda: print_status(_database_away(), now_ms=NOW_MS),
    ),
    "a record is bad": (
        "connector status shop-copy",
        lambda: print_status(_bad_record(), now_ms=NOW_MS),
    ),
    "a plugin hangs": (
        "connector describe tickets",
        lambda: print_description(_hang(), now_ms=NOW_MS),
    ),
    "a plugin ends the engine": (
        "connector status tickets",
        lambda: print_status(_quarantined(), now_ms=NOW_MS),
    ),
    "a connector is in quarantine": (
        "doctor",
        lambda: _doctor(
            *worker_findings(ONE, Answer(_info("4.1.2"), 0.0)),
            *connector_findings([_healthy(), _quarantined()], now_ms=NOW_MS),
            *filter(None, [quarantine_finding(_quarantined())]),
        ),
    ),
    "a sink is paused": (
        "connector describe people-db",
        lambda: print_description(_paused(), now_ms=NOW_MS),
    ),
    "a worker is gone": ("connector list", lambda: _print_list(_worker_gone())),
    "a worker does not answer": (
        "doctor",
        lambda: _doctor(
            silent_worker(
                TWO,
                UnavailableError(Reason.SERVICE_UNREACHABLE, f"connecting to {TWO}: refused"),
            ),
            *connector_findings(_worker_gone(), now_ms=NOW_MS),
        ),
    ),
    "an engine is starting": (
        "doctor",
        lambda: _doctor(*worker_findings(ONE, Answer(_info(""), 0.0))),
    ),
    "a snapshot is in progress": (
        "connector status shop-cdc",
        lambda: print_status(_snapshot(), now_ms=NOW_MS),
    ),
    "a worker lacks the plugin": (
        "connector status tickets",
        lambda: print_status(_plugin_missing(), now_ms=NOW_MS),
    ),
}


def situations() -> list[str]:
    """The names of all situations."""
    return list(_TEXTS)


def terminal_text(situation: str) -> str:
    """A code block with the command and its output in a situation.

    Raises:
        ValueError: The situation is unknown.
    """
    if situation not in _TEXTS:
        raise ValueError(f"no situation is called {situation!r}")
    command, show = _TEXTS[situation]
    with _wide_terminal(), redirect_stdout(io.StringIO()) as printed:
        show()
    lines = [line.rstrip() for line in printed.getvalue().strip("\n").splitlines()]
    return "\n".join(["```text", f"$ drover {command}", *lines, "```", ""])


@contextmanager
def _wide_terminal() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in ("COLUMNS", "NO_COLOR")}
    os.environ.update(COLUMNS=_WIDTH, NO_COLOR="1")
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
