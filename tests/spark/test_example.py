"""The tests of the example packages; the docs run them in the packages' folders."""

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from _pytest.mark import ParameterSet
from pyspark import cloudpickle

from tests.support.repository import REPOSITORY

pytestmark = pytest.mark.spark

PACKAGES = sorted(path.parent for path in (REPOSITORY / "examples").glob("*/test_*.py"))


def names_in(package: Path) -> list[str]:
    tree = ast.parse((package / f"test_{package.name}.py").read_text(encoding="utf-8"))
    defined = [each for each in tree.body if isinstance(each, ast.FunctionDef)]
    return [each.name for each in defined if each.name.startswith("test_")]


def cases() -> Iterator[ParameterSet]:
    for package in PACKAGES:
        for name in names_in(package):
            marks = [pytest.mark.faults("connectors")] if "kill" in name else []
            yield pytest.param(package, name, marks=marks, id=f"{package.name}-{name}")


@pytest.fixture
def module(package: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(package))
    found = import_module(f"test_{package.name}")
    # executors of the existing session were started without the folder on their path
    cloudpickle.register_pickle_by_value(sys.modules[package.name])  # type: ignore[no-untyped-call]
    yield found
    cloudpickle.unregister_pickle_by_value(sys.modules[package.name])  # type: ignore[no-untyped-call]
    for name in (f"test_{package.name}", package.name):
        sys.modules.pop(name)


@pytest.mark.parametrize(("package", "name"), list(cases()))
def test_it_passes_on_a_session_that_is_there(
    module: ModuleType, name: str, request: pytest.FixtureRequest
) -> None:
    function = getattr(module, name)
    wanted = inspect.signature(function).parameters
    function(**{each: request.getfixturevalue(each) for each in wanted})


@pytest.mark.parametrize("package", PACKAGES, ids=lambda each: each.name)
def test_pytest_finds_all_of_them_in_the_folder_of_the_example(package: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only"],
        cwd=package,
        capture_output=True,
        text=True,
        check=True,
    )
    found = [line.rpartition("::")[2] for line in done.stdout.splitlines() if "::" in line]
    assert found == names_in(package)
