"""Checks a cluster: processes, versions, clocks, engines, leader, failed connectors and tasks."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import drover
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.access import Access
from drover.cli.doctor.certificates import ends_soon
from drover.cli.doctor.finding import Finding, Level
from drover.client import ConnectClient, channel
from drover.errors import (
    DroverError,
    InvalidArgumentError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from drover.local.health import HealthChannel
from drover.local.state import ClusterState
from drover.local.tls_check import shown_certificate, why_refused
from drover.model.failures import IN_QUARANTINE, cause_in
from drover.security.certificates import Certificate, read_certificate
from drover.security.development_ca import SERVICE, files_of

TIMEOUT_S = 5.0
#: Certificates, retention and schedules depend on wall clocks; rebalances do not.
CLOCK_WARNING_S, CLOCK_ERROR_S = 2.0, 60.0
_NAMED_MAX = 10


#: Returns the access to an address.
Way = Callable[[str], Access]


@dataclass(frozen=True, slots=True)
class _Answer:
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
    findings: list[Finding] = []
    if running is not None:
        findings += await _processes(running)
    answers = dict(zip(workers, await _ask_all(workers, way), strict=True))
    known = [a for a in answers.values() if isinstance(a, _Answer)]
    others = {each.worker_id for a in known for each in a.info.workers} - answers.keys()
    answers |= dict(zip(others, await _ask_all(others, way), strict=True))
    for address, answer in answers.items():
        findings += _worker(address, answer)
    reached = {where: a for where, a in answers.items() if isinstance(a, _Answer)}
    if reached:
        findings += [_leader(reached.values()), *await _failures(next(iter(reached)), way)]
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
    async with HealthChannel(address, certificate) as health:
        answer = await health.ask(TIMEOUT_S)
    if answer.status == "SERVING":
        return Finding(name, Level.OK, f"{address} serves")
    return Finding(
        name,
        Level.ERROR,
        f"{address} is {answer}",
        f"see what it waits for, or why it stopped, in logs/{name}.log in the cluster's directory",
    )


async def _ask_all(addresses: Iterable[str], way: Way) -> list["_Answer | Finding"]:
    return await asyncio.gather(*(_ask(address, way(address)) for address in addresses))


async def _ask(address: str, access: Access) -> "_Answer | Finding":
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
        return Finding(
            name,
            Level.ERROR,
            f"does not answer: {error.message}",
            "start it, or check the network to it; the other workers take over its connectors and"
            " tasks",
        )
    certificate = await _certificate(name, address) if access.tls else ()
    there_s = info.current_time.ToMilliseconds() / 1_000
    if not there_s:  # a worker of an earlier version
        return _Answer(info, 0.0, certificate)
    ahead_s = there_s - answered_s if there_s > answered_s else min(there_s - asked_s, 0.0)
    return _Answer(info, ahead_s, certificate)


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


def _worker(address: str, answer: "_Answer | Finding") -> list[Finding]:
    if isinstance(answer, Finding):
        return [answer]
    name = _name(address)
    info = answer.info
    findings = [*answer.certificate, _clock(name, answer.ahead_s), _version(name, info.version)]
    if not info.spark_version:
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
    summary = f"{info.stage or 'idle'}, Spark {info.spark_version}, clock and version agree"
    return bad or [Finding(name, Level.OK, summary)]


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


def _leader(known: Iterable[_Answer]) -> Finding:
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
    """Report the connectors that are FAILED or have FAILED tasks."""
    try:
        async with channel(address, way(address).credentials()) as connection:
            client = ConnectClient(connection)
            listed = await client.list_connectors(include_status=True, timeout_s=TIMEOUT_S)
    except DroverError as error:
        return [Finding("connectors", Level.ERROR, f"cannot be listed: {error.message}")]
    quarantined = [each for each in (_quarantine(each) for each in listed) if each is not None]
    failed = [each.name for each in listed if _has_failed(each.status)]
    if not failed:
        return [Finding("connectors", Level.OK, f"{len(listed)}, none failed"), *quarantined]
    more = f" and {len(failed) - _NAMED_MAX} more" if len(failed) > _NAMED_MAX else ""
    return [
        Finding(
            "connectors",
            Level.ERROR,
            f"FAILED, or with FAILED tasks: {', '.join(failed[:_NAMED_MAX])}{more}",
            f"`drover connector status {failed[0]}` shows the cause and the time of the next retry",
        ),
        *quarantined,
    ]


def _quarantine(each: pb.ListConnectorsResponse.Entry) -> Finding | None:
    """A connector in quarantine or stopped there, with the reason; None for others."""
    traces = (each.status.connector.trace, *(task.trace for task in each.status.tasks))
    causes = [cause_in(trace) for trace in traces if IN_QUARANTINE in cause_in(trace)]
    if not causes:
        return None
    return Finding(
        f"connector {each.name}",
        Level.WARNING,
        causes[0],
        "its code or a library ends the engine process: change its config or update the plugin;"
        f" `drover connector restart {each.name}` lets it return to the shared engine",
    )


def _has_failed(status: pb.ConnectorStatus) -> bool:
    return pb.RUN_STATE_FAILED in (
        status.connector.state,
        *(task.state for task in status.tasks),
    )
