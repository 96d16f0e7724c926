"""Whether validation accepts an own engine on this machine."""

from dataclasses import replace

from drover_worker.core.engine_resources import Machine, engine_violations
from drover_worker.core.engine_slots import EngineSlot

GIB = 1 << 30
MACHINE = Machine(memory_bytes=8 * GIB, core_count=4, heap_bytes=GIB)
OWN = {"name": "orders", "engine": "own"}


def texts(config: dict[str, str], machine: Machine = MACHINE, *others: EngineSlot) -> list[str]:
    return [
        f"{each.field} {each.description}" for each in engine_violations(config, machine, others)
    ]


def test_an_engine_that_fits_is_accepted() -> None:
    assert not texts({"name": "orders"})
    assert not texts(OWN)
    assert not texts({**OWN, "engine.memory": "6g", "engine.cores": "4"})


def test_memory_and_cores_need_an_own_engine() -> None:
    for engine in ({}, {"engine": "shared"}):
        found = texts({**engine, "engine.memory": "1g", "engine.cores": "1"})
        assert found == [
            'config["engine.memory"] has an effect only with engine=own: add it, or remove '
            "engine.memory",
            'config["engine.cores"] has an effect only with engine=own: add it, or remove '
            "engine.cores",
        ]
    own = replace(MACHINE, own_by_default=True)
    assert not texts({"engine.memory": "1g"}, own)
    assert texts({"engine": "shared", "engine.memory": "1g"}, own)


def test_more_cores_than_the_machine_has_are_rejected() -> None:
    (found,) = texts({**OWN, "engine.cores": "5"})
    assert found == (
        'config["engine.cores"] must be at most 4, the cores of this worker\'s machine, not 5'
    )


def test_cores_cannot_be_limited_on_executors_elsewhere() -> None:
    (found,) = texts({**OWN, "engine.cores": "1"}, replace(MACHINE, is_local=False))
    assert "executors of DROVER_SPARK_MASTER" in found


def test_too_much_memory_is_rejected_with_the_arithmetic() -> None:
    (found,) = texts({**OWN, "engine.memory": "7g"})
    assert found == (
        'config["engine.memory"] needs 7 GiB and this worker has 6 GiB left: 8 GiB (the limit of'
        " its machine or control group) - 2 GiB (the shared engine) = 6 GiB. Lower engine.memory of"
        " this or another connector, use the shared engine, or give the worker more memory"
    )


def test_other_engines_of_the_worker_count() -> None:
    others = EngineSlot("own/a", 3 * GIB), EngineSlot("own/b")
    assert not texts({**OWN, "engine.memory": "1g"}, MACHINE, *others)
    (found,) = texts({**OWN, "engine.memory": "1536m"}, MACHINE, *others)
    assert (
        "8 GiB (the limit of its machine or control group) - 2 GiB (the shared engine) - 3 GiB "
        "(own/a) - 2 GiB (own/b) = 1 GiB"
    ) in found


def test_an_engine_without_a_limit_needs_twice_its_heap() -> None:
    small = replace(MACHINE, memory_bytes=3 * GIB)
    (found,) = texts(OWN, small)
    assert found.startswith('config["engine"] needs 2 GiB, twice its heap, and this worker has 1')
    assert not texts({**OWN, "engine.memory": "1g"}, small)


def test_a_worker_whose_memory_is_used_up_has_none_left() -> None:
    (found,) = texts(OWN, replace(MACHINE, memory_bytes=GIB))
    assert "this worker has 0 bytes left" in found
    assert "= -1 GiB" in found


def test_unknown_memory_is_not_checked() -> None:
    assert not texts({**OWN, "engine.memory": "100t"}, replace(MACHINE, memory_bytes=None))


def test_malformed_values_have_no_second_violation() -> None:
    assert not texts({**OWN, "engine.memory": "much", "engine.cores": "some"})


def test_one_own_engine_too_many_is_rejected_with_the_setting() -> None:
    others = [EngineSlot(f"own/{n}", GIB // 8) for n in range(7)]
    few = replace(MACHINE, own_engines_max=7)
    suspect = EngineSlot("suspects/1", GIB // 8)
    assert not texts(OWN, few, *others[:6], suspect)
    (found,) = texts(OWN, few, *others)
    assert found == (
        'config["engine"] would be one own engine too many: this worker has 7 own engines (own/0,'
        " own/1, own/2, own/3, own/4 and 2 more), and DROVER_OWN_ENGINES_MAX allows 7. Use the"
        " shared engine, stop another connector with engine=own, or add a worker; an operator of"
        " the worker may change the setting"
    )
    assert not texts({"name": "orders"}, few, *others)
    (found,) = texts({"name": "orders"}, replace(few, own_by_default=True), *others)
    assert "DROVER_OWN_ENGINES_MAX" in found
