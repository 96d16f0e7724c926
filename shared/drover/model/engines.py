"""Which engine a connector asks for: the shared one of its worker, or one for it alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from drover.model.sizes import size_bytes

ENGINE = "engine"
ENGINE_MEMORY = "engine.memory"
ENGINE_CORES = "engine.cores"
#: Values of ``engine``.
SHARED, OWN = "shared", "own"

#: The smallest memory of an engine: half of it is the heap, and Spark needs 450 MiB.
MEMORY_MIN_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The engine that a connector's config asks for.

    Attributes:
        own: An engine for this connector alone.
        memory_bytes: The memory of that engine, with all of its processes; None without a limit.
        cores: How many passes of that engine run at the same time; None for the worker's
            ``spark.master``.
    """

    own: bool = False
    memory_bytes: int | None = None
    cores: int | None = None

    @classmethod
    def of(cls, config: Mapping[str, str], *, own_by_default: bool = False) -> Self:
        """The choice in a connector's config; an unreadable value counts as absent.

        ``own_by_default`` applies to configs without ``engine``.
        """
        text = config.get(ENGINE, "").strip()
        if text == SHARED or (text != OWN and not own_by_default):
            return cls()
        memory_bytes = size_bytes(config.get(ENGINE_MEMORY, ""))
        if memory_bytes is not None and memory_bytes < MEMORY_MIN_BYTES:
            memory_bytes = None
        cores = config.get(ENGINE_CORES, "").strip()
        count = int(cores) if cores.isascii() and cores.isdecimal() and len(cores) < 9 else 0
        return cls(own=True, memory_bytes=memory_bytes, cores=count or None)
