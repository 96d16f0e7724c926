"""Connector objects, without Spark."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from drover.api.engine.v1 import engine_pb2
from drover.connector import ConfigDef, ConnectorContext, SourceConnector, SourceTask
from drover.connector.catalogue import PluginRegistry
from drover_worker.engine.plugins.connectors import ConnectorRegistry
from drover_worker.engine.plugins.threads import PluginThreads
from drover_worker.engine.settings import EngineLimits
from tests.support.waiting import wait_until


class Slow(SourceConnector):
    """Its stop waits for ``may_end``."""

    task_class = SourceTask
    may_end = threading.Event()

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef()

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return []

    def stop(self) -> None:
        self.may_end.wait(60)


class SlowToStart(SourceConnector):
    """Its start waits for ``may_start``."""

    task_class = SourceTask
    may_start, stopped = threading.Event(), threading.Event()

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef()

    def start(self, context: ConnectorContext, config: Mapping[str, Any]) -> None:
        self.may_start.wait(60)

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return []

    def stop(self) -> None:
        self.stopped.set()


def test_a_connector_whose_start_returns_after_its_limit_is_stopped() -> None:
    """Otherwise its threads would run on, beside the next instance."""
    reports: list[engine_pb2.EngineReport] = []
    threads = PluginThreads(abandoned_max=8, on_exhausted=lambda _: None)
    registry = ConnectorRegistry(
        PluginRegistry(lambda: ()), threads, EngineLimits(start_ms=200), reports.append
    )
    config = {"name": "slow", "connector.class": f"{__name__}.SlowToStart"}
    registry.start(1, engine_pb2.StartConnector(connector="slow", config=config, run_id=1))
    wait_until(lambda: reports)
    assert reports[0].HasField("failure"), reports[0]
    assert not SlowToStart.stopped.is_set()
    SlowToStart.may_start.set()
    assert SlowToStart.stopped.wait(60)


def test_a_closing_engine_can_wait_for_its_connectors_to_stop() -> None:
    reports: list[engine_pb2.EngineReport] = []
    threads = PluginThreads(abandoned_max=8, on_exhausted=lambda _: None)
    registry = ConnectorRegistry(
        PluginRegistry(lambda: ()), threads, EngineLimits(), reports.append
    )
    config = {"name": "slow", "connector.class": f"{__name__}.Slow"}
    registry.start(1, engine_pb2.StartConnector(connector="slow", config=config, run_id=1))
    wait_until(lambda: reports)
    assert reports[0].HasField("done"), reports[0]
    (ended,) = registry.close()
    assert not ended.is_set()
    Slow.may_end.set()
    assert ended.wait(60)
