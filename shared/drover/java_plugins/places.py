"""Where Java plugins are: the plugin home, the further folders, and the host that runs them."""

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path

from drover.java_plugins.plugin_path import split_plugin_path

HOME_VARIABLE = "DROVER_PLUGIN_HOME"
PATH_VARIABLE = "DROVER_PLUGIN_PATH"
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


def host_jars() -> Path | None:
    """The folder with the jars of the host of Java plugins; None if it is not installed.

    They are in the worker's package, and missing if that was built without Maven or a JDK.
    """
    worker = importlib.util.find_spec("drover_worker")
    for each in (worker.submodule_search_locations or ()) if worker is not None else ():
        folder = Path(each) / _HOST_FOLDER
        if (folder / _HOST_JAR).is_file():
            return folder
    return None
