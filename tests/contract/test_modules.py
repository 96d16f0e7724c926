"""Requirements for every module of the library and the services."""

import ast
import importlib
import subprocess
import sys

import pytest

from tests.support.repository import python_files, text_of


def test_every_module_says_what_it_is() -> None:
    modules = python_files("shared", "services")
    faults = []
    for path in modules:
        docstring = ast.get_docstring(ast.parse(text_of(path) or "")) or ""
        if not docstring or not (docstring[0].isupper() or docstring[0] in "`"):
            faults.append(f"{path} begins with {docstring[:40]!r}")
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


@pytest.mark.parametrize(
    "package",
    ["drover.cli.main", "drover_coordinator", "drover_config_store", "drover_status_store"],
)
def test_the_command_and_the_control_services_need_neither_arrow_nor_spark(package: str) -> None:
    """They are installed without the executors' dependencies."""
    program = (
        "import sys, importlib, pkgutil\n"
        "for name in ('pyspark', 'pyarrow', 'pandas', 'numpy', 'orjson', 'fastavro'):\n"
        "    sys.modules[name] = None\n"
        f"found = importlib.import_module({package!r})\n"
        "for each in pkgutil.walk_packages(getattr(found, '__path__', []), found.__name__ + '.'):\n"
        "    if not each.name.endswith('__main__'):\n"
        "        importlib.import_module(each.name)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
