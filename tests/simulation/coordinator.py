"""A simulated coordinator process: the real group machine over a log that survives crashes."""

from collections.abc import Callable, Sequence
from functools import partial

from drover.errors import DroverError, Reason, UnavailableError
from drover.machine import (
    AppendFailed,
    CancelTimer,
    Complete,
    Fail,
    Instruction,
    Notify,
    Replayed,
    SetTimer,
)
from services.coordinator.core.events import Event
from services.coordinator.core.machine import GroupsMachine
from services.coordinator.core.settings import GroupSettings
from services.coordinator.core.values import GroupRecord
from tests.simulation.world import World

Answer = Callable[[object], None]
Watcher = Callable[[object], None]


class SimulatedCoordinator:
    """Decides, appends, replays, releases, as the runtime does; crashes and fails appends."""

    def __init__(self, world: World, settings: GroupSettings) -> None:
        self._world = world
        self._settings = settings
        self.log: list[GroupRecord] = []
        self.incarnation = 0
        self.alive = False
        self.append_failure_probability = world.random.choice((0.0, 0.0, 0.05))
        self.answered_call_ids: set[str] = set()
        self._calls: dict[str, Answer] = {}
        self._watchers: dict[str, Watcher] = {}
        self._timers: dict[str, tuple[int, object]] = {}
        self.machine = GroupsMachine(settings)
        self.start()

    def start(self) -> None:
        """Load the log into a new machine and serve."""
        self.incarnation += 1
        self.alive = True
        self.machine = GroupsMachine(self._settings)
        self._timers = {}
        for offset, record in enumerate(self.log):
            self.machine.replay(Replayed(offset, record))
        self._world.tell(f"coordinator incarnation {self.incarnation} starts")
        self._release(self.machine.loaded(self._world.now_ms, len(self.log)))

    def crash(self) -> None:
        """Lose all but the log; whoever waits sees the connection break."""
        self._world.tell("coordinator crashes")
        self.alive = False
        calls, self._calls, self._watchers = self._calls, {}, {}
        error = UnavailableError(Reason.SERVICE_UNREACHABLE, "connection broken")
        for answer in calls.values():
            self._world.send(partial(answer, error))

    def call(self, event: Event, call_id: str, answer: Answer) -> None:
        """A call arrives; ``answer`` gets the response or a DroverError, once."""
        if not self.alive:
            error = UnavailableError(Reason.SERVICE_UNREACHABLE, "connection refused")
            self._world.send(lambda: answer(error))
            return
        self._calls[call_id] = answer
        self.handle(event)

    def watch(self, member_id: str, watcher: Watcher) -> None:
        """A member's stream is open until it breaks."""
        if self.alive:
            self._watchers[member_id] = watcher

    def unwatch(self, member_id: str) -> None:
        """A member's stream is gone."""
        self._watchers.pop(member_id, None)

    def handle(self, event: object) -> None:
        """One turn of the runtime's loop."""
        outcome = self.machine.handle(event, self._world.now_ms)  # type: ignore[arg-type]
        if outcome.records and self._append_fails():
            error = UnavailableError(Reason.STORAGE_UNAVAILABLE, "the disk is full")
            for instruction in outcome.instructions:
                if isinstance(instruction, Complete):
                    self._answer(instruction.call_id, error)
                elif isinstance(instruction, Fail):
                    self._answer(instruction.call_id, instruction.error)
            if outcome.on_append_failed is not None:
                self.handle(AppendFailed(outcome.on_append_failed, error))
            return
        for record in outcome.records:
            self.log.append(record)
            self._release(self.machine.replay(Replayed(len(self.log) - 1, record)))
        self._release(outcome.instructions)

    def _append_fails(self) -> bool:
        world = self._world
        return world.faulty and world.random.random() < self.append_failure_probability

    def _release(self, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Complete(call_id, response):
                    self._answer(call_id, response)
                case Fail(call_id, error):
                    self._answer(call_id, error)
                case SetTimer(key, deadline_ms, event):
                    self._set_timer(key, deadline_ms, event)
                case CancelTimer(key):
                    self._timers.pop(key, None)
                case Notify(_, message):
                    for watcher in self._watchers.values():
                        self._world.send(partial(watcher, message))

    def _answer(self, call_id: str, response: object | DroverError) -> None:
        assert call_id not in self.answered_call_ids, f"call {call_id} is answered twice"
        self.answered_call_ids.add(call_id)
        answer = self._calls.pop(call_id, None)
        if answer is not None:
            self._world.send(lambda: answer(response))

    def _set_timer(self, key: str, deadline_ms: int, event: object) -> None:
        self._timers[key] = (deadline_ms, event)
        incarnation = self.incarnation

        def fire() -> None:
            if self.incarnation == incarnation and self.alive:
                if self._timers.get(key) != (deadline_ms, event):
                    return
                del self._timers[key]
                self.handle(event)

        self._world.after(max(deadline_ms - self._world.now_ms, 0), fire)
