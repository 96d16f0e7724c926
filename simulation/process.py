"""A simulated operating-system process: it crashes, pauses and resumes, and has its own clock.

Every action belongs to one incarnation and is dropped when that incarnation has ended. A paused
process does nothing; messages and timers that are due during the pause are delivered at resume,
messages in order, timers anywhere between them.
"""

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from simulation.loop import ProcessLoop
from simulation.world import Action, World

if TYPE_CHECKING:
    from simulation.network import Call, ServerCall, Stream

CLOCK_OFFSET_MAX_MS = 600_000
DRIFT_MAX_PERMILLE = 20


class Process:
    """One process of the cluster: a service, worker, engine or client."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.alive = False
        self.incarnation = 0
        self.paused = False
        #: The time of the last resume after a pause, on the world's clock.
        self.resumed_ms = 0
        self._pause_id = 0
        #: Actions held during a pause: the incarnation, whether it is a timer, the action.
        self._held: list[tuple[int, bool, Action]] = []
        #: Calls and streams that it serves, by id, and its own calls to servers.
        self.served: dict[int, ServerCall] = {}
        self.streams: dict[Stream, None] = {}
        self.calls: dict[Call, None] = {}
        self.loop = ProcessLoop.of(self)
        self._offset_ms = 0
        self._pace = 1.0

    @property
    def now_ms(self) -> int:
        """The process's clock; monotonic within an incarnation."""
        return int(self.world.now_ms * self._pace) + self._offset_ms

    def start(self) -> None:
        """Start a new incarnation with a random clock offset and rate."""
        world = self.world
        self.alive = True
        self.incarnation += 1
        self.loop = ProcessLoop.of(self)
        self._offset_ms = world.between(-CLOCK_OFFSET_MAX_MS, CLOCK_OFFSET_MAX_MS)
        self._pace = 1 + world.between(-DRIFT_MAX_PERMILLE, DRIFT_MAX_PERMILLE) / 1000
        world.tell((self.name,), "{} starts", self.name)
        with self.loop.running():
            self.started()

    def crash(self, why: str = "crashes") -> None:
        """Lose all memory; peers see their connections break."""
        self.world.tell((self.name,), "{} {}", self.name, why)
        self.alive = False
        self.paused = False
        self._held.clear()
        self.loop.crash()
        served, self.served = self.served, {}
        streams, self.streams = self.streams, {}
        calls, self.calls = self.calls, {}
        for served_call in served.values():
            served_call.server_gone()
        for stream in streams:
            stream.end_gone(self)
        for call in calls:
            call.client_gone()
        self.crashed()

    def pause(self, duration_ms: int) -> None:
        """Pause for a while; the process does not notice."""
        self.world.tell((self.name,), "{} is stopped for {} ms", self.name, duration_ms)
        self.paused = True
        self._pause_id += 1
        self.world.after(duration_ms, partial(self._resume, self.incarnation, self._pause_id))

    def resume(self) -> None:
        """Resume if paused: deliver messages in order, and late timers anywhere between them."""
        if not self.paused:
            return
        self.world.tell((self.name,), "{} resumes", self.name)
        self.paused = False
        self.resumed_ms = self.world.now_ms
        held, self._held = self._held, []
        for index, (incarnation, is_timer, action) in enumerate(held):
            delay_ms = self.world.between(0, 4 + len(held) // 8) if is_timer else index // 8
            self.world.after(delay_ms, partial(self.wake, incarnation, action))

    def _resume(self, incarnation: int, pause_id: int) -> None:
        if incarnation == self.incarnation and pause_id == self._pause_id:
            self.resume()

    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run a coroutine; it ends with the incarnation."""
        return self.loop.create_task(work)

    def started(self) -> None:
        """Called at the start of an incarnation."""

    def crashed(self) -> None:
        """Called after a crash."""

    def receive(self, call: "ServerCall") -> None:
        """A call arrives."""
        raise NotImplementedError

    def open_stream(self, stream: "Stream") -> None:
        """A client opens a stream."""
        raise NotImplementedError

    def after(self, delay_ms: int, action: Action) -> None:
        """Run an action after a delay on the process's clock, unless its incarnation ends
        before.
        """
        real_ms = int(delay_ms / self._pace) + 1
        self.world.after(real_ms, partial(self.wake, self.incarnation, action, is_timer=True))

    def deliver(self, delay_ms: int, action: Action) -> None:
        """Deliver an action after ``delay_ms`` of real time, unless the incarnation ends before."""
        self.world.after(delay_ms, partial(self.wake, self.incarnation, action))

    def wake(self, incarnation: int, action: Action, *, is_timer: bool = False) -> None:
        """Run an action now, or at resume, if that incarnation is alive."""
        if incarnation != self.incarnation or not self.alive:
            return
        if self.paused:
            self._held.append((incarnation, is_timer, action))
        else:
            with self.loop.running():
                action()
