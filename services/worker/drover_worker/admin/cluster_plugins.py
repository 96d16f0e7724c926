"""The plugins of all workers, which may differ: who has which, and whom a connector would miss."""

import asyncio
from collections.abc import Mapping, Sequence

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.errors import DroverError, Violation
from drover_worker.admin.forwarding import ForwardedMethod, RequestForwarder
from drover_worker.admin.views import plugin_view
from drover_worker.core.requests.pending import HOP_COUNT_MAX
from drover_worker.shell.engine_link import EngineLink
from drover_worker.shell.herder_loop import HerderLoop

#: How long the leader is waited for, and by it each of the others.
_LEADER_TIMEOUT_S = 5.0
_WORKER_TIMEOUT_S = 2.0
#: How long an answer without a gap is good in one generation: new plugins come with new workers.
_KNOWN_S = 30.0

LIST = ForwardedMethod("ListPlugins", pb.ListPluginsRequest, pb.ListPluginsResponse)


class ClusterPlugins:
    """Asks this worker's engine, and by the leader every other worker."""

    def __init__(
        self,
        *,
        worker_id: str,
        loop: HerderLoop,
        engine: EngineLink,
        forwarder: RequestForwarder,
    ) -> None:
        self._worker_id = worker_id
        self._loop = loop
        self._engine = engine
        self._forwarder = forwarder
        self._known: pb.ListPluginsResponse | None = None
        self._known_generation = -1
        self._known_until_s = 0.0

    async def list_all(self, hop_count: int = 0) -> pb.ListPluginsResponse:
        """The plugins of all workers that answer, each version of a plugin once.

        Args:
            hop_count: How many workers forwarded the call before; the last one asks nobody.

        Raises:
            UnavailableError: ENGINE_UNAVAILABLE, on this worker.
        """
        membership = self._loop.herder.membership
        own = await self._own()
        if hop_count >= HOP_COUNT_MAX or not membership.settled:
            return own
        if membership.leads:
            others = [url for url in membership.assignments if url != self._worker_id]
            answers = await asyncio.gather(
                *(self._ask(url, HOP_COUNT_MAX, _WORKER_TIMEOUT_S) for url in others)
            )
            return merged({self._worker_id: own, **dict(zip(others, answers, strict=True))})
        if hop_count:
            return own
        leader = membership.leader_url
        answer = await self._ask(leader, 1, _LEADER_TIMEOUT_S)
        return answer or merged({self._worker_id: own, leader: None})

    async def faults(self, class_name: str) -> list[Violation]:
        """One fault when some workers lack the plugin that a config names and others have it.

        A worker that does not answer is no reason to refuse.
        """
        try:
            fault = missing_fault(class_name, await self._listing())
        except DroverError:
            return []
        return [fault] if fault is not None else []

    async def _listing(self) -> pb.ListPluginsResponse:
        """The last answer while it is good; one with a gap is good for nothing but telling it."""
        generation = self._loop.herder.context.generation
        now_s = asyncio.get_running_loop().time()
        known = self._known
        if known is None or generation != self._known_generation or now_s >= self._known_until_s:
            known = await self.list_all()
            whole = not any(plugin.worker_ids for plugin in known.plugins)
            self._known_generation = generation
            self._known_until_s = now_s + (_KNOWN_S if whole else 0.0)
            self._known = known
        return known

    async def _own(self) -> pb.ListPluginsResponse:
        plugins = await self._engine.load_plugins()
        response = pb.ListPluginsResponse(worker_ids=[self._worker_id])
        for each in plugins.installed():
            shown = plugin_view(each)
            shown.load_time.FromMilliseconds(plugins.loaded_ms)
            response.plugins.append(shown)
        return response

    async def _ask(
        self, worker_url: str, hop_count: int, timeout_s: float
    ) -> pb.ListPluginsResponse | None:
        """What another worker answers; None when it does not."""
        try:
            return await self._forwarder.forward(
                LIST,
                pb.ListPluginsRequest(),
                self._loop.herder.membership.call_url(worker_url),
                author="",
                hop_count=hop_count,
                timeout_s=timeout_s,
            )
        except DroverError:
            return None


def merged(answers: Mapping[str, pb.ListPluginsResponse | None]) -> pb.ListPluginsResponse:
    """What each worker has, by worker id, as one answer; None for a worker that is silent."""
    found: dict[tuple[str, str], tuple[pb.Plugin, list[str]]] = {}
    told = {worker_id: answer for worker_id, answer in sorted(answers.items()) if answer}
    for worker_id, answer in told.items():
        for plugin in answer.plugins:
            key = (plugin.class_name, plugin.version)
            first, worker_ids = found.setdefault(key, (plugin, []))
            worker_ids.append(worker_id)
            if first.load_time.ToNanoseconds() < plugin.load_time.ToNanoseconds():
                first.load_time.CopyFrom(plugin.load_time)
    response = pb.ListPluginsResponse(
        worker_ids=told, silent_worker_ids=sorted(answers.keys() - told.keys())
    )
    for _, (plugin, worker_ids) in sorted(found.items(), key=lambda each: each[0]):
        response.plugins.append(plugin)
        if len(worker_ids) < len(told):
            response.plugins[-1].worker_ids.extend(worker_ids)
    return response


def missing_fault(class_name: str, listing: pb.ListPluginsResponse) -> Violation | None:
    """Where a plugin is missing, when it is somewhere; None when it is everywhere or nowhere."""
    versions = [p for p in listing.plugins if class_name in (p.class_name, *p.aliases)]
    having = {worker for each in versions for worker in each.worker_ids or listing.worker_ids}
    lacking = [worker for worker in listing.worker_ids if worker not in having]
    if not having or not lacking:
        return None
    return Violation(
        'config["connector.class"]',
        f"{class_name} is not installed on {_listed(lacking)}, only on {_listed(sorted(having))}:"
        " a connector's tasks may run on any worker, so install it on all and restart those",
    )


def _listed(worker_ids: Sequence[str], most: int = 5) -> str:
    more = f" and {len(worker_ids) - most} more" if len(worker_ids) > most else ""
    return ", ".join(worker_ids[:most]) + more
