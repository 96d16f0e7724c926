"""GetClusterInfo: the workers, their connectors and tasks, and their health."""

import asyncio
import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.codec.common import encode_duration
from drover.errors import DroverError
from drover.model.ids import TaskId
from drover.model.status import StatusKey
from drover_worker.admin.call import AdminCall
from drover_worker.admin.forwarding import ForwardedMethod, RequestForwarder, WorkerClients
from drover_worker.core.requests.pending import HOP_COUNT_MAX
from drover_worker.settings import WorkerSettings
from drover_worker.shell.engine_link import EngineLink
from drover_worker.shell.engines import EngineDescription, LimitKind
from drover_worker.shell.herder_loop import HerderLoop
from drover_worker.shell.worker_processes import WorkerProcesses

#: How long a worker waits for the leader, and the leader for each other worker.
_LEADER_TIMEOUT_S = 4.0
_HEALTH_TIMEOUT_S = 1.5

_LIMITS: Mapping[LimitKind, pb.EngineLimit.ValueType] = {
    LimitKind.NONE: pb.ENGINE_LIMIT_NONE,
    LimitKind.CONTROL_GROUP: pb.ENGINE_LIMIT_CONTROL_GROUP,
    LimitKind.RLIMIT: pb.ENGINE_LIMIT_RLIMIT,
    LimitKind.SPARK: pb.ENGINE_LIMIT_SPARK,
}

GET_INFO = ForwardedMethod("GetClusterInfo", pb.GetClusterInfoRequest, pb.GetClusterInfoResponse)


class ClusterInfo:
    """Describes the cluster: this worker from its own state, all workers from the leader's."""

    def __init__(
        self,
        *,
        settings: WorkerSettings,
        worker_id: str,
        loop: HerderLoop,
        engine: EngineLink,
        forwarder: RequestForwarder,
        workers: WorkerClients,
        processes: WorkerProcesses,
    ) -> None:
        self._settings = settings
        self._worker_id = worker_id
        self._loop = loop
        self._engine = engine
        self._forwarder = forwarder
        self._workers = workers
        self._processes = processes

    async def get(
        self, request: pb.GetClusterInfoRequest, call: AdminCall
    ) -> pb.GetClusterInfoResponse:
        """Describe the cluster, without waiting for a rebalance.

        A follower asks the leader for the list of workers, unless the call was forwarded.
        """
        membership = self._loop.herder.membership
        info = self._own_info()
        if membership.leads:
            await self._add_workers(info)
        elif not call.hop_count and membership.settled:
            try:
                leader_info = await self._forwarder.forward(
                    GET_INFO,
                    request,
                    membership.call_url(membership.leader_url),
                    author=call.principal.name,
                    hop_count=HOP_COUNT_MAX,
                    timeout_s=min(_LEADER_TIMEOUT_S, call.deadline.remaining_s()),
                )
            except DroverError:
                self._add_without_leader(info)
            else:
                info.workers.extend(leader_info.workers)
        return _filtered(info, call)

    async def _add_workers(self, info: pb.GetClusterInfoResponse) -> None:
        """Add the assignment, state and health of each worker."""
        membership = self._loop.herder.membership
        assignments = sorted(membership.assignments.items())
        draining = dict(membership.draining)
        healths, infos = await asyncio.gather(
            asyncio.gather(*(self._health(url) for url, _ in assignments)),
            asyncio.gather(*(self._info_of(url, info) for url, _ in assignments)),
        )
        for (worker_url, assignment), health, own in zip(assignments, healths, infos, strict=True):
            held = draining.get(worker_url)
            keys = assignment.keys if held is None else held
            info.workers.add(
                worker_id=worker_url,
                connectors=[key for key in keys if not isinstance(key, TaskId)],
                tasks=[str(key) for key in keys if isinstance(key, TaskId)],
                leader=worker_url == self._worker_id,
                state=_state(held),
                health=health,
                engine_memory=own.engine_memory if own.HasField("engine_memory") else None,
                usage=own.usage if own.HasField("usage") else None,
            )

    def _add_without_leader(self, info: pb.GetClusterInfoResponse) -> None:
        """Add this worker and an unreachable leader, if the leader does not respond."""
        work = self._loop.herder.work
        own = pb.WorkerInfo(
            worker_id=self._worker_id,
            connectors=sorted(work.connectors),
            tasks=[str(task) for task in sorted(work.tasks)],
            health=self._own_health(),
            engine_memory=info.engine_memory,
            usage=info.usage,
        )
        leader = pb.WorkerInfo(
            worker_id=info.leader_worker_id, leader=True, health=pb.WORKER_HEALTH_UNREACHABLE
        )
        info.workers.extend(sorted((own, leader), key=lambda each: each.worker_id))

    async def _health(self, worker_url: str) -> pb.WorkerHealth.ValueType:
        if worker_url == self._worker_id:
            return self._own_health()
        worker = self._workers.get(self._loop.herder.membership.call_url(worker_url))
        try:
            serves = await worker.serves(timeout_s=_HEALTH_TIMEOUT_S)
        except DroverError:
            return pb.WORKER_HEALTH_UNREACHABLE
        return pb.WORKER_HEALTH_SERVING if serves else pb.WORKER_HEALTH_NOT_SERVING

    async def _info_of(
        self, worker_url: str, own: pb.GetClusterInfoResponse
    ) -> pb.GetClusterInfoResponse:
        """The response of one worker; empty if it does not answer."""
        if worker_url == self._worker_id:
            return own
        found = await self._forwarder.ask(
            GET_INFO, pb.GetClusterInfoRequest(), worker_url, timeout_s=_HEALTH_TIMEOUT_S
        )
        return found or pb.GetClusterInfoResponse()

    def _own_health(self) -> pb.WorkerHealth.ValueType:
        serves = not self._loop.why_not_serving()
        return pb.WORKER_HEALTH_SERVING if serves else pb.WORKER_HEALTH_NOT_SERVING

    def _own_info(self) -> pb.GetClusterInfoResponse:
        """The part of the response that does not need the leader."""
        herder = self._loop.herder
        membership = herder.membership
        usage = self._processes.usage()
        info = pb.GetClusterInfoResponse(
            version=importlib.metadata.version("drover-connect"),
            group_id=self._settings.group_id,
            worker_id=self._worker_id,
            leader_worker_id=membership.leader_url,
            generation=max(herder.context.generation, 0),
            protocol_name=membership.protocol_name,
            stage=herder.describe_stage(),
            storage_url=self._settings.storage_url,
            spark_version=self._engine.spark_version,
            kafka_cluster_id=self._engine.kafka_cluster_id,
            engines=[_encode_engine(each) for each in self._engine.describe_engines()],
            engine_memory=pb.EngineMemory(**asdict(usage.engine_memory)),
            usage=pb.WorkerUsage(
                worker_bytes=usage.worker_bytes,
                cpu=encode_duration(usage.cpu_ms),
                uptime=encode_duration(usage.uptime_ms),
                core_count=usage.core_count,
            ),
        )
        info.current_time.GetCurrentTime()
        return info


def _state(held: Sequence[StatusKey] | None) -> pb.WorkerState.ValueType:
    """The state of a worker with its remaining work; None if it is not draining."""
    if held is None:
        return pb.WORKER_STATE_ACTIVE
    return pb.WORKER_STATE_DRAINING if held else pb.WORKER_STATE_DRAINED


def _encode_engine(engine: EngineDescription) -> pb.EngineInfo:
    limits = engine.limits
    return pb.EngineInfo(
        name=engine.slot.name,
        up=engine.up,
        memory_bytes=engine.slot.memory_bytes or 0,
        cores=engine.slot.cores or 0,
        memory_limit=_LIMITS[limits.memory] if limits else pb.ENGINE_LIMIT_UNSPECIFIED,
        cores_limit=_LIMITS[limits.cores] if limits else pb.ENGINE_LIMIT_UNSPECIFIED,
    )


def _filtered(info: pb.GetClusterInfoResponse, call: AdminCall) -> pb.GetClusterInfoResponse:
    """Remove the connectors that the caller may not see."""
    for worker in info.workers:
        worker.connectors[:] = [name for name in worker.connectors if call.may_see(name)]
        # a task's id is its connector's name, a dash and a number
        worker.tasks[:] = [t for t in worker.tasks if call.may_see(t.rpartition("-")[0])]
    visible = [each for each in info.engines if _may_see_engine(each.name, call)]
    del info.engines[:]
    info.engines.extend(visible)
    return info


def _may_see_engine(name: str, call: AdminCall) -> bool:
    """Whether the caller may see the connector that an engine is named after, if there is one."""
    _, slash, connector = name.partition("/")
    return not slash or call.may_see(connector)
