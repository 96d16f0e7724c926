"""In which engine of this worker each connector runs.

A worker has a shared engine, which always runs, and further engines while connectors need them. A
connector and its tasks on a worker run in the same engine.
"""

from dataclasses import dataclass

from drover.model.engines import OWN, EngineChoice
from drover_worker.core.config.view import ConfigView


@dataclass(frozen=True, slots=True)
class EngineSlot:
    """The place for one engine process of a worker, with the settings of that process.

    Attributes:
        name: ``shared``, or a kind and a name: ``own/orders``, ``suspects/1``.
        memory_bytes: The limit for all its processes together; None without a limit.
        cores: How many passes run at the same time; None for the worker's ``spark.master``.
    """

    name: str
    memory_bytes: int | None = None
    cores: int | None = None

    @property
    def is_own(self) -> bool:
        """Whether it is for one connector that asks for it."""
        return self.name.startswith(f"{OWN}/")

    def __str__(self) -> str:
        return self.name


#: The engine that always runs; it also validates configs and reads topics.
SHARED = EngineSlot("shared")


class EngineSlots:
    """The engine of each connector, by its config or its isolation, and which engines are up.

    ``own_by_default`` applies to connectors without the setting ``engine``.
    """

    def __init__(self, view: ConfigView, *, own_by_default: bool = False) -> None:
        self._view = view
        self._own_by_default = own_by_default
        self.up: set[EngineSlot] = set()
        self._isolated: dict[str, EngineSlot] = {}
        #: Why connectors are isolated, for their statuses.
        self._notes: dict[str, str] = {}

    def slot_of(self, connector: str) -> EngineSlot:
        """Where the connector and its tasks have to run."""
        isolated = self._isolated.get(connector)
        if isolated is not None:
            return isolated
        config = self._view.config(connector) or {}
        choice = EngineChoice.of(config, own_by_default=self._own_by_default)
        if not choice.own:
            return SHARED
        return EngineSlot(f"{OWN}/{connector}", choice.memory_bytes, choice.cores)

    def is_up(self, connector: str) -> bool:
        """Whether the connector's engine can start it."""
        return self.slot_of(connector) in self.up

    def note_of(self, connector: str) -> str:
        """Why the connector is isolated, for its status; empty without a note."""
        return self._notes.get(connector, "")

    def isolate(self, connector: str, slot: EngineSlot, note: str = "") -> None:
        """Run the connector in another engine; ``Work.touch_connector`` then moves it."""
        self._isolated[connector] = slot
        self._notes[connector] = note

    def release(self, connector: str) -> None:
        """End the isolation of a connector; ``Work.touch_connector`` then moves it."""
        self._isolated.pop(connector, None)
        self._notes.pop(connector, None)
