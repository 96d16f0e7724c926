from collections.abc import Callable

import pytest

from drover.migrate.checks import Report, Target, check_cluster, effective_config
from drover.migrate.http_get import Getter
from drover.migrate.installed import InstalledConnectors
from drover.migrate.read import OldCluster, ReadLimits, read_cluster
from drover.migrate.worker_properties import WorkerProperties
from tests.support.kafka_connect_api import ScriptedConnect, scripted_connect

LIMITS = ReadLimits(request_s=5.0, total_s=20.0, total_bytes=1024 * 1024, attempts=3)


@pytest.fixture
def script() -> ScriptedConnect:
    return ScriptedConnect()


@pytest.fixture
def read(script: ScriptedConnect) -> Callable[..., OldCluster]:
    def run(limits: ReadLimits = LIMITS, headers: dict[str, str] | None = None) -> OldCluster:
        with scripted_connect(script) as api:
            getter = Getter(
                api.url,
                headers or {},
                request_s=limits.request_s,
                max_bytes=limits.total_bytes,
            )
            return read_cluster(getter, api.url, limits, sleep=lambda _s: None)

    return run


@pytest.fixture(scope="session")
def installed() -> InstalledConnectors:
    return InstalledConnectors()


@pytest.fixture
def check(read: Callable[..., OldCluster], installed: InstalledConnectors) -> Callable[..., Report]:
    def run(
        *,
        properties: str = "",
        names: frozenset[str] = frozenset(),
        secrets_file: str = "/move/secrets.properties",
    ) -> Report:
        worker = WorkerProperties.parsed("worker.properties", properties) if properties else None
        cluster = read()
        return check_cluster(
            cluster,
            {
                each.name: installed.validate(effective_config(each, worker))
                for each in cluster.connectors
            },
            target=Target("", names),
            worker=worker,
            find=installed.find,
            secrets_file=secrets_file,
        )

    return run
