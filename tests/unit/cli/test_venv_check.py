"""deploy/venv_check.py, and make: which virtual environments are made again."""

import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from deploy import venv_check
from tests.support.repository import REPOSITORY

_CONFIG = "version = 3.11.7\ncommand = /usr/bin/python3.11 -m venv --clear {folder}\n"


def environment(folder: Path, *, made_for: Path, record: str = "RECORD") -> str:
    """The fault of an environment with pip, of which a file is named ``record``."""
    modules = folder / "lib"
    pip = modules / "pip-26.3.dist-info"
    pip.mkdir(parents=True)
    (pip / "METADATA").write_text("Metadata-Version: 2.1\nName: pip\nVersion: 26.3\n")
    (pip / record).write_text("pip/__init__.py,,\n")
    (folder / "pyvenv.cfg").write_text(_CONFIG.format(folder=made_for))
    return venv_check.fault(folder, [str(modules)])


def test_one_in_its_folder_with_pip_is_whole(tmp_path: Path) -> None:
    assert environment(tmp_path / "a b", made_for=tmp_path / "a b") == ""
    (tmp_path / "link").symlink_to(tmp_path)
    assert environment(tmp_path / "c", made_for=tmp_path / "link" / "c") == ""


def test_one_of_another_program_without_a_record_of_its_folder_is_taken(tmp_path: Path) -> None:
    environment(tmp_path, made_for=tmp_path)
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\nuv = 0.13.9\n")
    assert venv_check.fault(tmp_path, [str(tmp_path / "lib")]) == ""


def test_one_that_was_moved_or_copied_is_not(tmp_path: Path) -> None:
    fault = environment(tmp_path / "d2", made_for=tmp_path / "d")
    assert fault == f"it was made for {tmp_path}/d"


def test_one_whose_creation_was_interrupted_is_not(tmp_path: Path) -> None:
    no_pip = "it has no pip for this version of Python"
    assert environment(tmp_path, made_for=tmp_path, record="INSTALLER") == no_pip
    assert venv_check.fault(tmp_path, []) == no_pip
    (tmp_path / "pyvenv.cfg").unlink()
    assert venv_check.fault(tmp_path, []) == "it has no pyvenv.cfg"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the Makefile and the programs of its rule for .venv."""
    folder = tmp_path / "first"
    shutil.copytree(REPOSITORY / "deploy", folder / "deploy")
    shutil.copy(REPOSITORY / "Makefile", folder)
    return folder


def made(checkout: Path) -> str:
    """The errors of make, after which there is a usable environment."""
    done = subprocess.run(
        ["make", ".venv/pyvenv.cfg", f"PYTHON={sys.executable}"],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=True,
    )
    place = checkout / ".venv"
    whole = [str(place / "bin/python"), "-I", str(checkout / "deploy/venv_check.py")]
    subprocess.run(whole, check=True)
    return done.stderr


def test_make_repairs_environments(checkout: Path, tmp_path: Path) -> None:
    place = checkout / ".venv"
    venv.create(place, with_pip=False)  # interrupted before pip
    (place / ".installed").touch()
    assert "is made again: it has no pip" in made(checkout)
    assert not (place / ".installed").exists()
    written_ns = (place / "pyvenv.cfg").stat().st_mtime_ns
    made(checkout)
    assert (place / "pyvenv.cfg").stat().st_mtime_ns == written_ns, "a whole one stays"
    for link in (place / "bin").glob("python*"):
        link.unlink()
        link.symlink_to("/gone/python")
    made(checkout)
    moved = checkout.rename(tmp_path / "second")
    assert f"is made again: it was made for {place}" in made(moved)
    assert (moved / ".venv" / "bin" / "python").readlink() != Path("/gone/python")
