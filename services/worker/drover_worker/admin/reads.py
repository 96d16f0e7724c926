"""Waits for fresh views before a use case reads them."""

from collections.abc import Awaitable, Callable
from contextlib import suppress

from drover.errors import DroverError
from drover.model.config import ConfigMap
from drover_worker.admin.call import Deadline
from drover_worker.admin.config_checks import checked_name
from drover_worker.admin.views import ConnectorViews
from drover_worker.core.config.checks import connector_not_found
from drover_worker.shell.engine_link import EngineLink
from drover_worker.shell.herder_loop import HerderLoop

#: How long a read waits for the config log's end before it uses the present view.
FRESH_TIMEOUT_S = 1.0

#: Reads the config log to its end, within a number of seconds.
ReadToEnd = Callable[[float], Awaitable[None]]


class Reads:
    """Waits for views that include all writes that were durable before the call."""

    def __init__(
        self,
        loop: HerderLoop,
        engine: EngineLink,
        views: ConnectorViews,
        read_to_end: ReadToEnd,
    ) -> None:
        #: This worker's view of the config log.
        self.view = loop.herder.context.view
        self._loop = loop
        self._engine = engine
        self._views = views
        self._read_to_end = read_to_end

    async def prepare(self, deadline: Deadline) -> None:
        """Wait for fresh views, and for the plugins that declare which settings are secret.

        If the config store is unreachable the present view is used.

        Raises:
            DeadlineExceededError: The views have never been loaded.
        """
        await self._loop.wait_until_loaded(deadline.remaining_s())
        with suppress(DroverError):
            await self._read_to_end(min(FRESH_TIMEOUT_S, deadline.remaining_s()))
        await self.know_plugins()

    async def know_plugins(self) -> None:
        """Load the unknown plugins of existing connectors from the engine."""
        await self._engine.try_know_plugins(self._views.class_names())

    async def existing(self, name: str, deadline: Deadline) -> str:
        """The name of a connector that exists, once the views are fresh.

        Raises:
            NotFoundError: CONNECTOR_NOT_FOUND.
        """
        await self.prepare(deadline)
        if name not in self._loop.herder.context.view.connectors:
            raise connector_not_found(name)
        return name

    async def stored_config(self, name: str, deadline: Deadline) -> ConfigMap:
        """The config of a connector, once the views are fresh; empty if it does not exist."""
        await self.prepare(deadline)
        entry = self.view.connectors.get(name)
        return (entry and entry.config) or {}

    async def config_of(self, name: str, deadline: Deadline) -> ConfigMap:
        """The config of a connector; empty if no connector is named.

        Raises:
            NotFoundError: CONNECTOR_NOT_FOUND.
        """
        if not name:
            return {}
        found = await self.existing(checked_name(name), deadline)
        return self.view.connectors[found].config or {}
