"""Machines and settings on which no engine can run: one clear line, no traceback."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from drover.log.storage import EmbeddedStorage, KafkaTopics, Storage, parse_storage
from drover_worker.engine.process_constants import ExitCode
from drover_worker.engine.settings import EngineSettings
from drover_worker.shell.engine_supervisor import EngineExit, EngineSupervisor
from tests.support.addresses import free_address
from tests.support.waiting import wait_until_async

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


async def _first_exit(
    directory: Path,
    *,
    storage: Storage | None = None,
    spark_master: str = "local[1]",
    spark_conf: Mapping[str, str] | None = None,
) -> tuple[EngineExit, str]:
    """The first exit of an engine with these settings, and all its output."""
    exits: list[EngineExit] = []
    lines: list[bytes] = []
    settings = EngineSettings(
        storage=storage or EmbeddedStorage(directory),
        spark_master=spark_master,
        spark_conf=spark_conf or {},
    )
    supervisor = EngineSupervisor(
        settings, on_report=lambda _: None, on_exit=exits.append, on_log_line=lines.append
    )
    await supervisor.start()
    await wait_until_async(lambda: exits, timeout_s=480)
    await supervisor.close()
    return exits[0], b"".join(lines).decode()


async def test_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    (tmp_path / "bin").mkdir()
    for tool in ("bash", "dirname", "env", "sed", "tr"):
        (tmp_path / "bin" / tool).symlink_to(f"/usr/bin/{tool}")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    ended, log = await _first_exit(tmp_path)
    assert (ended.exit_code, ended.lasting) == (ExitCode.JAVA_UNUSABLE, True)
    assert ended.message.startswith("no Java found in JAVA_HOME or PATH; install Java 17")
    assert log == "", "only the herder logs it"


async def test_with_a_java_that_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\necho \'openjdk version "11.0.2"\' >&2\n[ "$1" = -version ]\n')
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    ended, log = await _first_exit(tmp_path)
    assert (ended.exit_code, ended.lasting) == (ExitCode.JAVA_UNUSABLE, True)
    assert "is Java 11, too old for Spark" in ended.message
    assert "Traceback" not in log


async def test_embedded_storage_with_a_spark_cluster_is_refused(tmp_path: Path) -> None:
    ended, log = await _first_exit(tmp_path, spark_master="spark://elsewhere:7077")
    assert (ended.exit_code, ended.lasting) == (ExitCode.BAD_SETTINGS, True)
    assert "the executors of Spark master spark://elsewhere:7077 run elsewhere" in ended.message
    assert "Traceback" not in log


@pytest.mark.spark
async def test_spark_settings_that_spark_refuses(tmp_path: Path) -> None:
    ended, log = await _first_exit(tmp_path, spark_conf={"spark.serializer": "no.such.Class"})
    assert ended.exit_code == ExitCode.SPARK_NOT_STARTED
    assert ended.message.startswith("Spark did not start: ")
    assert "Traceback" not in log


@pytest.mark.spark
@pytest.mark.faults("engine")  # Spark retries for a minute
async def test_a_spark_master_that_cannot_be_reached(tmp_path: Path) -> None:
    master = f"spark://{free_address()}"
    ended, log = await _first_exit(
        tmp_path,
        storage=parse_storage(f"kafka://{free_address()}", group_id="g", topics=KafkaTopics()),
        spark_master=master,
    )
    assert ended.exit_code == ExitCode.SPARK_NOT_STARTED
    assert ended.message.startswith(f"Spark did not start with the master {master}: ")
    assert "An error occurred" not in ended.message
    assert "\n" not in ended.message
    assert "DROVER_SPARK_MASTER" in ended.message
    assert "Traceback" not in log


@pytest.mark.spark
async def test_memory_settings_that_java_refuses(tmp_path: Path) -> None:
    ended, _ = await _first_exit(tmp_path, spark_conf={"spark.driver.memory": "1k"})
    assert ended.exit_code == ExitCode.SPARK_NOT_STARTED


@pytest.mark.spark
async def test_a_corrupt_data_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "data.db").write_bytes(b"no database at all, " * 1000)
    ended, log = await _first_exit(tmp_path)
    assert ended.exit_code == ExitCode.FAILED
    assert "data.db is damaged" in ended.message
    assert "Traceback" not in log
