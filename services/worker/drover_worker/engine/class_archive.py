"""Archives of the classes that Spark's JVM loads: with one, a start needs half of the CPU time.

A JVM with an archive maps 20,000 parsed classes into its memory instead of reading them from jars
(JEP 350). The key of an archive is what it depends on: Java, Spark, the JVM's options and the class
path. The JVM checks this again, and its own checksums, and ignores an archive that does not fit.

``python -m drover_worker.engine.class_archive FOLDER [--idle]`` writes the one for the Spark
settings in its standard input, a JSON object, from a session that runs some jobs. With ``--idle``
it takes only time that no other process needs.
"""

import fcntl
import hashlib
import json
import os
import shutil
import stat
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pyspark

from drover.local.java_check import Java, JavaUnusableError, find_java
from drover.private_files import SharedDirectoryError, private_directory, replace_private
from drover_worker.engine.gateway import EngineStartError, start_gateway
from drover_worker.engine.settings import (
    JAVA_OPTIONS,
    LOCAL_JVM_OPTIONS,
    NO_CLASS_ARCHIVES,
    is_local_master,
)

#: Spark's settings that change which classes a JVM can load, or how.
_DECISIVE = (
    JAVA_OPTIONS,
    "spark.driver.extraClassPath",
    "spark.driver.extraLibraryPath",
    "spark.driver.userClassPathFirst",
    "spark.jars",
    "spark.jars.packages",
)
#: Options of a user that exclude another archive.
_OTHERS = ("-Xshare", "SharedArchiveFile", "ArchiveClassesAtExit")
#: Classes that cannot be archived are hundreds of warnings.
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"
_SUFFIX, _SIZE_SUFFIX, _LOCK = ".jsa", ".size", ".lock"
#: Archives of further versions and settings that stay.
_KEPT_MAX = 3
_ROOT_USER = 0
#: With idle time only, a JVM on a busy machine takes many minutes to start.
_START_LIMIT_S = 1_800.0
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class NoArchiveError(Exception):
    """An archive cannot be used or written; the message is a clause with the reason."""


def decisive_settings(conf: Mapping[str, str]) -> dict[str, str]:
    """The Spark settings on which an archive depends."""
    return {name: conf[name] for name in _DECISIVE if conf.get(name)}


def archive_file(folder: Path, settings: Mapping[str, str], java: Java) -> Path:
    """The path of the archive for a Java, this Spark and ``decisive_settings``.

    Raises:
        NoArchiveError: The settings name another archive.
    """
    options = settings.get(JAVA_OPTIONS, "")
    if any(each in options for each in _OTHERS):
        raise NoArchiveError(f"{JAVA_OPTIONS} has options for class data sharing")
    program = java.path.resolve()
    jars = Path(pyspark.__file__).parent / "jars"
    parts = [
        f"{program} {int(program.stat().st_mtime)}",
        f"{pyspark.__version__} {jars} {int(jars.stat().st_mtime)}",
        json.dumps(dict(settings), sort_keys=True),
    ]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return folder / f"{digest[:24]}{_SUFFIX}"


def check_usable(archive: Path) -> bool:
    """Whether the archive exists; only this user and root can have written it.

    Raises:
        NoArchiveError: Other users can have written it.
    """
    for path, kind in ((archive.parent, stat.S_ISDIR), (archive, stat.S_ISREG)):
        try:
            status = path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise NoArchiveError(f"{path} cannot be read ({error.strerror})") from error
        if not kind(status.st_mode):
            raise NoArchiveError(f"{path} is a link, or not what Drover writes")
        if status.st_uid not in (os.geteuid(), _ROOT_USER) or status.st_mode & _WRITABLE_BY_OTHERS:
            raise NoArchiveError(f"other users can change {path}")
    # the JVM checks the content, but ends when it maps a file that was cut
    if _expected_size(archive) != status.st_size:
        raise NoArchiveError(f"{archive} is damaged: its size is {status.st_size} bytes")
    return True


def _is_written(archive: Path) -> bool:
    return _expected_size(archive) is not None and archive.exists()


def _expected_size(archive: Path) -> int | None:
    try:
        return int(archive.with_suffix(_SIZE_SUFFIX).read_text(encoding="ascii")[:20])
    except (OSError, ValueError):
        return None


def options_of_engine(folder: str, conf: Mapping[str, str], java: Java) -> str:
    """The JVM's options that use an archive of the folder; empty without one.

    Raises:
        NoArchiveError: The archive cannot be used.
    """
    if folder == NO_CLASS_ARCHIVES:
        return ""
    archive = archive_file(Path(folder), decisive_settings(conf), java)
    return java_options(archive) if check_usable(archive) else ""


def java_options(archive: Path) -> str:
    """The JVM's options that use an archive; a JVM that cannot use it logs a warning."""
    return f"-XX:SharedArchiveFile={archive} -XX:+VerifySharedSpaces"


def write(archive: Path, settings: Mapping[str, str]) -> None:
    """Write an archive, unless it exists or another process writes to the folder.

    Raises:
        NoArchiveError: The folder cannot be written, or the JVM wrote no archive.
    """
    folder = archive.parent
    if _is_written(archive):
        return  # perhaps in an image, which is read-only
    try:
        private_directory(folder)
        with (folder / _LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            if not _is_written(archive):
                with tempfile.TemporaryDirectory(prefix=".new-", dir=folder) as directory:
                    _remove_leftovers(folder, Path(directory))
                    unfinished = Path(directory) / archive.name
                    _run_session(unfinished, settings, Path(directory))
                    size_bytes = unfinished.stat().st_size
                    unfinished.replace(archive)
                    replace_private(archive.with_suffix(_SIZE_SUFFIX), str(size_bytes))
                _remove_older(folder)
    except SharedDirectoryError as error:
        raise NoArchiveError(f"{folder}: {error}") from error
    except OSError as error:
        raise NoArchiveError(f"{folder} cannot be written ({error.strerror or error})") from error


def _run_session(unfinished: Path, settings: Mapping[str, str], directory: Path) -> None:
    """Run the jobs that connectors run, and archive the classes that they loaded."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    options = settings.get(JAVA_OPTIONS, "")
    conf = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.authenticate": "true",
        "spark.scheduler.mode": "FAIR",
        "spark.log.level": "ERROR",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        **settings,
        JAVA_OPTIONS: f"{options} {_QUIET} -XX:ArchiveClassesAtExit={unfinished}".strip(),
    }
    gateway = start_gateway(conf, directory, os.environ)
    try:
        gateway.wait(threading.Event(), _START_LIMIT_S)
    except EngineStartError as error:
        raise NoArchiveError(str(error)) from error
    gateway.use()
    session = SparkSession.builder.getOrCreate()
    context = session.sparkContext
    context.parallelize(range(4), 2).map(lambda each: each + 1).sum()
    frame = session.range(1000).selectExpr("id", "cast(id as string) as text", "id % 7 as part")
    passed = frame.mapInArrow(lambda batches: batches, frame.schema)
    passed.groupBy("text").count().toPandas()
    passed.toArrow()
    rows = str(directory / "rows")
    passed.write.partitionBy("part").parquet(rows)
    session.read.parquet(rows).where("part = 3").collect()
    session.stop()
    gateway.close()
    code = gateway.jvm.wait()
    if not unfinished.exists():
        raise NoArchiveError(f"the JVM ended with {code} and wrote no archive")


def _remove_leftovers(folder: Path, used: Path) -> None:
    """Remove what killed writers left. The caller has the lock."""
    for each in folder.glob(".new-*"):
        if each != used:
            shutil.rmtree(each, ignore_errors=True)


def _remove_older(folder: Path) -> None:
    found = sorted(folder.glob(f"*{_SUFFIX}"), key=lambda each: each.stat().st_mtime_ns)
    for each in found[:-_KEPT_MAX]:
        for path in (each, each.with_suffix(_SIZE_SUFFIX)):
            with suppress(FileNotFoundError):
                path.unlink()


def main() -> int:
    """Write the archive to the folder that is named; returns the exit code."""
    folder, *options = sys.argv[1:]
    if "--idle" in options:
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    conf: dict[str, str] = json.load(sys.stdin)
    if is_local_master(conf.get("spark.master", "local")):
        conf = {JAVA_OPTIONS: LOCAL_JVM_OPTIONS, **conf}
    settings = decisive_settings(conf)
    try:
        write(archive_file(Path(folder), settings, find_java()), settings)
    except (NoArchiveError, JavaUnusableError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
