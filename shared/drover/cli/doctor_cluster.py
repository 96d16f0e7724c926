"""Looks at a cluster: its processes, versions, clocks, engines, leader, and what has failed."""

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import drover
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.doctor_finding import Finding, Level
from drover.cli.health import HealthChannel
from drover.cli.state import ClusterState
from drover.client import ConnectClient, channel
from drover.errors import DroverError

TIMEOUT_S = 5.0
#: Certificates, retention and schedules go by clocks; a rebalance does not.
CLOCK_WARNING_S, CLOCK_ERROR_S = 2.0, 60.0
_NAMED_MAX = 10


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a worker says, and by how much its clock is ahead of this one at least."""

    info: pb.GetClusterInfoResponse
    ahead_s: float


async def look_at_cluster(workers: Sequence[str], running: ClusterState | None) -> list[Finding]:
    """What is found.

    Args:
        workers: Addresses of some; the others are asked as well.
        running: The cluster that runs on this machine, if it is that.
    """
    findings: list[Finding] = []
    if running is not None:
        findings += await asyncio.gather(
            *(_process(name, each.address) for name, each in running.processes.items())
        )
    answers = dict(zip(workers, await asyncio.gather(*map(_ask, workers)), strict=True))
    known = [a for a in answers.values() if isinstance(a, _Answer)]
    others = {each.worker_id for a in known for each in a.info.workers} - answers.keys()
    answers |= dict(zip(others, await asyncio.gather(*map(_ask, others)), strict=True))
    for address, answer in answers.items():
        findings += _worker(address, answer)
    reached = {where: a for where, a in answers.items() if isinstance(a, _Answer)}
    if reached:
        findings += [_leader(reached.values()), *await _failures(next(iter(reached)))]
    return findings


async def _process(name: str, address: str) -> Finding:
    async with HealthChannel(address) as health:
        status = await health.status(TIMEOUT_S)
    if status == "SERVING":
        return Finding(name, Level.OK, f"{address} serves")
    return Finding(
        name,
        Level.ERROR,
        f"{address} is {status}",
        f"its log says what it waits for, or why it ended: logs/{name}.log of the cluster",
    )


async def _ask(address: str) -> "_Answer | DroverError":
    try:
        async with channel(address) as connection:
            asked_s = time.time()
            info = await ConnectClient(connection).get_cluster_info(timeout_s=TIMEOUT_S)
            answered_s = time.time()
    except DroverError as error:
        return error
    there_s = info.current_time.ToMilliseconds() / 1_000
    if not there_s:  # a worker of an earlier version
        return _Answer(info, 0.0)
    ahead_s = there_s - answered_s if there_s > answered_s else min(there_s - asked_s, 0.0)
    return _Answer(info, ahead_s)


def _worker(address: str, answer: "_Answer | DroverError") -> list[Finding]:
    name = f"worker {address}"
    if isinstance(answer, DroverError):
        return [
            Finding(
                name,
                Level.ERROR,
                f"does not answer: {answer.message}",
                "is it running, and can this machine reach it? Its work goes to others, if there"
                " are others",
            )
        ]
    info = answer.info
    findings = [_clock(name, answer.ahead_s), _version(name, info.version)]
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


async def _failures(address: str) -> list[Finding]:
    """The connectors with something FAILED."""
    try:
        async with channel(address) as connection:
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
