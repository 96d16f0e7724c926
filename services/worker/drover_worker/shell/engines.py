"""The interfaces of one engine, and of all engines of a worker."""

from typing import Protocol

from drover.api.engine.v1 import engine_pb2 as pb
from drover_worker.core.engine_slots import EngineSlot


class Engine(Protocol):
    """The interface of an engine; EngineSupervisor implements it."""

    @property
    def process_id(self) -> int | None:
        """The engine's process; None while there is none."""

    @property
    def stall(self) -> str:
        """What is wrong with an engine that does not answer; empty while it answers."""

    async def start(self) -> None:
        """Start an engine, and restart it whenever it ends."""

    async def call(self, command: pb.EngineCommand, timeout_s: float) -> pb.EngineReport:
        """Send a command and wait for its answer."""

    async def send(self, command: pb.EngineCommand) -> None:
        """Send a command without an answer."""

    async def close(self) -> None:
        """Stop the engine gracefully."""


class Engines(Engine, Protocol):
    """The interface of a worker's engines; EngineGroup implements it.

    ``call`` addresses the engine that runs the command's connector or task, and the shared engine
    otherwise.
    """

    def start_engine(self, slot: EngineSlot) -> None:
        """Start another engine, and restart it whenever it ends."""

    def stop_engine(self, slot: EngineSlot) -> None:
        """Stop an engine that ``start_engine`` started."""

    async def call_in(
        self, slot: EngineSlot, command: pb.EngineCommand, timeout_s: float
    ) -> pb.EngineReport:
        """Send a command to an engine and wait for its answer."""

    def ready_slots(self) -> list[EngineSlot]:
        """The engines that can run plugins now, the shared one first."""
