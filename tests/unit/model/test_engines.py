"""The engine that a connector's config asks for, and sizes of memory."""

import pytest

from drover.model.engines import EngineChoice
from drover.model.sizes import size_bytes

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1g", GIB),
        ("1G", GIB),
        ("2gb", 2 * GIB),
        (" 1536m ", 1536 << 20),
        ("1 t", 1 << 40),
        ("4096k", 4 << 20),
        ("1073741824", GIB),
        ("", None),
        ("g", None),
        ("1.5g", None),
        ("-1g", None),
        ("1gg", None),
        ("1p", None),
        ("٣g", None),
        ("1" * 40, None),
    ],
)
def test_a_size_is_read_as_spark_and_java_write_it(text: str, size: int | None) -> None:
    assert size_bytes(text) == size


@pytest.mark.parametrize(
    ("config", "choice"),
    [
        ({}, EngineChoice()),
        ({"engine": "shared"}, EngineChoice()),
        ({"engine": "own"}, EngineChoice(own=True)),
        ({"engine": " own "}, EngineChoice(own=True)),
        ({"engine": "mine"}, EngineChoice()),
        (
            {"engine": "own", "engine.memory": "2g", "engine.cores": "3"},
            EngineChoice(own=True, memory_bytes=2 * GIB, cores=3),
        ),
        ({"engine.memory": "2g", "engine.cores": "3"}, EngineChoice()),
        ({"engine": "own", "engine.memory": "much"}, EngineChoice(own=True)),
        ({"engine": "own", "engine.memory": "1m"}, EngineChoice(own=True)),
        ({"engine": "own", "engine.cores": "0"}, EngineChoice(own=True)),
        ({"engine": "own", "engine.cores": "-1"}, EngineChoice(own=True)),
        ({"engine": "own", "engine.cores": "²"}, EngineChoice(own=True)),
    ],
)
def test_an_engine_is_chosen_by_the_config(config: dict[str, str], choice: EngineChoice) -> None:
    assert EngineChoice.of(config) == choice


def test_the_workers_default_applies_to_configs_without_an_engine() -> None:
    assert EngineChoice.of({}, own_by_default=True).own
    assert EngineChoice.of({"engine.cores": "2"}, own_by_default=True).cores == 2
    assert not EngineChoice.of({"engine": "shared"}, own_by_default=True).own
