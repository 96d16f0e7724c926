"""The plugins of all workers, and plugins that some workers lack."""

import asyncio
from collections.abc import Mapping, Sequence

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.errors import DroverError, Violation
from drover_worker.admin.forwarding import ForwardedMethod, RequestForwarder
from drover_worker.admin.views import plugin_view
from drover_worker.core.requests.pending import HOP_COUNT_MAX
from drover_worker.shell.engine_link import EngineLink
from drover_worker.shell.herder_loop import HerderLoop

#: How long a worker waits for the leader, and the leader for each other worker.
_LEADER_TIMEOUT_S = 5.0
_WORKER_TIMEOUT_S = 2.0
#: How long a listing without a missing plugin is cached within a generation; new plugins come with
#: new workers.
_CACHED_S = 30.0

LIST = ForwardedMethod("ListPlugins", pb.ListPluginsRequest, pb.ListPluginsResponse)


class ClusterPlugins:
    """Lists the plugins of this worker's engine and, through the leader, of all other workers."""

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
        self._cached: pb.ListPluginsResponse | None = None
        self._cached_generation = -1
        self._cached_until_s = 0.0

    async def list_all(self, hop_count: int = 0) -> pb.ListPluginsResponse:
        """The plugins of all reachable workers, each version of a plugin once.

        Args:
            hop_count: How many workers forwarded the call; at the maximum only this worker's
                plugins are listed.

        Raises:
            UnavailableError: ENGINE_UNAVAILABLE, on this worker.
        """
        membership = self._loop.herder.membership
        own = await self._own()
        if hop_count >= HOP_COUNT_MAX or not membership.settled:
            return own
        if membership.leads:
            others = [url for url in membership.assignments if url != self._worker_id]
            responses = await asyncio.gather(
                *(self._list_of(url, HOP_COUNT_MAX, _WORKER_TIMEOUT_S) for url in others)
            )
            return merged({self._worker_id: own, **dict(zip(others, responses, strict=True))})
        if hop_count:
            return own
        leader = membership.leader_url
        response = await self._list_of(leader, 1, _LEADER_TIMEOUT_S)
        return response or merged({self._worker_id: own, leader: None})

    async def faults(self, class_name: str) -> list[Violation]:
        """A violation if some workers have the plugin and others lack it.

        Unreachable workers are ignored.
        """
        try:
            fault = missing_fault(class_name, await self._listing())
        except DroverError:
            return []
        return [fault] if fault is not None else []

    async def _listing(self) -> pb.ListPluginsResponse:
        """The cached listing while it is valid; a listing with a missing plugin is not cached."""
        generation = self._loop.herder.context.generation
        now_s = asyncio.get_running_loop().time()
        listing = self._cached
        expired = generation != self._cached_generation or now_s >= self._cached_until_s
        if listing is None or expired:
            listing = await self.list_all()
            complete = not any(plugin.worker_ids for plugin in listing.plugins)
            self._cached_generation = generation
            self._cached_until_s = now_s + (_CACHED_S if complete else 0.0)
            self._cached = listing
        return listing

    async def _own(self) -> pb.ListPluginsResponse:
        plugins = await self._engine.load_plugins()
        response = pb.ListPluginsResponse(worker_ids=[self._worker_id])
        for each in plugins.installed():
            shown = plugin_view(each)
            shown.load_time.FromMilliseconds(plugins.loaded_ms)
            response.plugins.append(shown)
        return response

    async def _list_of(
        self, worker_url: str, hop_count: int, timeout_s: float
    ) -> pb.ListPluginsResponse | None:
        """The plugins of another worker; None if it cannot be reached."""
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


def merged(responses: Mapping[str, pb.ListPluginsResponse | None]) -> pb.ListPluginsResponse:
    """Merge the listings of all workers, by worker id; None for a worker that did not respond."""
    by_version: dict[tuple[str, str], tuple[pb.Plugin, list[str]]] = {}
    listings = {worker_id: each for worker_id, each in sorted(responses.items()) if each}
    for worker_id, listing in listings.items():
        for plugin in listing.plugins:
            key = (plugin.class_name, plugin.version)
            first, worker_ids = by_version.setdefault(key, (plugin, []))
            worker_ids.append(worker_id)
            if first.load_time.ToNanoseconds() < plugin.load_time.ToNanoseconds():
                first.load_time.CopyFrom(plugin.load_time)
    response = pb.ListPluginsResponse(
        worker_ids=listings, silent_worker_ids=sorted(responses.keys() - listings.keys())
    )
    for _, (plugin, worker_ids) in sorted(by_version.items(), key=lambda each: each[0]):
        response.plugins.append(plugin)
        if len(worker_ids) < len(listings):
            response.plugins[-1].worker_ids.extend(worker_ids)
    return response


def missing_fault(class_name: str, listing: pb.ListPluginsResponse) -> Violation | None:
    """A violation if a plugin is installed on some workers only; None if on all or on none."""
    versions = [p for p in listing.plugins if class_name in (p.class_name, *p.aliases)]
    having = {worker for each in versions for worker in each.worker_ids or listing.worker_ids}
    lacking = [worker for worker in listing.worker_ids if worker not in having]
    if not having or not lacking:
        return None
    return Violation(
        'config["connector.class"]',
        f"{class_name} is not installed on {_listed(lacking)}, only on {_listed(sorted(having))}:"
        " tasks may run on any worker, so install the plugin on all workers and restart the ones"
        " without it",
    )


def _listed(worker_ids: Sequence[str], most: int = 5) -> str:
    more = f" and {len(worker_ids) - most} more" if len(worker_ids) > most else ""
    return ", ".join(worker_ids[:most]) + more
