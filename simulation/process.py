"""A simulated operating-system process: it crashes, is stopped for a while, and has its own clock.

Whatever it does is an action that its incarnation still has to be there for. A stopped process does
nothing; what came for it meanwhile comes when it goes on, messages and late timers in any order.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from drover.runtime.timers import Timers
from simulation.world import Action, World

if TYPE_CHECKING:
    from simulation.network import Call, ServerCall, Stream

CLOCK_OFFSET_MAX_MS = 600_000
DRIFT_MAX_PERMILLE = 20


class Process:
    """One process of the cluster; services, workers, engines and clients are such."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.alive = False
        self.incarnation = 0
        self.paused = False
        #: When it went on after it had been stopped, in the world's time.
        self.resumed_ms = 0
        self._pause_id = 0
        #: What came while it was stopped: for whom, whether it is a timer, and what to do.
        self._held: list[tuple[int, bool, Action]] = []
        #: Calls and streams that it serves, by id, and those that it made.
        self.served: dict[int, ServerCall] = {}
        self.streams: dict[Stream, None] = {}
        self.calls: dict[Call, None] = {}
        self._offset_ms = 0
        self._pace = 1.0

    @property
    def now_ms(self) -> int:
        """What its clock shows; never goes back while it lives."""
        return int(self.world.now_ms * self._pace) + self._offset_ms

    def start(self) -> None:
        """A new incarnation, with its clock set by chance."""
        world = self.world
        self.alive = True
        self.incarnation += 1
        self._offset_ms = world.between(-CLOCK_OFFSET_MAX_MS, CLOCK_OFFSET_MAX_MS)
        self._pace = 1 + world.between(-DRIFT_MAX_PERMILLE, DRIFT_MAX_PERMILLE) / 1000
        world.tell((self.name,), "{} starts", self.name)
        self.started()

    def crash(self, why: str = "crashes") -> None:
        """Everything in its memory is gone; whom it talked with sees the connections break."""
        self.world.tell((self.name,), "{} {}", self.name, why)
        self.alive = False
        self.paused = False
        self._held.clear()
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
        """It stops, and later goes on, knowing nothing of it."""
        self.world.tell((self.name,), "{} is stopped for {} ms", self.name, duration_ms)
        self.paused = True
        self._pause_id += 1
        self.world.after(duration_ms, partial(self._resume, self.incarnation, self._pause_id))

    def resume(self) -> None:
        """It goes on, if it was stopped. Messages come in order, late timers anywhere between."""
        if not self.paused:
            return
        self.world.tell((self.name,), "{} goes on", self.name)
        self.paused = False
        self.resumed_ms = self.world.now_ms
        held, self._held = self._held, []
        for index, (incarnation, is_timer, action) in enumerate(held):
            delay_ms = self.world.between(0, 4 + len(held) // 8) if is_timer else index // 8
            self.world.after(delay_ms, partial(self.wake, incarnation, action))

    def _resume(self, incarnation: int, pause_id: int) -> None:
        if incarnation == self.incarnation and pause_id == self._pause_id:
            self.resume()

    def started(self) -> None:
        """What a subclass does when it starts."""

    def crashed(self) -> None:
        """What a subclass loses when it crashes."""

    def receive(self, call: "ServerCall") -> None:
        """A call arrives."""
        raise NotImplementedError

    def open_stream(self, stream: "Stream") -> None:
        """Somebody wants a stream."""
        raise NotImplementedError

    def after(self, delay_ms: int, action: Action) -> None:
        """Do something later, by its own clock, if it still lives."""
        real_ms = int(delay_ms / self._pace) + 1
        self.world.after(real_ms, partial(self.wake, self.incarnation, action, is_timer=True))

    def deliver(self, delay_ms: int, action: Action) -> None:
        """Have something reach it after ``delay_ms`` of real time, if it still lives."""
        self.world.after(delay_ms, partial(self.wake, self.incarnation, action))

    def wake(self, incarnation: int, action: Action, *, is_timer: bool = False) -> None:
        """Do something now, or when it goes on, if that incarnation still lives."""
        if incarnation != self.incarnation or not self.alive:
            return
        if self.paused:
            self._held.append((incarnation, is_timer, action))
        else:
            action()


class ProcessTimers:
    """Keyed timers of one incarnation, by its own clock.

    Args:
        process: Whose clock counts.
        on_due: Called when ``pop_due`` has something to give; ``arm`` when all of it was taken.
    """

    def __init__(self, process: Process, on_due: Callable[[], None]) -> None:
        self._process = process
        self._on_due = on_due
        self._timers = Timers()
        self._alarm_ms: int | None = None
        self._alarm_id = 0

    def __len__(self) -> int:
        return len(self._timers)

    def set(self, key: str, deadline_ms: int, event: object) -> None:
        """Set or replace the timer ``key``."""
        self._timers.set(key, deadline_ms, event)
        self.arm()

    def cancel(self, key: str) -> None:
        """Forget the timer ``key``."""
        self._timers.cancel(key)

    def pop_due(self) -> object | None:
        """The event of the earliest timer that is due."""
        due = self._timers.pop_due(self._process.now_ms)
        return None if due is None else due[1]

    def arm(self) -> None:
        """Have ``on_due`` called for the next timer."""
        deadline_ms = self._timers.next_deadline_ms()
        if deadline_ms is None or (self._alarm_ms is not None and self._alarm_ms <= deadline_ms):
            return
        self._alarm_ms = deadline_ms
        self._alarm_id += 1
        delay_ms = max(deadline_ms - self._process.now_ms, 0)
        self._process.after(delay_ms, partial(self._ring, self._alarm_id))

    def _ring(self, alarm_id: int) -> None:
        if alarm_id == self._alarm_id:
            self._alarm_ms = None
            self._on_due()
