"""Whether a machine has the memory and the cores for a connector's own engine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from drover.errors import Violation
from drover.model.engines import (
    ENGINE,
    ENGINE_CORES,
    ENGINE_MEMORY,
    OWN,
    EngineChoice,
)
from drover.model.sizes import size_text
from drover_worker.core.engine_slots import EngineSlot

#: The memory of an engine without a limit, as a multiple of its heap: the JVM's other memory and
#: the Python processes.
HEAPS_PER_ENGINE = 2
#: The setting of a worker with the maximum number of own engines, and its default.
OWN_ENGINES_VARIABLE, OWN_ENGINES_MAX = "DROVER_OWN_ENGINES_MAX", 32
_NAMES_MAX = 5


@dataclass(frozen=True, slots=True)
class Machine:
    """What this worker may use.

    Attributes:
        memory_bytes: The limit of its control group, or the memory of the machine; None if unknown.
        core_count: The cores that its processes may use.
        heap_bytes: The heap of the shared engine, and of an own engine without ``engine.memory``.
        own_by_default: ``DROVER_ENGINE`` is ``own``.
        is_local: The engine's passes run on this machine.
        own_engines_max: How many own engines may run at the same time.
    """

    memory_bytes: int | None
    core_count: int
    heap_bytes: int
    own_by_default: bool = False
    is_local: bool = True
    own_engines_max: int = OWN_ENGINES_MAX

    @property
    def engine_bytes(self) -> int:
        """The memory of an engine without a limit."""
        return HEAPS_PER_ENGINE * self.heap_bytes


def engine_violations(
    config: Mapping[str, str], machine: Machine, others: Sequence[EngineSlot]
) -> list[Violation]:
    """Settings of an engine without ``engine=own``, and an engine that this machine cannot run.

    ``others`` are the other engines of this worker, besides the shared one. Malformed values have
    no violation here: the settings themselves report them.
    """
    choice = EngineChoice.of(config, own_by_default=machine.own_by_default)
    found = []
    if not choice.own:
        for name in (ENGINE_MEMORY, ENGINE_CORES):
            if config.get(name, "").strip():
                text = f"has an effect only with {ENGINE}={OWN}: add it, or remove {name}"
                found.append(Violation(_field(name), text))
        return found
    if choice.cores is not None and not machine.is_local:
        text = (
            "cannot be set here: the passes run on the executors of DROVER_SPARK_MASTER; limit "
            "them in DROVER_SPARK_CONF"
        )
        found.append(Violation(_field(ENGINE_CORES), text))
    elif choice.cores is not None and choice.cores > machine.core_count:
        text = f"must be at most {machine.core_count}, the cores of this worker's machine"
        found.append(Violation(_field(ENGINE_CORES), f"{text}, not {choice.cores}"))
    own = [each for each in others if each.is_own]
    if len(own) >= machine.own_engines_max:
        text = too_many_text(own, machine.own_engines_max)
        found.append(Violation(_field(ENGINE), f"would be one own engine too many: {text}"))
    fault = _memory_fault(choice, machine, others)
    if fault:
        name = ENGINE_MEMORY if choice.memory_bytes is not None else ENGINE
        found.append(Violation(_field(name), fault))
    return found


def _memory_fault(choice: EngineChoice, machine: Machine, others: Sequence[EngineSlot]) -> str:
    """Why the engine does not fit, with the arithmetic; empty if it fits."""
    if machine.memory_bytes is None:
        return ""
    wanted_bytes = choice.memory_bytes or machine.engine_bytes
    used = [("the shared engine", machine.engine_bytes)]
    used += [(each.name, each.memory_bytes or machine.engine_bytes) for each in others]
    left_bytes = machine.memory_bytes - sum(size for _, size in used)
    if wanted_bytes <= left_bytes:
        return ""
    what = "" if choice.memory_bytes is not None else ", twice its heap,"
    terms = " - ".join(f"{size_text(size)} ({name})" for name, size in used)
    return (
        f"needs {size_text(wanted_bytes)}{what} and this worker has {size_text(max(left_bytes, 0))}"
        f" left: {size_text(machine.memory_bytes)} (the limit of its machine or control group)"
        f" - {terms} = {size_text(left_bytes)}. Lower {ENGINE_MEMORY} of this or another connector,"
        " use the shared engine, or give the worker more memory"
    )


def too_many_text(own: Sequence[EngineSlot], own_engines_max: int) -> str:
    """Why there cannot be another own engine besides ``own``, and who may change that."""
    names = ", ".join(each.name for each in own[:_NAMES_MAX])
    more = f" and {len(own) - _NAMES_MAX} more" if len(own) > _NAMES_MAX else ""
    return (
        f"this worker has {len(own)} own engines ({names}{more}), and {OWN_ENGINES_VARIABLE} allows"
        f" {own_engines_max}. Use the shared engine, stop another connector with {ENGINE}={OWN}, or"
        " add a worker; an operator of the worker may change the setting"
    )


def _field(name: str) -> str:
    return f'config["{name}"]'
