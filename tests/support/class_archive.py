"""A class-data archive for the JVMs of a test run, which halves the CPU time of their starts.

The first process of a test run that needs sessions starts the program that writes the archive;
sessions that start earlier load their 20,000 classes from the jars.
"""

import json
import os
import subprocess
import sys
from collections.abc import MutableMapping
from pathlib import Path

from drover.local.java_check import JavaUnusableError, find_java
from drover_worker.engine.class_archive import (
    NoArchiveError,
    archive_file,
    decisive_settings,
    java_options,
)
from drover_worker.engine.settings import JAVA_OPTIONS, LOCAL_JVM_OPTIONS, NO_CLASS_ARCHIVES
from tests.support.repository import REPOSITORY

_FOLDER = REPOSITORY / ".spark-classes"
#: The setting of workers, with the folder of their archives.
_FOLDER_VARIABLE = "DROVER_CLASS_ARCHIVES"
#: Adds JVM options to the driver that spark-submit starts.
_JVM_OPTIONS = "SPARK_SUBMIT_OPTS"


def archive_path() -> Path | None:
    """The path of the archive for this Java and this Spark; None without one, or a usable Java."""
    try:
        settings = decisive_settings({JAVA_OPTIONS: LOCAL_JVM_OPTIONS})
        return archive_file(_FOLDER, settings, find_java())
    except (JavaUnusableError, NoArchiveError):
        return None


def use_no_archive(environ: MutableMapping[str, str]) -> None:
    """Let workers of this run neither use nor write archives."""
    environ[_FOLDER_VARIABLE] = NO_CLASS_ARCHIVES


def use_archive(environ: MutableMapping[str, str], archive: Path) -> None:
    """Make JVMs of this process and its children use the archive; they ignore a missing one."""
    environ[_FOLDER_VARIABLE] = str(archive.parent)
    options = java_options(archive)
    if options not in environ.get(_JVM_OPTIONS, ""):
        environ[_JVM_OPTIONS] = f"{environ.get(_JVM_OPTIONS, '')} {options}".strip()


def start_writing(archive: Path) -> "subprocess.Popen[bytes] | None":
    """Start a process that writes the archive; None if it exists."""
    if archive.exists():
        return None
    environment = {name: value for name, value in os.environ.items() if name != _JVM_OPTIONS}
    process = subprocess.Popen(
        [sys.executable, "-m", "drover_worker.engine.class_archive", str(archive.parent)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps({"spark.master": "local[2]"}).encode())
    process.stdin.close()
    return process
