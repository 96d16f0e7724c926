"""The connectors of other Kafka clusters in the test kit: crashes at each step, and redelivery."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from drover.testing import SinkKit, SourceKit
from tests.support.own_connectors import SINKS, SOURCES, Place, check_sink, check_source

_HOW = pytest.mark.parametrize(
    "kills",
    [
        pytest.param(False, id="lost"),
        pytest.param(True, id="killed", marks=pytest.mark.faults("connectors")),
    ],
)


@pytest.fixture(scope="session")
def drover_spark(spark: SparkSession) -> SparkSession:
    """The Spark session of the kits' fixtures."""
    return spark


@_HOW
def test_a_sink_has_each_record(
    sink_kit: Callable[..., SinkKit], request: pytest.FixtureRequest, tmp_path: Path, kills: bool
) -> None:
    case = SINKS["KafkaSink"](Place(tmp_path, request))
    check_sink(case, sink_kit(case.kind, case.config), kills=kills)


@_HOW
def test_a_source_has_each_record_once(
    source_kit: Callable[..., SourceKit],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    kills: bool,
) -> None:
    case = SOURCES["KafkaSource"](Place(tmp_path, request))
    check_source(case, source_kit(case.kind, case.config), kills=kills)
