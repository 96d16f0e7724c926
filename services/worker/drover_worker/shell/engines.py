"""The interfaces of one engine, and of all engines of a worker."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from drover.api.engine.v1 import engine_pb2 as pb
from drover_worker.core.engine_slots import EngineSlot


class LimitKind(StrEnum):
    """What enforces a limit of an engine."""

    #: There is no limit.
    NONE = "NONE"
    #: A control group of the kernel, for all processes together.
    CONTROL_GROUP = "CONTROL_GROUP"
    #: RLIMIT_DATA of each Python process, and the size of the JVM's heap.
    RLIMIT = "RLIMIT"
    #: The settings of Spark.
    SPARK = "SPARK"


@dataclass(frozen=True, slots=True)
class LimitsInForce:
    """What enforces the limits of a running engine."""

    memory: LimitKind = LimitKind.NONE
    cores: LimitKind = LimitKind.NONE


@dataclass(frozen=True, slots=True)
class EngineDescription:
    """An engine of a worker; ``limits`` is None while no process runs."""

    slot: EngineSlot
    up: bool
    limits: LimitsInForce | None


class Engine(Protocol):
    """The interface of an engine; EngineSupervisor implements it."""

    @property
    def process_id(self) -> int | None:
        """The engine's process; None while there is none."""

    @property
    def limits(self) -> LimitsInForce | None:
        """What enforces its limits; None while no process runs."""

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

    def describe(self) -> Sequence[EngineDescription]:
        """The engines that run or have to run, the shared one first."""
