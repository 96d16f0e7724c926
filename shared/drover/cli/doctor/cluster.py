"""Checks a cluster: processes, versions, clocks, engines, leader, failed connectors and tasks."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import drover
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.access import Access
from drover.cli.doctor.certificates import ends_soon
from drover.cli.doctor.finding import Finding, Level
from drover.cli.output.activities import doing_cell, is_retrying, is_slow, task_notes
from drover.cli.output.failures import failure_notes, missing_tasks
from drover.cli.output.workers import memory_text
from drover.client import ConnectClient, channel
from drover.clock import SystemClock
from drover.codec.failures import decode_failures
from drover.errors import (
    DroverError,
    InvalidArgumentError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from drover.local.cluster import GATEWAY
from drover.local.health import open_channel
from drover.local.state import ClusterState
from drover.local.tls_check import shown_certificate, why_refused
from drover.model.command_lines import drover_command
from drover.model.failures import IN_QUARANTINE, FailureCause, cause_in
from drover.security.certificates import Certificate, read_certificate
from drover.security.development_ca import SERVICE, files_of

TIMEOUT_S = 5.0
#: Certificates, retention and schedules depend on wall clocks; rebalances do not.
CLOCK_WARNING_S, CLOCK_ERROR_S = 2.0, 60.0
_NAMED_MAX = 10
#: Connectors and tasks that run again are reported until this time after their failure.
_RECENT_MS = 600_000


#: Returns the access to an address.
Way = Callable[[str], Access]


@dataclass(frozen=True, slots=True)
class Answer:
    """A worker's response.

    Attributes:
        info: The response.
        ahead_s: The least amount by which the worker's clock is ahead; negative if behind.
        certificate: Problems with the certificate that the worker presents.
    """

    info: pb.GetClusterInfoResponse
    ahead_s: float
    certificate: tuple[Finding, ...] = ()


async def look_at_cluster(
    workers: Sequence[str], running: ClusterState | None, way: Way
) -> list[Finding]:
    """Check every process and worker of a cluster.

    Args:
        workers: Addresses of some workers; the workers that they list are checked too.
        running: The state of the cluster if `drover up` runs it on this machine.
        way: Returns the access to an address.
    """
    processes = [] if running is None else await _processes(running)
    answers = dict(zip(workers, await _ask_all(workers, way), strict=True))
    known = [a for a in answers.values() if isinstance(a, Answer)]
    others = {each.worker_id for a in known for each in a.info.workers} - answers.keys()
    answers |= dict(zip(others, await _ask_all(others, way), strict=True))
    findings = answer_findings(running, processes, answers)
    reached = next((where for where, a in answers.items() if isinstance(a, Answer)), None)
    return [*findings, *([] if reached is None else await _failures(reached, way))]


def answer_findings(
    running: ClusterState | None,
    processes: Sequence[Finding],
    answers: Mapping[str, "Answer | Finding"],
) -> list[Finding]:
    """The findings about processes and workers; a process that does not serve is reported once.

    Args:
        running: The state of the cluster if `drover up` runs it on this machine.
        processes: The findings about its processes.
        answers: The responses of workers by address, or why there is none.
    """
    bad = {each.check for each in processes if each.level is not Level.OK}
    known = {} if running is None else running.processes
    not_serving = {each.address for name, each in known.items() if name in bad}
    findings = list(processes)
    for address, answer in answers.items():
        findings += worker_findings(address, answer, is_reported=address in not_serving)
    reached = [each for each in answers.values() if isinstance(each, Answer)]
    # without an engine no worker joins the group
    if any(each.info.spark_version for each in reached):
        findings.append(_leader(reached))
    return findings


async def _processes(running: ClusterState) -> list[Finding]:
    """Check that each process serves; over TLS the service certificate is used."""
    certificate: Certificate | None = None
    if running.certificates:
        try:
            certificate = read_certificate(files_of(Path(running.certificates), SERVICE))
        except InvalidArgumentError as error:
            return [
                Finding(
                    "processes",
                    Level.ERROR,
                    f"cannot be checked: {error.message}",
                    "correct the certificates, or run this as the user who runs the cluster",
                )
            ]
    return await asyncio.gather(
        *(_process(name, each.address, certificate) for name, each in running.processes.items())
    )


async def _process(name: str, address: str, certificate: Certificate | None) -> Finding:
    over_http = name.startswith(GATEWAY)
    async with open_channel(address, certificate, over_http=over_http) as health:
        answer = await health.ask(TIMEOUT_S)
    if answer.status == "SERVING":
        return Finding(name, Level.OK, f"{address} serves")
    return Finding(
        name,
        Level.ERROR,
        f"{address} is {answer}",
        f"see what it waits for, or why it stopped, in logs/{name}.log in the cluster's directory",
    )


async def _ask_all(addresses: Iterable[str], way: Way) -> list["Answer | Finding"]:
    return await asyncio.gather(*(_ask(address, way(address)) for address in addresses))


async def _ask(address: str, access: Access) -> "Answer | Finding":
    """A worker's response, or a finding if it does not respond."""
    name = _name(address)
    try:
        credentials = access.credentials()
    except InvalidArgumentError as error:
        return Finding(
            name, Level.ERROR, f"cannot be checked: {error.message}", "correct that file"
        )
    try:
        async with channel(address, credentials) as connection:
            asked_s = time.time()
            info = await ConnectClient(connection).get_cluster_info(timeout_s=TIMEOUT_S)
            answered_s = time.time()
    except (UnauthenticatedError, PermissionDeniedError) as error:
        return _refused(name, error)
    except DroverError as error:
        refusal = await asyncio.to_thread(why_refused, address, access.tls)
        if refusal is not None:
            return Finding(name, Level.ERROR, refusal.why, refusal.remedy)
        return silent_worker(address, error)
    certificate = await _certificate(name, address) if access.tls else ()
    there_s = info.current_time.ToMilliseconds() / 1_000
    if not there_s:  # a worker of an earlier version
        return Answer(info, 0.0, certificate)
    ahead_s = there_s - answered_s if there_s > answered_s else min(there_s - asked_s, 0.0)
    return Answer(info, ahead_s, certificate)


def silent_worker(address: str, error: DroverError) -> Finding:
    """The finding for a worker that does not answer."""
    return Finding(
        _name(address),
        Level.ERROR,
        f"does not answer: {error.message}",
        "start it, or check the network to it; the other workers take over its connectors and"
        " tasks",
    )


def _refused(name: str, error: DroverError) -> Finding:
    """The finding for a worker that rejects this caller."""
    if isinstance(error, PermissionDeniedError):
        advice = "grant this principal the role viewer in the access file (docs/security.md)"
    else:
        advice = "give a valid token by DROVER_TOKEN or --token"
    return Finding(name, Level.ERROR, f"answers, but refuses: {error.message}", advice)


async def _certificate(name: str, address: str) -> tuple[Finding, ...]:
    shown = await asyncio.to_thread(shown_certificate, address)
    if shown is None or not ends_soon(shown):
        return ()
    return (
        Finding(
            name,
            Level.WARNING,
            f"its certificate expires on {shown.not_valid_after_utc:%Y-%m-%d %H:%M} UTC",
            "renew it on its machine; if the file there is newer, the worker's log has the reason"
            " why it is not loaded",
        ),
    )


def _name(address: str) -> str:
    return f"worker {address}"


def worker_findings(
    address: str, answer: "Answer | Finding", *, is_reported: bool = False
) -> list[Finding]:
    """Check a worker's response.

    Args:
        address: The worker's address.
        answer: Its response, or why there is none.
        is_reported: Whether the findings already report that its process does not serve.
    """
    if isinstance(answer, Finding):
        return [] if is_reported else [answer]
    name = _name(address)
    info = answer.info
    findings = [*answer.certificate, _clock(name, answer.ahead_s), _version(name, info.version)]
    if not info.spark_version and not is_reported:
        findings.append(
            Finding(
                name,
                Level.ERROR,
                "has no engine: Spark does not run there",
                "it may still be starting; otherwise see the worker's log, and check Java with"
                " `drover doctor` on its machine",
            )
        )
    bad = [each for each in findings if each.level is not Level.OK]
    memory = memory_text(info.engine_memory)
    summary = f"{info.stage or 'idle'}, Spark {info.spark_version}, clock and version agree"
    if memory:
        summary += f"; memory: {memory}"
    return bad or ([] if is_reported else [Finding(name, Level.OK, summary)])


def _clock(name: str, ahead_s: float) -> Finding:
    off_s = abs(ahead_s)
    if off_s < CLOCK_WARNING_S:
        return Finding(name, Level.OK, "its clock agrees")
    return Finding(
        name,
        Level.ERROR if off_s >= CLOCK_ERROR_S else Level.WARNING,
        f"its clock is {off_s:.0f} s {'ahead of' if ahead_s > 0 else 'behind'} this machine's",
        "synchronise both (chrony, systemd-timesyncd): record timestamps, retention, tokens and"
        " certificates depend on clocks",
    )


def _version(name: str, version: str) -> Finding:
    if version == drover.__version__:
        return Finding(name, Level.OK, f"version {version}")
    return Finding(
        name,
        Level.WARNING,
        f"its version is {version}, this command's is {drover.__version__}",
        "install the same version everywhere; during a rolling update a difference is expected",
    )


def _leader(known: Iterable[Answer]) -> Finding:
    leaders = {each.info.leader_worker_id for each in known if each.info.leader_worker_id}
    if len(leaders) == 1:
        return Finding("leader", Level.OK, leaders.pop())
    names = f"workers name {', '.join(sorted(leaders))}" if leaders else "no worker leads"
    return Finding(
        "leader",
        Level.WARNING,
        names,
        "a rebalance may be in progress: run this again; if it persists, `drover group describe`"
        " shows the members that the group waits for",
    )


async def _failures(address: str, way: Way) -> list[Finding]:
    """Report the connectors that failed, retry or hang."""
    try:
        async with channel(address, way(address).credentials()) as connection:
            client = ConnectClient(connection)
            listed = await client.list_connectors(include_status=True, timeout_s=TIMEOUT_S)
    except DroverError as error:
        return [Finding("connectors", Level.ERROR, f"cannot be listed: {error.message}")]
    return [
        *connector_findings([each.status for each in listed], now_ms=SystemClock().now_ms()),
        *(found for found in (quarantine_finding(each.status) for each in listed) if found),
    ]


def connector_findings(statuses: Sequence[pb.ConnectorStatus], *, now_ms: int) -> list[Finding]:
    """Report the connectors that failed, retry an operation, have been in one step for long, or run
    again after a failure in the last ten minutes.
    """
    all_failed = [each for each in statuses if _has_failed(each)]
    waiting = [each for each in all_failed if _engine_end(each)]
    failed = [each.name for each in all_failed if each not in waiting]
    tasks = [(each.name, task) for each in statuses for task in each.tasks]
    retrying = [each for each in tasks if is_retrying(each[1])]
    slow = [each for each in tasks if is_slow(each[1], now_ms) and not is_retrying(each[1])]
    process_changes = list(
        {name: note for name, task in tasks if (note := task.activity.process_change)}.items()
    )
    findings = []
    if failed:
        findings.append(
            Finding(
                "connectors",
                Level.ERROR,
                f"FAILED, or with FAILED tasks: {_named(failed)}",
                f"`{drover_command('connector status', failed[0])}` shows the cause and the time"
                " of the next retry",
            )
        )
    if waiting:
        names = _named([each.name for each in waiting])
        found = f"FAILED until their engine has restarted: {names}"
        findings.append(Finding("connectors", Level.ERROR, found, _engine_end(waiting[0])))
    lost = {each.name: cause for each in statuses if (cause := _why_unassigned(each))}
    if lost:
        found = f"UNASSIGNED, or with UNASSIGNED tasks: {_named(list(lost))}"
        findings.append(Finding("connectors", Level.WARNING, found, next(iter(lost.values()))))
    idle = [each.name for each in statuses if missing_tasks(each)]
    if idle:
        findings.append(
            Finding(
                "connectors",
                Level.WARNING,
                f"RUNNING without tasks: {_named(idle)}",
                "they are starting, or found nothing to read and look again: check that what their"
                " configs name exists, and that their users may read it",
            )
        )
    for name, task in retrying[:_NAMED_MAX]:
        note = next(task_notes(task, now_ms))
        findings.append(
            Finding(
                "connectors",
                Level.WARNING,
                f"task {task.task} of {name} {note}",
                f"`{drover_command('connector status', name)}` shows the retries; they end when the"
                " system answers",
            )
        )
    for name, task in slow[:_NAMED_MAX]:
        findings.append(
            Finding(
                "connectors",
                Level.WARNING,
                f"task {task.task} of {name} has been {doing_cell(task, now_ms)}",
                f"`{drover_command('connector describe', name)}` shows where its code is",
            )
        )
    for name, note in process_changes[:_NAMED_MAX]:
        findings.append(
            Finding(
                "connectors",
                Level.WARNING,
                f"{name}: {note}",
                f"`engine=own` in the config of {name} separates it from the others",
            )
        )
    again = [
        (status.name, note)
        for status in statuses
        if not _has_failed(status)
        for note in failure_notes(status, now_ms=now_ms, recent_ms=_RECENT_MS)
    ]
    for name, note in again[:_NAMED_MAX]:
        findings.append(
            Finding(
                "connectors",
                Level.WARNING,
                f"{name}: {note}",
                f"`{drover_command('connector describe', name)}` shows the last failures",
            )
        )
    left_out = len(again[_NAMED_MAX:]) + len(retrying[_NAMED_MAX:]) + len(slow[_NAMED_MAX:])
    if left_out:
        text = f"{left_out} more tasks retry, have been in one step for long, or failed before"
        findings.append(Finding("connectors", Level.WARNING, text))
    return findings or [Finding("connectors", Level.OK, f"{len(statuses)}, none failed")]


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return f"{', '.join(names[:_NAMED_MAX])}{more}"


def quarantine_finding(status: pb.ConnectorStatus) -> Finding | None:
    """Report a connector in quarantine or stopped there, with the reason; None for others."""
    traces = (status.connector.trace, *(task.trace for task in status.tasks))
    causes = [cause_in(trace) for trace in traces if IN_QUARANTINE in cause_in(trace)]
    if not causes:
        return None
    return Finding(
        f"connector {status.name}",
        Level.WARNING,
        causes[0],
        "its code or a library ends the engine process: change its config or update the plugin;"
        f" `{drover_command('connector restart', status.name)}` lets it return to the shared"
        " engine",
    )


def _engine_end(status: pb.ConnectorStatus) -> str:
    """Why the engine ended, if that is the only cause of its failures; empty otherwise."""
    states = [(status.connector.state, status.connector.failures, status.connector.trace)]
    states += [(task.state, task.failures, task.trace) for task in status.tasks]
    causes = []
    for state, failures, trace in states:
        if state == pb.RUN_STATE_FAILED:
            last = decode_failures(failures).last
            causes.append(cause_in(trace) if last and last.cause is FailureCause.ENGINE else "")
    return causes[0] if causes and all(causes) else ""


def _why_unassigned(status: pb.ConnectorStatus) -> str:
    """Why no worker runs a connector or one of its tasks; empty while they wait for a rebalance."""
    states = [(status.connector.state, status.connector.trace)]
    states += [(task.state, task.trace) for task in status.tasks]
    causes = [cause_in(trace) for state, trace in states if state == pb.RUN_STATE_UNASSIGNED]
    return next(filter(None, causes), "")


def _has_failed(status: pb.ConnectorStatus) -> bool:
    return pb.RUN_STATE_FAILED in (
        status.connector.state,
        *(task.state for task in status.tasks),
    )
