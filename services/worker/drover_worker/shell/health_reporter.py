"""Tells health checks whether this worker serves, and the log why it does not."""

import asyncio
from contextlib import suppress

import structlog

from drover.backoff import Backoff
from drover_worker.core import events
from drover_worker.server import WorkerServers
from drover_worker.settings import WorkerSettings
from drover_worker.shell.herder_loop import HerderLoop

#: How long a first join may take before the log says what it waits for, and how often at least it
#: says so again. Spark alone takes some of that.
TOLD_FIRST_S, TOLD_MAX_S = 15.0, 600.0

_ADDRESSES = ("coordinator_address", "config_store_address", "status_store_address")
_log = structlog.get_logger("drover.worker")


class HealthReporter:
    """Looks at the herder every few seconds, and at once when the worker has joined its group."""

    def __init__(self, loop: HerderLoop, servers: WorkerServers, settings: WorkerSettings) -> None:
        self._loop = loop
        self._servers = servers
        self._settings = settings
        self._turned = True
        self._joined = False
        self._has_joined = asyncio.Event()
        self._pauses = Backoff(TOLD_FIRST_S, TOLD_MAX_S)
        self._tell_s = asyncio.get_running_loop().time() + self._pauses.next_pause_s()

    def observe(self, _event: events.HerderEvent) -> None:
        """The herder has handled an event."""
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
                self._tell_of_turns()
                self._tell_of_no_join()
            await self._servers.tell_health()

    def _tell_of_turns(self) -> None:
        if self._loop.turns == self._turned:
            return
        self._turned = not self._turned
        stage = self._loop.herder.describe_stage()
        if self._turned:
            _log.info("the herder handles events again", stage=stage)
        else:
            _log.error("the herder stands still", stage=stage)

    def _tell_of_no_join(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if self._joined or now_s < self._tell_s:
            return
        self._tell_s = now_s + self._pauses.next_pause_s()
        _log.warning(
            "health says NOT_SERVING",
            why=self._servers.why_not_serving(),
            **{name: self._told(name) for name in _ADDRESSES},
        )

    def _told(self, name: str) -> str:
        """An address, and whether somebody chose it."""
        address = str(getattr(self._settings, name))
        if name in self._settings.model_fields_set:
            return address
        return f"{address}, for DROVER_{name.upper()} is not set"
