"""Pytest fixtures for tests of connectors; pytest discovers them automatically.

``sink_kit(Connector, setting=value)`` and ``source_kit(Connector, setting=value)`` create a kit
(see ``drover.testing.kit``) and close it after the test. In keyword arguments, write an underscore
for each dot in a setting's name, or pass a dict: ``sink_kit(Connector, {"batch.wait.ms": "0"},
path=…)``. ``kit_directory`` and ``kit_task`` are the kit's ``directory`` and ``task``.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from drover.testing.kit import SinkKit, SourceKit


@pytest.fixture(scope="session")
def drover_spark() -> "Iterator[SparkSession]":
    """The Spark session of all kits; override this fixture to use another session."""
    from drover.testing.spark import local_spark

    session = local_spark()
    yield session
    session.stop()


@pytest.fixture
def sink_kit(
    drover_spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[Callable[..., SinkKit]]":
    """Creates a SinkKit for a connector class and its settings."""
    from drover.testing.kit import SinkKit

    with ExitStack() as stack:
        yield _maker(SinkKit, drover_spark, tmp_path_factory, stack)


@pytest.fixture
def source_kit(
    drover_spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[Callable[..., SourceKit]]":
    """Creates a SourceKit for a connector class and its settings."""
    from drover.testing.kit import SourceKit

    with ExitStack() as stack:
        yield _maker(SourceKit, drover_spark, tmp_path_factory, stack)


def _maker(
    kind: Any,
    spark: "SparkSession",
    directories: pytest.TempPathFactory,
    stack: ExitStack,
) -> Callable[..., Any]:
    def make(
        connector_class: Any,
        config: Mapping[str, str] | None = None,
        /,
        *,
        kit_directory: Path | None = None,
        kit_task: int = 0,
        **settings: str,
    ) -> Any:
        named = {name.replace("_", "."): str(value) for name, value in settings.items()}
        kit = kind(
            connector_class,
            {**(config or {}), **named},
            spark=spark,
            directory=kit_directory or directories.mktemp("kit"),
            task=kit_task,
        )
        stack.callback(kit.close)
        return kit

    return make
