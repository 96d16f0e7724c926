"""In which engine of this worker each connector runs.

A worker has a shared engine, which always runs, and further engines while connectors need them. A
connector and its tasks on a worker run in the same engine.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineSlot:
    """The place for one engine process of a worker, with the settings of that process.

    Attributes:
        name: ``shared``, or a kind and a name: ``own/orders``, ``suspects/1``.
    """

    name: str

    def __str__(self) -> str:
        return self.name


#: The engine that always runs; it also validates configs and reads topics.
SHARED = EngineSlot("shared")


class EngineSlots:
    """The engine of each connector, and which engines are up."""

    def __init__(self) -> None:
        self.up: set[EngineSlot] = set()
        self._isolated: dict[str, EngineSlot] = {}

    def slot_of(self, connector: str) -> EngineSlot:
        """Where the connector and its tasks have to run."""
        return self._isolated.get(connector, SHARED)

    def is_up(self, connector: str) -> bool:
        """Whether the connector's engine can start it."""
        return self.slot_of(connector) in self.up

    def isolate(self, connector: str, slot: EngineSlot) -> None:
        """Run the connector in another engine; ``Work.touch_connector`` then moves it."""
        self._isolated[connector] = slot

    def release(self, connector: str) -> None:
        """End the isolation of a connector; ``Work.touch_connector`` then moves it."""
        self._isolated.pop(connector, None)
