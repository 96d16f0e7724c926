"""Makes a worker load plugins that were installed after its engine started."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.codec.common import invalid_field
from drover.errors import DeadlineExceededError, FailedPreconditionError, Reason
from drover.java_plugins.changes import removed_classes
from drover.model.status import StatusKey
from drover_worker.admin.call import AdminCall
from drover_worker.admin.cluster_plugins import class_settings
from drover_worker.admin.forwarding import ForwardedMethod, RequestForwarder
from drover_worker.core.requests.pending import HOP_COUNT_MAX
from drover_worker.shell.herder_loop import HerderLoop
from drover_worker.shell.known_plugins import KnownPlugins
from drover_worker.shell.package_changes import PackageChanges
from drover_worker.shell.replaceable_engine import Moves

RELOAD = ForwardedMethod("ReloadPlugins", pb.ReloadPluginsRequest, pb.ReloadPluginsResponse)

#: Replaces this worker's engine; returns how many connectors and tasks moved to the new one.
ReplaceEngine = Callable[[Moves], Awaitable[int]]


class PluginReload:
    """Replaces the engine of this worker, or forwards the call to the named worker.

    Args:
        worker_id: This worker.
        loop: Its herder.
        plugins: What its engine has reported.
        forwarder: Calls other workers.
        replace_engine: Replaces the engine.
        plugin_modules: Modules that configs may name without an entry point.
        changes_since: The Python packages that changed since a time.
        java_changes: The changed Java plugin of each class that changed since a time.
        java_classes: The Java classes that are installed now, with the names of their plugins.
    """

    def __init__(
        self,
        *,
        worker_id: str,
        loop: HerderLoop,
        plugins: KnownPlugins,
        forwarder: RequestForwarder,
        replace_engine: ReplaceEngine,
        plugin_modules: Sequence[str] = (),
        changes_since: Callable[[int], PackageChanges] = PackageChanges,
        java_changes: Callable[[int], Mapping[str, str]] = lambda _since_ms: {},
        java_classes: Callable[[], frozenset[tuple[str, str]]] = frozenset,
    ) -> None:
        self._worker_id = worker_id
        self._loop = loop
        self._plugins = plugins
        self._forwarder = forwarder
        self._replace_engine = replace_engine
        self._plugin_modules = plugin_modules
        self._changes_since = changes_since
        self._java_changes = java_changes
        self._java_classes = java_classes
        #: The Java classes at the worker's start; reading the jars of many plugins takes seconds.
        self._java_at_start = asyncio.ensure_future(asyncio.to_thread(java_classes))
        #: The Java classes at the last reload; None before the first one.
        self._java_before: frozenset[tuple[str, str]] | None = None
        self._reloading: asyncio.Task[pb.ReloadPluginsResponse] | None = None
        self._reloads_all = False

    async def reload(
        self, request: pb.ReloadPluginsRequest, call: AdminCall
    ) -> pb.ReloadPluginsResponse:
        """Replace a worker's engine if packages changed; concurrent calls wait for the same
        replacement.

        Raises:
            UnavailableError: ENGINE_UNAVAILABLE, the new engine did not start.
            InvalidArgumentError: INVALID_REQUEST, the worker is not in the group.
            FailedPreconditionError: NOT_LEADER, this worker cannot forward the call.
            DeadlineExceededError: The replacement continues.
        """
        if request.worker_id in ("", self._worker_id):
            try:
                async with asyncio.timeout(call.deadline.remaining_s()):
                    return await self._joined_reload(everything=request.all)
            except TimeoutError:
                text = "the engine is still being replaced: call again to wait for it"
                raise DeadlineExceededError(Reason.DEADLINE_EXCEEDED, text) from None
        return await self._forwarder.forward(
            RELOAD,
            request,
            self._address_of(request.worker_id, call.hop_count),
            author=call.principal.name,
            hop_count=call.hop_count + 1,
            timeout_s=call.deadline.forwarded_s(),
        )

    async def _joined_reload(self, *, everything: bool) -> pb.ReloadPluginsResponse:
        """The response of the reload in progress, or of a new one; it survives its caller."""
        while self._reloading is not None and not self._reloading.done():
            if self._reloads_all or not everything:
                return await asyncio.shield(self._reloading)
            await asyncio.wait([self._reloading])  # it moves less
        self._reloads_all = everything
        self._reloading = asyncio.create_task(self._reload(everything=everything))
        return await asyncio.shield(self._reloading)

    async def _reload(self, *, everything: bool) -> pb.ReloadPluginsResponse:
        context = self._loop.herder.context
        configs = {name: context.view.config(name) or {} for name in context.view.connectors}
        before = self._java_before
        if before is None:
            before = await self._java_at_start
        changed, reasons = await asyncio.to_thread(self._find_changes, configs, before)
        response = pb.ReloadPluginsResponse(worker_id=self._worker_id, changed_packages=changed)
        if not changed and not everything:
            response.unchanged = True
            return response
        moved: dict[str, str] = {}

        def moves(key: StatusKey) -> bool:
            name = key if isinstance(key, str) else key.connector
            if name in reasons or everything:
                moved[name] = reasons.get(name, "the move of all connectors was requested")
                return True
            response.kept_count += 1
            return False

        response.moved_count = await self._replace_engine(moves)
        for name, reason in sorted(moved.items()):
            response.moved_connectors.add(connector=name, reason=reason)
        return response

    def _find_changes(
        self, configs: Mapping[str, Mapping[str, str]], java_before: frozenset[tuple[str, str]]
    ) -> tuple[list[str], dict[str, str]]:
        """The packages and Java plugins that changed since the engine loaded its plugins; and for
        each connector that uses one of them, which. Reads many files.
        """
        changes = self._changes_since(self._plugins.loaded_ms)
        java_now = self._java_classes()
        removed = removed_classes(java_before, java_now)
        java = {**removed, **self._java_changes(self._plugins.loaded_ms)}
        reasons: dict[str, str] = {}
        for name, config in configs.items():
            for setting, kind in class_settings(config):
                changed = java.get(config[setting].strip().removeprefix("java:").strip())
                if changed is None:
                    changed = changes.of_class(self._plugins.full_name(kind, config[setting]))
                if changed is not None:
                    reasons[name] = f"{setting} uses {changed}"
                    break
        modules = {name.partition(".")[0] for name in self._plugin_modules}
        modules |= changes.plugin_modules
        found = {*changes.distributions.values(), *java.values()}
        found |= {f"the module {name}" for name in changes.modules(modules)}
        found |= {reason.partition(" uses ")[2] for reason in reasons.values()}
        self._java_before = java_now
        return sorted(found), reasons

    def _address_of(self, worker_id: str, hop_count: int) -> str:
        """Where to forward the call: to the worker itself from the leader, else to the leader."""
        membership = self._loop.herder.membership
        if membership.leads:
            if worker_id not in membership.assignments:
                workers = ", ".join(sorted(membership.assignments))
                text = f"is not a worker of the group; the workers are {workers}"
                raise invalid_field("worker_id", text)
            return membership.call_url(worker_id)
        if hop_count >= HOP_COUNT_MAX or not membership.settled:
            text = "this worker is not the leader: retry"
            raise FailedPreconditionError(Reason.NOT_LEADER, text)
        return membership.call_url(membership.leader_url)
