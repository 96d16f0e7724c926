"""What every use case that shows views needs first: views that are fresh enough."""

from collections.abc import Awaitable, Callable
from contextlib import suppress

from drover.errors import DroverError
from drover_worker.admin.call import Deadline
from drover_worker.admin.views import ConnectorViews
from drover_worker.core.config.checks import connector_not_found
from drover_worker.shell.engine_link import EngineLink
from drover_worker.shell.herder_loop import HerderLoop

#: How long a read waits to be as fresh as the config store before it shows what is here.
FRESH_TIMEOUT_S = 1.0

#: Brings the config view to the log's end, within a number of seconds.
ReadToEnd = Callable[[float], Awaitable[None]]


class Reads:
    """Waits for views that hold all that was durable before the call."""

    def __init__(
        self,
        loop: HerderLoop,
        engine: EngineLink,
        views: ConnectorViews,
        read_to_end: ReadToEnd,
    ) -> None:
        #: What this worker has read of the config log.
        self.view = loop.herder.context.view
        self._loop = loop
        self._engine = engine
        self._views = views
        self._read_to_end = read_to_end

    async def prepare(self, deadline: Deadline) -> None:
        """Wait for fresh views, and for the plugins that say what to mask.

        While the config store is away what is here is shown as it is.

        Raises:
            DeadlineExceededError: The views were not read for the first time yet.
        """
        await self._loop.wait_until_loaded(deadline.remaining_s())
        with suppress(DroverError):
            await self._read_to_end(min(FRESH_TIMEOUT_S, deadline.remaining_s()))
        await self.know_plugins()

    async def know_plugins(self) -> None:
        """Ask the engine about the classes of connectors that are not known yet."""
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
