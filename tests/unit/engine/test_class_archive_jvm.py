"""The JVM that writes an archive of classes: its options, and why it wrote none.

A script replaces Spark's: the tests look at its input and choose its end.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from drover.log.storage import EmbeddedStorage
from drover_worker.engine import class_archive
from drover_worker.engine.class_archive import NoArchiveError, write
from drover_worker.engine.gateway import Gateway
from drover_worker.engine.jvm_options import split
from drover_worker.engine.session import start_jvm
from drover_worker.engine.settings import JAVA_OPTIONS, EngineSettings

_JAVA = """\
#!/bin/sh
test -z "$JAVA_TOOL_OPTIONS" || exit 1
case $1 in
  -version) echo 'openjdk version "17.0.1"' ;;
  --list-modules) echo jdk.incubator.vector@17 ;;
esac
"""
_KEEP = """cp "$2" "$SPARK_HOME/given"; env > "$SPARK_HOME/environment"
"""
_REFUSE = """\
echo "[0.010s][warning][cds] Skipping a/b: Old class"
echo "Error occurred during initialization of VM"
echo "Must enable AllowArchivingWithJavaAgent"
exit 1
"""
_DIE_WHILE_WRITING = """\
: > "$_PYSPARK_DRIVER_CONN_INFO_PATH"
cat > /dev/null
archive=$(sed -n 's/.*-XX:ArchiveClassesAtExit=//p' "$2")
printf half > "$archive"
kill -9 $$
"""

Scripted = Callable[[str], Path]


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scripted:
    """Sets what Spark's script does; the result is Spark's folder."""

    def use(steps: str) -> Path:
        java, home = tmp_path / "java", tmp_path / "spark"
        for program, text in (
            (java / "bin" / "java", _JAVA),
            (home / "bin" / "spark-submit", f"#!/bin/sh\n{steps}"),
        ):
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text(text)
            program.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(java))
        monkeypatch.setenv("SPARK_HOME", str(home))
        return home

    return use


def options_given(home: Path) -> list[str]:
    """The JVM's options in the file of properties that Spark's script received."""
    lines = (home / "given").read_text().splitlines()
    (text,) = [each.partition("=")[2] for each in lines if each.startswith(f"{JAVA_OPTIONS}=")]
    return split(text.replace("\\\\", "\\"))


def write_as_program(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    conf = {
        "spark.master": "local[2]",
        JAVA_OPTIONS: "-XX:+UseG1GC -Dcom.sun.management.jmxremote.port=9999",
    }
    return subprocess.run(
        [sys.executable, "-m", "drover_worker.engine.class_archive", str(folder)],
        input=json.dumps(conf),
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_reason_of_a_jvm_that_wrote_no_archive_is_its_own(
    scripted: Scripted, tmp_path: Path
) -> None:
    scripted(_REFUSE)
    done = write_as_program(tmp_path / "classes")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "Spark's JVM ended with exit code 1 at its start: Error occurred during initialization of"
        " VM; Must enable AllowArchivingWithJavaAgent"
    )


def test_it_has_no_ports_agents_and_files_of_the_engines_jvm(
    scripted: Scripted, tmp_path: Path
) -> None:
    home = scripted(_KEEP + _REFUSE)
    folder = tmp_path / "all classes"
    write_as_program(
        folder, JAVA_TOOL_OPTIONS="-agentlib:jdwp", SPARK_SUBMIT_OPTS="-Xlog:gc:file=/tmp/gc"
    )
    first, archive = options_given(home)
    assert first == "-XX:+UseG1GC"
    assert archive.startswith(f"-XX:ArchiveClassesAtExit={folder}/")
    environment = (home / "environment").read_text()
    assert "JAVA_TOOL_OPTIONS" not in environment
    assert "SPARK_SUBMIT_OPTS" not in environment


def test_the_part_that_a_killed_jvm_wrote_is_no_archive(
    scripted: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(_DIE_WHILE_WRITING)
    monkeypatch.setattr(class_archive, "_run_jobs", lambda _rows: None)
    monkeypatch.setattr(Gateway, "use", lambda _gateway: None)
    archive = tmp_path / "classes" / "k.jsa"
    with pytest.raises(NoArchiveError, match="ended with exit code -9 and wrote no archive"):
        write(archive, {})
    assert sorted(each.name for each in archive.parent.iterdir()) == [".lock"]


def test_jobs_that_fail_are_reported_in_one_line(
    scripted: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(_DIE_WHILE_WRITING)

    def fail(_rows: Path) -> None:
        raise ValueError("An error occurred while calling o1.x.\n: java.io.IOException: full\n\tat")

    monkeypatch.setattr(class_archive, "_run_jobs", fail)
    monkeypatch.setattr(Gateway, "use", lambda _gateway: None)
    with pytest.raises(NoArchiveError, match=r"^Spark's jobs failed: java\.io\.IOException: full$"):
        write(tmp_path / "classes" / "k.jsa", {})


def test_an_engine_whose_temporary_folder_has_blanks_gives_each_path_as_one_option(
    scripted: Scripted, tmp_path: Path
) -> None:
    home = scripted(_KEEP)
    directory = tmp_path / "a, b'c"
    directory.mkdir()
    storage = EmbeddedStorage(tmp_path / "data")
    gateway = start_jvm(EngineSettings(storage=storage), directory)
    gateway.close()
    assert gateway.jvm.wait(60) == 0
    log4j, temporary, *_ = options_given(home)
    # a comma would separate two files
    assert log4j == f"-Dlog4j2.configurationFile=file://{tmp_path}/a%2C%20b%27c/log4j2.properties"
    assert temporary == f"-Djava.io.tmpdir={directory}"
