"""A worker writes an archive of Spark's classes, and its engines use it unless it is damaged."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import pytest

from drover.local.process import descendants, wait_until_gone
from tests.support.cluster import EmbeddedCluster, embedded_cluster
from tests.support.waiting import wait_until_async

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.timeout(3_600),
    pytest.mark.faults("engine"),
]

#: The writer takes only idle time, of a machine that may be busy.
WRITTEN_TIMEOUT_S = 1_800.0
ENDED_TIMEOUT_S = 60.0
WORKER = "worker-1"
WRITES = "-XX:ArchiveClassesAtExit="


def jvms(cluster: EmbeddedCluster, *, writing: bool) -> list[psutil.Process]:
    """The JVMs below the worker that write an archive, or the others."""
    worker = cluster.process(WORKER).pid
    found = []
    for process in descendants(worker) if worker is not None else ():
        try:
            command = process.cmdline()
        except psutil.Error:
            continue
        is_jvm = "pyspark-shell" in command and command[0].endswith("java")
        if is_jvm and writing == any(WRITES in each for each in command):
            found.append(process)
    return found


def jvm(cluster: EmbeddedCluster) -> psutil.Process | None:
    """The JVM of the worker's engine."""
    return next(iter(jvms(cluster, writing=False)), None)


async def kill_jvm(cluster: EmbeddedCluster) -> None:
    """Kill the JVM, and wait until the next one serves."""
    before = jvm(cluster)
    assert before is not None
    before.kill()

    def replaced() -> bool:
        after = jvm(cluster)
        return after is not None and after.pid != before.pid

    await wait_until_async(replaced, timeout_s=WRITTEN_TIMEOUT_S, describe="another JVM runs")
    await cluster.wait_until_members()


def mapped(cluster: EmbeddedCluster, archive: Path) -> bool:
    """Whether the JVM has mapped the archive."""
    process = jvm(cluster)
    assert process is not None
    return str(archive) in Path(f"/proc/{process.pid}/maps").read_text()


def cut(archive: Path) -> None:
    archive.chmod(0o600)
    os.truncate(archive, archive.stat().st_size // 2)


def overwrite(archive: Path) -> None:
    """Change bytes in the middle; the size stays."""
    archive.chmod(0o600)
    with archive.open("r+b") as file:
        file.seek(archive.stat().st_size // 2)
        file.write(b"\xff" * 4096)


async def test_an_archive_is_written_used_and_checked(tmp_path: Path) -> None:
    folder = tmp_path / "all classes"
    temporary = tmp_path / "temporary files"
    temporary.mkdir()
    env = {
        "DROVER_CLASS_ARCHIVES": str(folder),
        "SPARK_SUBMIT_OPTS": "",
        "TMPDIR": str(temporary),
    }
    async with embedded_cluster(tmp_path, workers=1, env=env) as cluster:
        await cluster.wait_until_members()
        (size,) = await wait_until_async(
            lambda: list(folder.glob("*.size")),
            timeout_s=WRITTEN_TIMEOUT_S,
            describe="the archive is written",
        )
        archive = size.with_suffix(".jsa")
        assert not mapped(cluster, archive)
        await kill_jvm(cluster)
        assert mapped(cluster, archive)
        content = archive.read_bytes()
        damages: list[tuple[Callable[[Path], None], str]] = [
            (overwrite, "Unable to use shared archive"),
            (cut, "engines start without an archive of Spark's classes"),
        ]
        for damage, logged in damages:
            archive.unlink()  # the running JVM keeps its file
            archive.write_bytes(content)
            damage(archive)
            await kill_jvm(cluster)
            assert not mapped(cluster, archive), damage
            await wait_until_async(
                partial(lambda text: text in cluster.log(WORKER), logged),
                timeout_s=60.0,
                describe=f"the log has {logged!r}",
            )


async def test_the_writer_and_its_jvm_end_with_a_killed_worker(tmp_path: Path) -> None:
    folder = tmp_path / "classes"
    env = {"DROVER_CLASS_ARCHIVES": str(folder), "SPARK_SUBMIT_OPTS": ""}
    async with embedded_cluster(tmp_path, workers=1, env=env) as cluster:
        await cluster.wait_until_members()
        started = await wait_until_async(
            lambda: jvms(cluster, writing=True),
            timeout_s=WRITTEN_TIMEOUT_S,
            describe="the writer's JVM runs",
        )
        cluster.process(WORKER).kill()
        assert not await wait_until_gone(started, ENDED_TIMEOUT_S)
        # a JVM that is not killed writes the archive before it ends
        assert not list(folder.rglob("*.jsa"))


async def test_a_stop_does_not_wait_for_the_writer(tmp_path: Path) -> None:
    folder = tmp_path / "classes"
    env = {"DROVER_CLASS_ARCHIVES": str(folder), "SPARK_SUBMIT_OPTS": ""}
    async with embedded_cluster(tmp_path, workers=1, env=env) as cluster:
        await cluster.wait_until_members()
        await wait_until_async(
            lambda: list(folder.glob(".new-*")),
            timeout_s=WRITTEN_TIMEOUT_S,
            describe="the archive is being written",
        )
    # the cluster's exit checks that no process is left
    assert not list(folder.glob("*.jsa"))
