"""Moves suspects and culprits of ended engines to the engines that ``EngineDeaths`` selects."""

from collections.abc import Callable, Collection, Mapping, Sequence

from drover.model.status import StatusKey
from drover_worker.core.context import Context
from drover_worker.core.engine_slots import EngineSlot
from drover_worker.core.events import EngineLost, SuspectsDue
from drover_worker.core.lifecycle.engine_deaths import (
    EngineDeath,
    EngineDeaths,
    EngineFault,
    Quarantine,
    ended_text,
)

_TIMER = "suspects"


class Isolation:
    """Keeps ``context.engines`` as the engines' ends require; ``touch`` moves a connector."""

    def __init__(self, context: Context, touch: Callable[[str], None]) -> None:
        self._context = context
        self._touch = touch
        self._deaths = EngineDeaths()
        self._placed: Mapping[str, str] = {}

    @property
    def quarantined(self) -> Mapping[str, Quarantine]:
        """The connectors in quarantine on this worker, and why."""
        return self._deaths.quarantined

    @property
    def suspects(self) -> Collection[str]:
        """The connectors that run in a separate engine because they may be the culprit."""
        return self._placed.keys() - self._deaths.quarantined.keys()

    def judge(
        self, ended: EngineLost, held: Sequence[StatusKey]
    ) -> tuple[str, Mapping[StatusKey, EngineFault]]:
        """Record an end of an engine in which ``held`` ran.

        Returns:
            Why it ended, for all of them; and the failures of the work that caused it.
        """
        death = EngineDeath(
            ended.engine.name,
            ended.reason,
            ended.at_work,
            held,
            ended.kind,
            ended.by_itself,
            ended.recent,
        )
        faults = self._deaths.record(death, self._context.now_ms)
        self._place()
        return ended_text(death), faults

    def release(self, connector: str) -> None:
        """Give a connector a new chance, because it or its config has changed."""
        self._deaths.release(connector)
        self._place()

    def release_all(self) -> list[str]:
        """Give all connectors a new chance; returns the ones that were stopped in quarantine."""
        stopped = [name for name, each in self._deaths.quarantined.items() if each.stopped]
        self._deaths.release_all()
        self._place()
        return stopped

    def suspects_due(self) -> None:
        """Let the suspects return when nothing has ended for a while."""
        self._deaths.release_due(self._context.now_ms)
        self._place()

    def _place(self) -> None:
        before, self._placed = self._placed, dict(self._deaths.slots)
        if not before and not self._placed:
            return
        for name in before.keys() - self._placed.keys():
            self._context.engines.release(name)
        for name, slot in self._placed.items():
            note = self._deaths.note(name, self._context.settings.time_text)
            self._context.engines.isolate(name, EngineSlot(slot), note)
        for name in sorted(before.keys() | self._placed.keys()):
            if before.get(name) != self._placed.get(name):
                self._touch(name)
        release_ms = self._deaths.release_ms
        if release_ms is None:
            self._context.cancel_timer(_TIMER)
        else:
            delay_ms = max(release_ms - self._context.now_ms, 0)
            self._context.set_timer(_TIMER, delay_ms, SuspectsDue())
