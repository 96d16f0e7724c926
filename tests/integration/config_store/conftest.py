"""Config stores on each kind of log."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.config_processes import ConfigProcesses, in_memory, on_kafka, on_sqlite
from tests.support.kafka.fixtures import kafka, topic_prefix

__all__ = ["kafka", "topic_prefix"]


@pytest.fixture(params=["memory", "sqlite", pytest.param("kafka", marks=pytest.mark.kafka)])
async def processes(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[ConfigProcesses]:
    """Config store processes on one log; the parameter is the kind of log."""
    if request.param == "memory":
        opening = in_memory()
    elif request.param == "sqlite":
        opening = on_sqlite(tmp_path / "config.db")
    else:
        bootstrap = request.getfixturevalue("kafka").bootstrap
        opening = on_kafka(bootstrap, request.getfixturevalue("topic_prefix"))
    async with opening as opened:
        yield opened
