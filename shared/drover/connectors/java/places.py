"""Where the classes of a Java connector's config are."""

from collections.abc import Mapping
from contextlib import suppress

from drover.connectors.java.chain import classes_of
from drover.java_plugins.allowed import worker_catalogue
from drover.java_plugins.catalogue import JavaClass, JavaPluginError
from drover.java_plugins.host import Plugins


def has_class(name: str) -> bool:
    """Whether an installed Java plugin has the class ``name``."""
    return name in worker_catalogue()


def plugins_of(java_class: JavaClass, config: Mapping[str, str]) -> Plugins:
    """The plugins that a connector's host needs: its own, and the plugins of the other
    classes that the host's config names.
    """
    paths = {java_class.path: None}
    wanted = classes_of(config)
    if wanted:
        found = worker_catalogue()
        for name, version in sorted(wanted):
            # the host reports a class or a version that does not exist
            with suppress(JavaPluginError):
                paths[found.find(name, version=version, beside=java_class.plugin).path] = None
    return Plugins(tuple(paths), java_class.plugin)
