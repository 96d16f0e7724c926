"""The tests of the example package, whose page has people run them in its folder."""

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import SparkSession

from tests.support.repository import REPOSITORY

pytestmark = pytest.mark.spark

PACKAGE = REPOSITORY / "examples" / "json_files"
TESTS = (
    "test_the_source_reads_each_file_once",
    "test_a_batch_that_comes_again_replaces_what_it_wrote",
)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(PACKAGE))
    yield import_module("test_json_files")
    for name in ("test_json_files", "json_files"):
        sys.modules.pop(name)


@pytest.mark.parametrize("name", TESTS)
def test_it_passes_on_a_session_that_is_there(
    module: ModuleType, spark: SparkSession, tmp_path: Path, name: str
) -> None:
    getattr(module, name)(spark, tmp_path)


def test_pytest_finds_all_of_them_in_the_folder_of_the_example() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only"],
        cwd=PACKAGE,
        capture_output=True,
        text=True,
        check=True,
    )
    found = [line.rpartition("::")[2] for line in done.stdout.splitlines() if "::" in line]
    assert found == [*TESTS]
