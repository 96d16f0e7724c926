"""Connector objects, without Spark."""

import threading
from collections.abc import Mapping, Sequence

from drover.api.engine.v1 import engine_pb2
from drover.connector import ConfigDef, SourceConnector, SourceTask
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
