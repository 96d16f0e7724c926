"""Where Java plugins are: the plugin home, the further folders, and the host that runs them."""

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path

from drover.java_plugins.plugin_path import split_plugin_path

HOME_VARIABLE = "DROVER_PLUGIN_HOME"
PATH_VARIABLE = "DROVER_PLUGIN_PATH"
#: Set in engines whose Spark executors may run on other machines: the Spark master.
REMOTE_VARIABLE = "DROVER_REMOTE_SPARK_MASTER"
#: The folder of the host's jars, if it is not in the worker's package.
JARS_VARIABLE = "DROVER_JAVA_HOST"
_HOST_FOLDER = "java_host"
_HOST_JAR = "drover-java-host.jar"


def plugin_home(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder into which plugins are installed: ``DROVER_PLUGIN_HOME``; by default
    ``drover/java-plugins`` in the user's folder for data (XDG_DATA_HOME). It may be missing.
    """
    given = environ.get(HOME_VARIABLE)
    if given:
        return Path(given).absolute()
    data = environ.get("XDG_DATA_HOME") or Path(environ.get("HOME", "~")).expanduser() / (
        ".local/share"
    )
    return Path(data) / "drover" / "java-plugins"


def plugin_path(environ: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """The folders in ``DROVER_PLUGIN_PATH``, in the form of Kafka Connect's ``plugin.path``."""
    return split_plugin_path(environ.get(PATH_VARIABLE, ""))


def host_jars(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The folder with the jars of the host of Java plugins; None if it is not installed.

    They are in the worker's package, unless ``DROVER_JAVA_HOST`` names another folder, and missing
    if that was built without Maven or a JDK.
    """
    folder = _host_folder(environ)
    return folder if folder is not None and (folder / _HOST_JAR).is_file() else None


def missing_host(environ: Mapping[str, str] = os.environ) -> str:
    """What is missing where there is no host, and the remedy after a colon."""
    folder = _host_folder(environ)
    if folder is None:
        return "Java plugins run on a worker, and drover-worker is not installed: install it"
    return (
        f"the host of Java plugins is not installed ({folder} has no {_HOST_JAR}): run "
        "`make java-host` with Maven and a JDK, or install a wheel of drover-worker that has it, "
        f"or set {JARS_VARIABLE} to its folder"
    )


def _host_folder(environ: Mapping[str, str]) -> Path | None:
    named = environ.get(JARS_VARIABLE)
    if named:
        return Path(named)
    worker = importlib.util.find_spec("drover_worker")
    found = (worker.submodule_search_locations or ()) if worker is not None else ()
    return next((Path(each) / _HOST_FOLDER for each in found), None)
