"""Every Drover connector in the test kit: lost commits, kills, and redelivery in other batches."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from drover.testing import SinkKit, SourceKit
from tests.databases.conftest import postgres, postgres_server, s3, s3_server
from tests.spark.connectors.cdc_shop import dropped
from tests.support.own_connectors import (
    ON_KAFKA,
    SINKS,
    SOURCES,
    Place,
    check_sink,
    check_source,
)
from tests.support.postgres import Postgres
from tests.support.waiting import wait_until

__all__ = ["postgres", "postgres_server", "s3", "s3_server"]
pytestmark = pytest.mark.spark

_FAULT = pytest.mark.faults("connectors")
#: Slow to start; other tests cover their lost commits.
_SLOW = ("IcebergSink", "PostgresCdcSource", "S3Sink")


def cases(names: Iterable[str]) -> list[Any]:
    """Each connector with lost commits, and with kills in the suite of faults."""
    lost = [pytest.param(each, False, id=each) for each in sorted(names) if each not in _SLOW]
    killed = [pytest.param(each, True, id=f"{each}-killed", marks=_FAULT) for each in sorted(names)]
    return lost + killed


@pytest.fixture
def kit_shop(postgres: Postgres) -> Iterator[Postgres]:
    """A database whose slots are dropped after the test."""
    yield postgres
    slots = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
    for (slot,) in postgres.rows(slots):
        wait_until(partial(dropped, postgres, str(slot)))


@pytest.mark.parametrize(("name", "kills"), cases(SINKS.keys() - {*ON_KAFKA}))
def test_a_sink_has_each_record(
    sink_kit: Callable[..., SinkKit],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    name: str,
    kills: bool,
) -> None:
    case = SINKS[name](Place(tmp_path, request))
    check_sink(case, sink_kit(case.kind, case.config), kills=kills)


@pytest.mark.parametrize(("name", "kills"), cases(SOURCES.keys() - {*ON_KAFKA}))
def test_a_source_has_each_record_once(
    source_kit: Callable[..., SourceKit],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    name: str,
    kills: bool,
) -> None:
    case = SOURCES[name](Place(tmp_path, request))
    check_source(case, source_kit(case.kind, case.config), kills=kills)
