"""Finds the Java class that ``connector.class`` names."""

import os
from collections.abc import Mapping

from drover.connector import Connector
from drover.connectors.java.chain import JAVA_PREFIX
from drover.connectors.java.connectors import connector_of
from drover.java_plugins.allowed import class_fault, worker_catalogue
from drover.java_plugins.catalogue import JavaPluginError, Kind
from drover.java_plugins.host import check_runnable
from drover.java_plugins.places import PATH_VARIABLE


def find_connector(
    name: str,
    version: str = "",
    environ: Mapping[str, str] = os.environ,
    *,
    in_engine: bool = False,
) -> type[Connector] | None:
    """The connector class of the Java class ``name``; None if no plugin has it.

    Args:
        name: Its full name or the name without its package, with or without ``java:``.
        version: The wanted version or range of versions; empty for the latest.
        environ: The worker's environment.
        in_engine: Whether the class is for running connectors.

    Raises:
        JavaPluginError: Several plugins have it, its plugin cannot be used, the worker does not
            allow it, or has no Java or no host for it.
    """
    wanted = name.strip().removeprefix(JAVA_PREFIX).strip()
    found = worker_catalogue(environ)
    kinds = {each.kind for each in found.classes if wanted in (each.name, each.simple_name)}
    kind = next((each for each in (Kind.SOURCE, Kind.SINK) if each in kinds), None)
    if kind is None:
        if name.strip().startswith(JAVA_PREFIX):
            raise JavaPluginError(
                f"no installed Java plugin has the connector {wanted}: install it with `drover "
                f"plugin add`, or add its folder to {PATH_VARIABLE}"
            )
        return None
    java_class = found.find(wanted, kind, version)
    fault = class_fault(java_class.name, environ)
    if fault is not None:
        raise JavaPluginError(fault)
    check_runnable(java_class.plugin, java_class.name, environ)
    return connector_of(java_class, in_engine=in_engine)
