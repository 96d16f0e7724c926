"""A class-data archive for the JVMs of Spark sessions, which halves the CPU time of a start.

The first process of a test run that needs sessions starts a program that writes the archive;
sessions that start earlier load their 20,000 classes from the jars.

``python -m tests.support.class_archive FILE`` writes one.
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from drover.local.java_check import JavaUnusableError, find_java
from tests.support.repository import REPOSITORY

_FOLDER = REPOSITORY / ".spark-classes"
#: Adds JVM options to the driver that spark-submit starts.
_JVM_OPTIONS = "SPARK_SUBMIT_OPTS"


def archive_path() -> Path | None:
    """The path of the archive for this Java and this Spark; None without a usable Java."""
    import pyspark

    try:
        java = find_java()
    except JavaUnusableError:
        return None
    installed = java.path.resolve().stat()
    key = f"{java.path.resolve()} {installed.st_mtime_ns} {pyspark.__file__} {pyspark.__version__}"
    return _FOLDER / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsa"


def use_archive(environ: MutableMapping[str, str], archive: Path) -> None:
    """Make JVMs of this process and its children use the archive; they ignore a missing one."""
    option = f"-XX:SharedArchiveFile={archive}"
    if option not in environ.get(_JVM_OPTIONS, ""):
        environ[_JVM_OPTIONS] = f"{environ.get(_JVM_OPTIONS, '')} {option}".strip()


def start_writing(archive: Path) -> "subprocess.Popen[bytes] | None":
    """Start a process that writes the archive; None if it exists or another run writes it."""
    archive.parent.mkdir(exist_ok=True)
    if archive.exists():
        return None
    environment = {name: value for name, value in os.environ.items() if name != _JVM_OPTIONS}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.class_archive", str(archive)],
        cwd=REPOSITORY,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def write(archive: Path) -> None:
    """Run the jobs of test sessions, and archive the classes that they loaded."""
    from pyspark.sql import SparkSession

    from drover_worker.engine.session import LOCAL_JVM_OPTIONS

    os.environ["PYSPARK_PYTHON"] = sys.executable
    unfinished = archive.with_name(f"{os.getpid()}.jsa")
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.execution.arrow.pyspark.enabled", "true")
        .config(
            "spark.driver.extraJavaOptions",
            f"{LOCAL_JVM_OPTIONS} -XX:ArchiveClassesAtExit={unfinished}",
        )
        .getOrCreate()
    )
    context = session.sparkContext
    assert context.parallelize(range(4), 2).map(lambda each: each + 1).sum() == 10
    frame = session.range(1000).selectExpr("id", "cast(id as string) as text")
    passed = frame.mapInArrow(lambda batches: batches, frame.schema)
    assert len(passed.groupBy("text").count().toPandas()) == 1000
    gateway: Any = context._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=600)
    with suppress(FileNotFoundError):
        unfinished.rename(archive)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
