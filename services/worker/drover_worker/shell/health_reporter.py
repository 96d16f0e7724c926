"""Updates the health checks of this worker, and logs why it does not serve."""

import asyncio
from contextlib import suppress

import structlog

from drover.backoff import Backoff
from drover_worker.core import events
from drover_worker.server import WorkerServers
from drover_worker.settings import WorkerSettings
from drover_worker.shell.herder_loop import HerderLoop

#: How long a first join may take before a warning, and the longest interval between warnings.
#: The start of Spark is part of that time.
WARN_FIRST_S, WARN_MAX_S = 15.0, 600.0

_ADDRESSES = ("coordinator_address", "config_store_address", "status_store_address")
_log = structlog.get_logger("drover.worker")


class HealthReporter:
    """Checks the herder every few seconds, and at once when the worker has joined its group."""

    def __init__(self, loop: HerderLoop, servers: WorkerServers, settings: WorkerSettings) -> None:
        self._loop = loop
        self._servers = servers
        self._settings = settings
        self._was_live = True
        self._joined = False
        self._has_joined = asyncio.Event()
        self._pauses = Backoff(WARN_FIRST_S, WARN_MAX_S)
        self._warn_at_s = asyncio.get_running_loop().time() + self._pauses.next_pause_s()

    def observe(self, _event: events.HerderEvent) -> None:
        """Handle an event that the herder has processed."""
        if not self._joined and self._loop.herder.membership.has_joined:
            self._joined = True
            self._has_joined.set()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._loop.pulse_every_s):
                    await self._has_joined.wait()
            if self._has_joined.is_set():
                self._has_joined.clear()
                _log.info("serving", group=self._settings.group_id)
            else:
                self._loop.pulse()
                self._log_stalls()
                self._log_missing_join()
            await self._servers.update_health()

    def _log_stalls(self) -> None:
        if self._loop.turns == self._was_live:
            return
        self._was_live = not self._was_live
        stage = self._loop.herder.describe_stage()
        if self._was_live:
            _log.info("the herder handles events again", stage=stage)
        else:
            _log.error("the herder is stalled", stage=stage)

    def _log_missing_join(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if self._joined or now_s < self._warn_at_s:
            return
        self._warn_at_s = now_s + self._pauses.next_pause_s()
        _log.warning(
            "the worker is NOT_SERVING",
            why=self._servers.why_not_serving(),
            **{name: self._address_text(name) for name in _ADDRESSES},
        )

    def _address_text(self, name: str) -> str:
        """The address, with a hint when it is the default."""
        address = str(getattr(self._settings, name))
        if name in self._settings.model_fields_set:
            return address
        return f"{address} (default: DROVER_{name.upper()} is not set)"
