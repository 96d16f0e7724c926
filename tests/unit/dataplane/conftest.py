from collections.abc import Iterator
from pathlib import Path

import pytest

from drover.dataplane.store import EmbeddedStore
from drover.model.ids import TaskId
from tests.unit.dataplane.writer import Clock, Writer


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[EmbeddedStore]:
    store = EmbeddedStore(tmp_path / "data.db", clock=clock)
    yield store
    store.close()


@pytest.fixture
def writer(store: EmbeddedStore) -> Writer:
    return Writer(store, TaskId("source", 0))
