"""Requirements for every module of the library and the services."""

import importlib
import re
import subprocess
import sys

import pytest

from tests.support.repository import python_files, text_of


def test_every_module_says_what_it_is() -> None:
    modules = python_files("shared", "services")
    faults = []
    for path in modules:
        text = text_of(path) or ""
        if not re.match(r'(#!.*\n)?r?"""[^\W\d_a-z]|(#!.*\n)?r?"""`', text):
            faults.append(f"{path} begins with {text[:40]!r}")
    assert len(modules) > 40
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    "name",
    [
        "drover",
        "drover.errors",
        "drover.clock",
        "drover.machine",
        "drover.log",
        "drover.runtime",
        "drover.rpc.server",
        "drover.rpc.service",
        "drover.codec",
        "drover.client",
        "drover.connector",
        "drover.dataplane",
        "drover.pipeline",
        "drover.testing",
    ],
)
def test_what_a_public_package_exports_is_there(name: str) -> None:
    module = importlib.import_module(name)
    exported = getattr(module, "__all__", [])
    assert [each for each in exported if not hasattr(module, each)] == []
    assert len(set(exported)) == len(exported)


def test_the_library_does_not_drag_spark_along() -> None:
    """Imports of services and tools load neither Spark nor its bindings."""
    program = (
        "import sys, drover.client, drover.rpc.service, drover.runtime, drover.connector;"
        "print([m for m in ('pyspark', 'py4j', 'pandas') if m in sys.modules])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ended.stdout.strip() == "[]"


def test_the_command_and_the_control_services_need_neither_arrow_nor_spark() -> None:
    """They are installed without the executors' dependencies."""
    program = """
import sys, importlib, pkgutil
for name in ("pyspark", "pyarrow", "pandas", "numpy", "orjson", "fastavro"):
    sys.modules[name] = None
control = ("drover_coordinator", "drover_config_store", "drover_status_store", "drover_gateway")
for package in ("drover.cli.main", *control):
    found = importlib.import_module(package)
    for each in pkgutil.walk_packages(getattr(found, "__path__", []), found.__name__ + "."):
        if not each.name.endswith("__main__"):
            importlib.import_module(each.name)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


GATEWAY = """
import asyncio, sys
from drover_gateway.__main__ import serve
from drover_gateway.settings import GatewaySettings

async def start_and_stop():
    stopping = asyncio.Event()
    stopping.set()
    await serve(GatewaySettings(gateway_listen="127.0.0.1:0", **{settings}), stopping)

asyncio.run(start_and_stop())
print(sorted({{each.partition(".")[0] for each in sys.modules}} & {unwanted}))
"""


def loaded_by_gateway(unwanted: set[str], **settings: str) -> str:
    """Which of these packages a gateway has loaded after its start."""
    ended = subprocess.run(
        [sys.executable, "-c", GATEWAY.format(settings=settings, unwanted=unwanted)],
        capture_output=True,
        text=True,
        check=True,
    )
    return ended.stdout.splitlines()[-1]


def test_a_gateway_loads_only_what_its_settings_need() -> None:
    """Each of these takes 1 to 30 MiB of an idle gateway, which has 60."""
    unwanted = {"cryptography", "greenlet", "jwt", "mcp", "numpy", "pandas", "prometheus_client"}
    unwanted |= {"pyarrow", "pygments", "pyspark", "rich", "sqlalchemy", "sqlite3", "starlette"}
    unwanted |= {"yaml"}
    assert loaded_by_gateway(unwanted) == "[]"


def test_a_gateway_loads_the_tools_and_the_metrics_on_request() -> None:
    settings = {"gateway_mcp": "read", "metrics_listen": "127.0.0.1:0"}
    loaded = loaded_by_gateway({"mcp", "prometheus_client", "rich"}, **settings)
    assert loaded == "['mcp', 'prometheus_client']"


def test_a_library_that_is_hidden_from_structlog_can_be_imported_later() -> None:
    program = "import drover_gateway, structlog, rich.console; print(structlog.dev.rich)"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ended.stdout.strip() == "None"
