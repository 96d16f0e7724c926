"""Where the classes of a Java connector's config are."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from drover.connectors.java.chain import VERSION, classes_of, steps_of
from drover.connectors.java.settings import PLUGIN_VERSION
from drover.java_plugins.allowed import worker_catalogue
from drover.java_plugins.catalogue import JavaClass, JavaPluginError
from drover.java_plugins.host import Plugins


def has_class(name: str) -> bool:
    """Whether an installed Java plugin has the class ``name``."""
    return name in worker_catalogue()


@dataclass(frozen=True, slots=True)
class Hosting:
    """What runs a connector.

    Attributes:
        plugins: The plugins that its host needs: its own, and the plugins of the other classes
            that its config names.
        config: The config for the host. Without the versions by which these plugins were chosen:
            the host knows only the version that a class reports, not that of its folder or jar.
    """

    plugins: Plugins
    config: Mapping[str, str]


def hosting(java_class: JavaClass, config: Mapping[str, str]) -> Hosting:
    """The plugins for a host's config, and the config for them."""
    plugins = plugins_of(java_class, config)
    chosen = frozenset(_chosen_versions(java_class, config, frozenset(plugins.paths)))
    return Hosting(plugins, {name: text for name, text in config.items() if name not in chosen})


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


def _chosen_versions(
    java_class: JavaClass, config: Mapping[str, str], paths: frozenset[Path]
) -> Iterator[str]:
    """The settings of versions that leave the host no choice: one of its plugins has the class."""
    found = worker_catalogue()
    chosen = {PLUGIN_VERSION: java_class}
    for prefix, name in steps_of(config).items():
        setting = f"{prefix}.{VERSION}"
        if setting in config:
            with suppress(JavaPluginError):
                version, beside = config[setting], java_class.plugin
                chosen[setting] = found.find(name, version=version, beside=beside)
    for setting, each in chosen.items():
        having = {one.path for one in found.classes if one.name == each.name and one.path in paths}
        if having <= {each.path}:
            yield setting
