"""Fixtures for tasks of Java plugins in a real JVM."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drover.java_plugins.host import CALL_LIMIT, HOSTS, POLL_LIMIT, Host
from tests.support import compiled_plugins
from tests.support.compiled_plugins import java_host
from tests.support.java_plugins import compiled_plugin
from tests.unit.java_plugins.host_tasks import Make, new_task


@pytest.fixture(scope="module")
def hosts() -> Iterator[None]:
    java_host()
    yield
    HOSTS.stop()


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, _ in (CALL_LIMIT, POLL_LIMIT):
        monkeypatch.setenv(variable, "600000")
    # so that the start of one JVM is enough
    monkeypatch.setattr(Host, "retire", lambda _: None)


@pytest.fixture(scope="module")
def behaviours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    code = (Path(compiled_plugins.__file__).parent / "java_sources" / "Behaviours.java").read_text()
    return compiled_plugin(tmp_path_factory.mktemp("behaviours"), {"org.acme.Behaviours": code})


@pytest.fixture
def make(behaviours: Path, tmp_path: Path) -> Iterator[Make]:
    """Makes tasks that are not started, and their contexts."""
    tasks: list[Any] = []

    def made(name: str, mode: str, *, plugin: Path = behaviours, **settings: Any) -> Any:
        task, context = new_task(plugin, name, mode, tmp_path, len(tasks), **settings)
        tasks.append(task)
        return task, context

    yield made
    for each in tasks:
        each.stop()


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of 400 KB; its path is short enough for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="disk-", dir="/tmp"))
    command = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, check=False).returncode:
        folder.rmdir()
        pytest.skip("this user cannot mount a file system")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
    folder.rmdir()
