"""Looks at a cluster: its processes, versions, clocks, engines, leader, and what has failed."""

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
from drover.security.certificates import Certificate, read_certificate
from drover.security.development_ca import SERVICE, files_of

TIMEOUT_S = 5.0
#: Certificates, retention and schedules go by clocks; a rebalance does not.
CLOCK_WARNING_S, CLOCK_ERROR_S = 2.0, 60.0
_NAMED_MAX = 10


#: Finds the way to an address.
Way = Callable[[str], Access]


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a worker says, and by how much its clock is ahead of this one at least."""

    info: pb.GetClusterInfoResponse
    ahead_s: float
    #: What is wrong with the certificate that it shows.
    certificate: tuple[Finding, ...] = ()


async def look_at_cluster(
    workers: Sequence[str], running: ClusterState | None, way: Way
) -> list[Finding]:
    """What is found.

    Args:
        workers: Addresses of some; the others are asked as well.
        running: The cluster that runs on this machine, if it is that.
        way: How workers are reached.
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
    """Whether each serves; over TLS they are asked by their own certificate."""
    certificate: Certificate | None = None
    if running.certificates:
        try:
            certificate = read_certificate(files_of(Path(running.certificates), SERVICE))
        except InvalidArgumentError as error:
            return [
                Finding(
                    "processes",
                    Level.ERROR,
                    f"cannot be asked: {error.message}",
                    "mend the certificates, or run this as the user who runs the cluster",
                )
            ]
    return await asyncio.gather(
        *(_process(name, each.address, certificate) for name, each in running.processes.items())
    )


async def _process(name: str, address: str, certificate: Certificate | None) -> Finding:
    async with HealthChannel(address, certificate) as health:
        found = await health.ask(TIMEOUT_S)
    if found.status == "SERVING":
        return Finding(name, Level.OK, f"{address} serves")
    return Finding(
        name,
        Level.ERROR,
        f"{address} is {found}",
        f"its log says what it waits for, or why it ended: logs/{name}.log of the cluster",
    )


async def _ask_all(addresses: Iterable[str], way: Way) -> list["_Answer | Finding"]:
    return await asyncio.gather(*(_ask(address, way(address)) for address in addresses))


async def _ask(address: str, access: Access) -> "_Answer | Finding":
    """What a worker answers, or why it does not."""
    name = _name(address)
    try:
        credentials = access.credentials()
    except InvalidArgumentError as error:
        return Finding(name, Level.ERROR, f"cannot be asked: {error.message}", "mend that file")
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
            "is it running, and can this machine reach it? Its work goes to others, if there are"
            " others",
        )
    certificate = await _certificate(name, address) if access.tls else ()
    there_s = info.current_time.ToMilliseconds() / 1_000
    if not there_s:  # a worker of an earlier version
        return _Answer(info, 0.0, certificate)
    ahead_s = there_s - answered_s if there_s > answered_s else min(there_s - asked_s, 0.0)
    return _Answer(info, ahead_s, certificate)


def _refused(name: str, error: DroverError) -> Finding:
    """It answers, but not to this caller."""
    if isinstance(error, PermissionDeniedError):
        advice = "have the role viewer granted in the cluster's access file (docs/security.md)"
    else:
        advice = "give a token that holds, by DROVER_TOKEN or --token"
    return Finding(name, Level.ERROR, f"answers, but refuses: {error.message}", advice)


async def _certificate(name: str, address: str) -> tuple[Finding, ...]:
    shown = await asyncio.to_thread(shown_certificate, address)
    if shown is None or not ends_soon(shown):
        return ()
    return (
        Finding(
            name,
            Level.WARNING,
            f"the certificate that it shows ends on {shown.not_valid_after_utc:%Y-%m-%d %H:%M} UTC",
            "renew it on its machine; if the file there is newer, the worker's log says why it is"
            " not used",
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
                "it may be starting; else the worker's log says why, and `drover doctor` on its"
                " machine checks Java",
            )
        )
    bad = [each for each in findings if each.level is not Level.OK]
    told = f"{info.stage or 'idle'}, Spark {info.spark_version}, clock and version agree"
    return bad or [Finding(name, Level.OK, told)]


def _clock(name: str, ahead_s: float) -> Finding:
    off_s = abs(ahead_s)
    if off_s < CLOCK_WARNING_S:
        return Finding(name, Level.OK, "its clock agrees")
    return Finding(
        name,
        Level.ERROR if off_s >= CLOCK_ERROR_S else Level.WARNING,
        f"its clock is {off_s:.0f} s {'ahead of' if ahead_s > 0 else 'behind'} this machine's",
        "synchronise both (chrony, systemd-timesyncd): times of records, retention, tokens and"
        " certificates go by clocks",
    )


def _version(name: str, version: str) -> Finding:
    if version == drover.__version__:
        return Finding(name, Level.OK, f"version {version}")
    return Finding(
        name,
        Level.WARNING,
        f"its version is {version}, this command's is {drover.__version__}",
        "install the same version everywhere; during a rolling update that is as it should be",
    )


def _leader(known: Iterable[_Answer]) -> Finding:
    leaders = {each.info.leader_worker_id for each in known if each.info.leader_worker_id}
    if len(leaders) == 1:
        return Finding("leader", Level.OK, leaders.pop())
    told = f"workers name {', '.join(sorted(leaders))}" if leaders else "no worker leads"
    return Finding(
        "leader",
        Level.WARNING,
        told,
        "a rebalance may be under way: look again; if it stays so, `drover group describe` shows"
        " whom the group waits for",
    )


async def _failures(address: str, way: Way) -> list[Finding]:
    """The connectors with something FAILED."""
    try:
        async with channel(address, way(address).credentials()) as connection:
            client = ConnectClient(connection)
            listed = await client.list_connectors(include_status=True, timeout_s=TIMEOUT_S)
    except DroverError as error:
        return [Finding("connectors", Level.ERROR, f"cannot be listed: {error.message}")]
    failed = [each.name for each in listed if _has_failed(each.status)]
    if not failed:
        return [Finding("connectors", Level.OK, f"{len(listed)}, and nothing of them has failed")]
    more = f" and {len(failed) - _NAMED_MAX} more" if len(failed) > _NAMED_MAX else ""
    return [
        Finding(
            "connectors",
            Level.ERROR,
            f"something has failed of {', '.join(failed[:_NAMED_MAX])}{more}",
            f"drover connector status {failed[0]} says why, and when it is tried again",
        )
    ]


def _has_failed(status: pb.ConnectorStatus) -> bool:
    return pb.RUN_STATE_FAILED in (
        status.connector.state,
        *(task.state for task in status.tasks),
    )
