"""No child Python process imports from its working directory."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from drover.convert.protobuf.descriptors import parse_proto
from drover.local.cluster import ClusterOptions, cluster_stages
from drover.python_process import python_environment
from tests.support.repository import REPOSITORY, python_files

HELPER = Path("shared/drover/python_process.py")
#: Settings that name an interpreter and start nothing.
INTERPRETERS = {
    Path("services/worker/drover_worker/engine/class_archive.py"),
    Path("services/worker/drover_worker/engine/settings.py"),
    Path("shared/drover/testing/spark.py"),
}
PLANTED = "import pathlib\npathlib.Path({mark!r}).touch()\n"


def interpreters_in(path: Path) -> Iterator[str]:
    """Where a file names the interpreter, or an option that runs a module."""
    for node in ast.walk(ast.parse((REPOSITORY / path).read_text())):
        match node:
            case ast.Attribute(attr="executable") | ast.Constant(value="-m"):
                yield f"{path}:{node.lineno}"


def test_only_one_module_makes_commands_of_child_processes() -> None:
    found = [
        place
        for path in python_files("shared", "services", "examples")
        if path != HELPER and path not in INTERPRETERS
        for place in interpreters_in(path)
    ]
    assert not found, f"use drover.python_process: {', '.join(found)}"
    assert list(interpreters_in(HELPER))


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with modules of an attacker; the file appears when one is imported."""
    folder, mark = tmp_path / "shared", tmp_path / "imported"
    for name in ("structlog.py", "grpc_tools/__init__.py", "pyspark/__init__.py"):
        module = folder / name
        module.parent.mkdir(parents=True, exist_ok=True)
        module.write_text(PLANTED.format(mark=str(mark)))
    monkeypatch.chdir(folder)
    yield mark
    assert not mark.exists()


def specs() -> dict[str, list[str]]:
    """The command of each kind of process."""
    stages = cluster_stages(ClusterOptions(Path("/nowhere"), worker_count=1, gateway_count=1))
    return {spec.name.removesuffix("-1"): list(spec.argv) for stage in stages for spec in stage}


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize(
    "name", ["coordinator", "config-store", "status-store", "worker", "gateway"]
)
def test_a_service_imports_nothing_from_the_working_directory(name: str) -> None:
    listen = f"DROVER_{name.upper().replace('-', '_')}_LISTEN"
    ended = subprocess.run(
        specs()[name],
        env={**os.environ, listen: "nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2, ended.stderr
    assert f"drover {name}: {listen}" in ended.stderr


@pytest.mark.usefixtures("planted")
def test_protoc_imports_nothing_from_the_working_directory() -> None:
    schema = parse_proto('syntax = "proto3"; message Planted { string at = 1; }')
    assert schema.message([0]).full_name == "Planted"


@pytest.mark.usefixtures("planted")
def test_descendants_import_nothing_from_the_working_directory() -> None:
    """Such as Spark's Python daemon, whose command Spark makes."""
    environment = python_environment({**os.environ, "PYTHONPATH": f":{os.environ['PYTHONPATH']}:"})
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import structlog'])"
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)


def test_an_empty_part_of_the_import_path_is_removed() -> None:
    assert python_environment({"PYTHONPATH": ":/a::/b:", "HOME": "/h"}) == {
        "HOME": "/h",
        "PYTHONPATH": "/a:/b",
        "PYTHONSAFEPATH": "1",
    }
    assert python_environment({"PYTHONPATH": ""}) == {"PYTHONSAFEPATH": "1"}
