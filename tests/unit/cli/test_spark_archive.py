"""The archive of packages for Spark executors."""

import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from drover.cli.commands import spark_archive as command
from drover.cli.main import app
from drover.local.spark_archive import ARCHIVE_PYTHON, write_archive
from drover.log.storage import EmbeddedStorage
from drover_worker.engine.session import executor_python
from drover_worker.engine.settings import EngineSettings
from tests.support.tar_archives import unpack

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


class Site:
    """A folder with installed packages."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def install(
        self, name: str, *requires: str, entry_points: str = "", edited_in: Path | None = None
    ) -> None:
        """Install a distribution with one module, whose name it has."""
        info = self.directory / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0"]
        lines += [f"Requires-Dist: {each}" for each in requires]
        (info / "METADATA").write_text("\n".join(lines) + "\n")
        (info / "entry_points.txt").write_text(entry_points)
        files = [f"{info.name}/METADATA", f"{info.name}/entry_points.txt"]
        if edited_in is None:
            package = self.directory / name
            files.append(f"{name}/__init__.py")
        else:
            package = edited_in / name
            (self.directory / f"_{name}.pth").write_text(f"{edited_in}\n")
            files.append(f"_{name}.pth")
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(f"WHERE = {name!r}\n")
        (info / "RECORD").write_text("".join(f"{each},,\n" for each in files))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = Site(tmp_path / "site")
    site.install(
        "drover_connect", "lib[fast]>=1,<2", "pyspark>=4", 'db>=1; extra == "jdbc"', "missing"
    )
    site.install("drover_worker", "drover_connect", edited_in=tmp_path / "checkout")
    site.install("lib", 'lib_fast; extra == "fast"', 'tester; extra == "test"')
    site.install("my_plugin", entry_points="[drover.connectors]\nMine = my_plugin:Mine\n")
    for name in ("pyspark", "db", "lib_fast", "tester", "unrelated"):
        site.install(name)
    return site


def packed(site: Site, path: Path) -> tuple[list[str], Path]:
    """Pack the site; returns the packages, and the folder as an executor unpacks it."""
    written = write_archive(path, import_path=[str(site.directory)])
    folder = path.parent / "work" / "drover"
    with tarfile.open(path) as archive:
        unpack(archive, folder, "data")
    return [each.partition(" ")[0] for each in written.packages], folder


def run(folder: Path, code: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    """Run Python of the archive in the working directory of its executor."""
    return subprocess.run(
        [ARCHIVE_PYTHON, "-c", code],
        cwd=folder.parent,
        env={"PATH": "/usr/bin:/bin", **environ},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_it_has_drover_its_libraries_and_plugins_and_no_other_packages(
    site: Site, tmp_path: Path
) -> None:
    packages, folder = packed(site, tmp_path / "a.tar.gz")
    wanted = ["db", "drover-connect", "drover-worker", "lib", "lib-fast", "my-plugin"]
    assert packages == wanted
    modules = {each.parent.name for each in folder.glob("lib/*/__init__.py")}
    assert modules == {each.replace("-", "_") for each in wanted}


def test_its_python_imports_them_with_an_empty_environment(site: Site, tmp_path: Path) -> None:
    _, folder = packed(site, tmp_path / "a.tar.gz")
    shutil.rmtree(site.directory)
    code = "import drover_worker, lib, my_plugin; print(drover_worker.WHERE, my_plugin.__file__)"
    done = run(folder, code, DROVER_EXECUTOR_PYTHON=sys.executable)
    assert done.stdout == f"drover_worker {folder}/lib/my_plugin/__init__.py\n", done.stderr


def test_a_machine_without_this_python_is_told_so_in_one_line(site: Site, tmp_path: Path) -> None:
    _, folder = packed(site, tmp_path / "a.tar.gz")
    done = run(folder, "", DROVER_EXECUTOR_PYTHON="python9.9")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert f"executors need Python {VERSION}" in line
    assert "no python9.9 in PATH" in line


def test_the_same_packages_make_the_same_file(site: Site, tmp_path: Path) -> None:
    paths = [tmp_path / "a.tar.gz", tmp_path / "b.tar.gz"]
    for path in paths:
        write_archive(path, import_path=[str(site.directory)])
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_the_command_names_the_setting(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        command,
        "write_archive",
        lambda path: write_archive(path, import_path=[str(site.directory)]),
    )
    path = tmp_path / "a.tar.gz"
    assert app(["spark-archive", str(path), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["spark.archives"] == f"{path}#drover"
    assert app(["spark-archive", str(tmp_path / "a.zip")]) == 1
    assert "must end with .tar.gz" in capsys.readouterr().err
    assert app(["spark-archive", str(tmp_path / "no" / "a.tar.gz")]) == 1
    assert "cannot be packed: No such file or directory" in capsys.readouterr().err
    assert list(tmp_path.glob(".*")) == []


@pytest.mark.parametrize(
    ("archives", "python"),
    [
        ("/a/drover.tar.gz#drover", ARCHIVE_PYTHON),
        ("/a/x.zip#x, /a/d.tgz#drover", ARCHIVE_PYTHON),
        ("/a/drover.tar.gz", "/venv/bin/python"),
        ("", "/venv/bin/python"),
    ],
)
def test_executors_run_the_python_of_the_archive(archives: str, python: str) -> None:
    settings = EngineSettings(
        storage=EmbeddedStorage(Path("/nowhere")),
        spark_conf={"spark.archives": archives},
        python_executable="/venv/bin/python",
    )
    assert executor_python(settings) == python
