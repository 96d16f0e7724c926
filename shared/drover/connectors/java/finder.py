"""Finds the Java class that ``connector.class`` names."""

import os
from collections.abc import Mapping
from pathlib import Path

from drover.connector import Connector
from drover.connectors.java.chain import JAVA_PREFIX
from drover.connectors.java.connectors import connector_of
from drover.java_plugins.catalogue import Catalogue, JavaPluginError, Kind, installed

HOME_VARIABLE = "DROVER_PLUGIN_HOME"
PATH_VARIABLE = "DROVER_PLUGIN_PATH"


def catalogue(environ: Mapping[str, str] = os.environ) -> Catalogue:
    """The Java plugins of this worker.

    Raises:
        JavaPluginError: The plugin home is not safe to use.
    """
    home = environ.get(HOME_VARIABLE)
    folders = [Path(each) for each in environ.get(PATH_VARIABLE, "").split(",") if each.strip()]
    return installed(Path(home) if home else None, folders)


def find_connector(
    name: str, environ: Mapping[str, str] = os.environ, *, in_engine: bool = False
) -> type[Connector] | None:
    """The connector class of the Java class ``name``; None if no plugin has it.

    Args:
        name: Its full name or the name without its package, with or without ``java:``.
        environ: The worker's environment.
        in_engine: Whether the class is for running connectors.

    Raises:
        JavaPluginError: Several plugins have it, or its plugin cannot be used.
    """
    wanted = name.strip().removeprefix(JAVA_PREFIX).strip()
    found = catalogue(environ)
    kinds = {each.kind for each in found.classes if wanted in (each.name, each.simple_name)}
    kind = next((each for each in (Kind.SOURCE, Kind.SINK) if each in kinds), None)
    if kind is None:
        if name.strip().startswith(JAVA_PREFIX):
            raise JavaPluginError(
                f"no installed Java plugin has the connector {wanted}: install it with `drover "
                f"plugin add`, or add its folder to {PATH_VARIABLE}"
            )
        return None
    return connector_of(found.find(wanted, kind), in_engine=in_engine)
