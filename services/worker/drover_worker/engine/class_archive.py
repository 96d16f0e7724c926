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
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pyspark
from pyspark.find_spark_home import _find_spark_home

from drover.local.java_check import Java, JavaUnusableError, find_java
from drover.model.sizes import size_bytes
from drover.private_files import SharedDirectoryError, private_directory, replace_private
from drover_worker.engine.gateway import EngineStartError, cause_of, start_gateway
from drover_worker.engine.jvm_options import decides_classes, quoted, split
from drover_worker.engine.settings import (
    DEFAULT_DRIVER_MEMORY,
    DRIVER_MEMORY,
    JAVA_OPTIONS,
    LOCAL_JVM_OPTIONS,
    NO_CLASS_ARCHIVES,
    is_local_master,
)

_DEFAULT_JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
_EXTRA_CLASS_PATH = "spark.driver.extraClassPath"
#: Spark's settings that change which classes a JVM can load.
_DECISIVE = (
    _EXTRA_CLASS_PATH,
    "spark.driver.extraLibraryPath",
    "spark.driver.userClassPathFirst",
    "spark.jars",
    "spark.jars.packages",
)
#: Variables of which Spark's scripts make a part of the class path.
_CLASS_PATH_VARIABLES = (
    "HADOOP_CONF_DIR", "SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH", "SPARK_PREPEND_CLASSES",
    "YARN_CONF_DIR",
)  # fmt: skip
#: Variables with options that each JVM takes.
_OPTION_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
#: Adds options to the JVM that Spark's scripts start.
_SUBMIT_OPTIONS = "SPARK_SUBMIT_OPTS"
#: Options of a user that exclude another archive.
_OTHERS = ("-Xshare", "SharedArchiveFile", "ArchiveClassesAtExit")
#: With a heap of this size references have 64 bits, and archives for others do not fit.
_LARGE_HEAP_BYTES = 32 << 30
_LARGE_HEAP = "-XX:-UseCompressedOops"
_SUFFIX, _SIZE_SUFFIX, _LOCK = ".jsa", ".size", ".lock"
#: An installation, such as an image, can have archives that every user of it may use.
INSTALLED_ARCHIVES = Path(sys.prefix) / "share" / "drover" / "spark-classes"
#: Archives of further versions and settings that stay.
_KEPT_MAX = 3
_ROOT_USER = 0
#: With idle time only, a JVM on a busy machine takes many minutes to start, or to end.
_JVM_LIMIT_S = 1_800.0
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
#: Of the JVM's output; the last lines of it are in messages.
_OUTPUT_BYTES = 64 << 10
_OUTPUT_LINES = 3
#: Hundreds of classes cannot be archived.
_EXPECTED_WARNING = "Skipping "


class NoArchiveError(Exception):
    """An archive cannot be used or written; the message is a clause with the reason."""


def decisive_settings(
    conf: Mapping[str, str], environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The Spark settings on which an archive depends, with which a second JVM can run.

    Of the JVM's options they have only options for the form of classes: others would let the
    JVM that writes the archive open the engine's ports, write its files or wait for a debugger.

    Raises:
        NoArchiveError: The settings, or variables of the environment, name another archive.
    """
    given = {name: environ.get(name, "") for name in _OPTION_VARIABLES}
    given |= {name: conf.get(name, "") for name in (_DEFAULT_JAVA_OPTIONS, JAVA_OPTIONS)}
    kept = []
    for name, text in given.items():
        if any(each in text for each in _OTHERS):
            raise NoArchiveError(f"{name} has options for class data sharing")
        try:
            kept += [each for each in split(text) if decides_classes(each)]
        except ValueError as error:
            raise NoArchiveError(f"{name} cannot be read: {error}") from error
    heap_bytes = size_bytes(conf.get(DRIVER_MEMORY, DEFAULT_DRIVER_MEMORY))
    if heap_bytes is not None and heap_bytes >= _LARGE_HEAP_BYTES:
        kept.append(_LARGE_HEAP)
    settings = {name: conf[name] for name in _DECISIVE if conf.get(name)}
    return {**settings, JAVA_OPTIONS: " ".join(kept)} if kept else settings


def archive_file(folder: Path, settings: Mapping[str, str], java: Java) -> Path:
    """The path of the archive for a Java, this Spark and ``decisive_settings``.

    Raises:
        NoArchiveError: The JVM cannot have an archive in this folder, or for this class path.
    """
    if ":" in str(folder):
        raise NoArchiveError(
            f"the JVM would read the path {folder} as two, because it has a colon: set"
            " DROVER_CLASS_ARCHIVES to a folder without one"
        )
    program = java.path.resolve()
    variables = {name: os.environ[name] for name in _CLASS_PATH_VARIABLES if os.environ.get(name)}
    # the JVM takes no archive for jars that have changed, by their size and their time in seconds
    jars = sorted(_jars(settings.get(_EXTRA_CLASS_PATH, "")))
    parts = [
        f"{program} {int(program.stat().st_mtime)}",
        pyspark.__version__,
        *(f"{jar} {status.st_size} {int(status.st_mtime)}" for jar, status in jars),
        json.dumps([variables, dict(settings)], sort_keys=True),
    ]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return folder / f"{digest[:24]}{_SUFFIX}"


def _jars(extra_class_path: str) -> Iterator[tuple[str, os.stat_result]]:
    extra = [Path(each) for each in extra_class_path.split(":") if each]
    for path in (*(Path(_find_spark_home()) / "jars").glob("*.jar"), *extra):
        with suppress(OSError):
            yield str(path), path.stat()


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
    recorded = _recorded(archive)
    if not recorded or recorded[0] != str(status.st_size):
        raise NoArchiveError(f"{archive} is damaged: its size is {status.st_size} bytes")
    return True


def _recorded(archive: Path) -> list[str]:
    """The size and the digest that the archive had when it was written; empty if unknown."""
    try:
        return archive.with_suffix(_SIZE_SUFFIX).read_text(encoding="ascii")[:100].split()
    except (OSError, ValueError):
        return []


def _is_whole(archive: Path) -> bool:
    """Whether engines can use the archive, and its content is the one that was written."""
    try:
        return check_usable(archive) and _recorded(archive)[1:] == [_digest(archive)]
    except (NoArchiveError, OSError):
        return False


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def options_of_engine(folder: str, conf: Mapping[str, str], java: Java) -> str:
    """The JVM's options that use an archive of the folder, or of the installation; empty without.

    Raises:
        NoArchiveError: The archive cannot be used.
    """
    if folder == NO_CLASS_ARCHIVES:
        return ""
    settings = decisive_settings(conf)
    fault: NoArchiveError | None = None
    for place in (INSTALLED_ARCHIVES, Path(folder)):
        try:
            archive = archive_file(place, settings, java)
            if check_usable(archive):
                return java_options(archive)
        except NoArchiveError as error:
            fault = error
    if fault is not None:
        raise fault
    return ""


def java_options(archive: Path) -> str:
    """The JVM's options that use an archive; a JVM that cannot use it logs a warning."""
    return f"{quoted(f'-XX:SharedArchiveFile={archive}')} -XX:+VerifySharedSpaces"


def write(archive: Path, settings: Mapping[str, str]) -> None:
    """Write an archive, unless it is whole or another process writes to the folder.

    Raises:
        NoArchiveError: The folder cannot be written, or the JVM wrote no archive.
    """
    folder = archive.parent
    if _is_whole(archive):
        return  # perhaps in an image, which is read-only
    try:
        private_directory(folder)
        with (folder / _LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            if not _is_whole(archive):
                with tempfile.TemporaryDirectory(prefix=".new-", dir=folder) as directory:
                    _remove_leftovers(folder, Path(directory))
                    unfinished = Path(directory) / archive.name
                    _run_session(unfinished, settings, Path(directory))
                    recorded = f"{unfinished.stat().st_size} {_digest(unfinished)}"
                    unfinished.replace(archive)
                    replace_private(archive.with_suffix(_SIZE_SUFFIX), recorded)
                _remove_older(folder)
    except SharedDirectoryError as error:
        raise NoArchiveError(f"{folder}: {error}") from error
    except OSError as error:
        raise NoArchiveError(f"{folder} cannot be written ({error.strerror or error})") from error


def _run_session(unfinished: Path, settings: Mapping[str, str], directory: Path) -> None:
    """Run the jobs that connectors run, and archive the classes that they loaded."""
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
        JAVA_OPTIONS: f"{options} {quoted(f'-XX:ArchiveClassesAtExit={unfinished}')}".strip(),
    }
    output = directory / "output"
    with output.open("wb") as stream:
        gateway = start_gateway(conf, directory, os.environ, stream)
        try:
            gateway.wait(threading.Event(), _JVM_LIMIT_S)
            gateway.use()
            _run_jobs(directory / "rows")
            gateway.close()
            code = gateway.jvm.wait(_JVM_LIMIT_S)
        except EngineStartError as error:
            code = gateway.jvm.wait()
            raise NoArchiveError(
                f"Spark's JVM ended with exit code {code} at its start{_end_of(output)}"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise NoArchiveError(f"Spark's JVM did not end{_end_of(output)}") from error
        except Exception as error:
            raise NoArchiveError(f"Spark's jobs failed: {cause_of(error)}") from error
        finally:
            gateway.jvm.kill()
            gateway.jvm.wait()
    # a JVM that is killed while it writes leaves a part
    if code != 0 or not unfinished.exists():
        raise NoArchiveError(
            f"Spark's JVM ended with exit code {code} and wrote no archive{_end_of(output)}"
        )


def _run_jobs(rows: Path) -> None:
    from pyspark.sql import SparkSession

    session = SparkSession.builder.getOrCreate()
    context = session.sparkContext
    context.parallelize(range(4), 2).map(lambda each: each + 1).sum()
    frame = session.range(1000).selectExpr("id", "cast(id as string) as text", "id % 7 as part")
    passed = frame.mapInArrow(lambda batches: batches, frame.schema)
    passed.groupBy("text").count().toPandas()
    passed.toArrow()
    passed.write.partitionBy("part").parquet(str(rows))
    session.read.parquet(str(rows)).where("part = 3").collect()
    session.stop()


def _end_of(output: Path) -> str:
    """The last lines of the JVM's output in one, after a colon; empty without any."""
    text = output.read_bytes()[-_OUTPUT_BYTES:].decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if _EXPECTED_WARNING not in line]
    said = [line for line in lines if line][-_OUTPUT_LINES:]
    return f": {'; '.join(said)}" if said else ""


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


def check_base(java: Java) -> None:
    """An archive adds to the one of Java's own classes, without which a JVM writes none.

    Raises:
        NoArchiveError: This Java has none.
    """
    folder = java.path.resolve().parent.parent / "lib" / "server"
    if folder.is_dir() and not any(folder.glob(f"classes*{_SUFFIX}")):
        raise NoArchiveError(
            f"{folder} has no archive of Java's own classes: run `{java.path} -Xshare:dump`"
        )


def main() -> int:
    """Write the archive to the folder that is named; returns the exit code."""
    folder, *options = sys.argv[1:]
    if "--idle" in options:
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    conf: dict[str, str] = json.load(sys.stdin)
    if is_local_master(conf.get("spark.master", "local")):
        conf = {JAVA_OPTIONS: LOCAL_JVM_OPTIONS, **conf}
    try:
        settings = decisive_settings(conf)
        for name in (*_OPTION_VARIABLES, _SUBMIT_OPTIONS):
            os.environ.pop(name, None)
        java = find_java()
        if not _is_whole(archive_file(INSTALLED_ARCHIVES, settings, java)):
            archive = archive_file(Path(folder), settings, java)
            check_base(java)
            write(archive, settings)
    except (NoArchiveError, JavaUnusableError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
