"""Which Java plugins were installed or replaced after an engine loaded its code."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from drover.java_plugins.catalogue import installed
from drover.java_plugins.scan import jar_paths
from drover.java_plugins.values import JavaPluginError, Plugin


def changed_classes(
    since_ms: int, home: Path | None, plugin_path: Sequence[Path]
) -> Mapping[str, str]:
    """The Java plugin of each class that changed, by the full name and by the simple name.

    A plugin changed if one of its jars was written since: every installation sets the time of a
    file's last change (ctime).

    Args:
        since_ms: When the engine had loaded its code, since the epoch.
        home: The plugin home; None for none.
        plugin_path: Further folders with plugins.
    """
    try:
        plugins = installed(home, plugin_path).plugins
    except JavaPluginError:  # configs that name a class of it fail with the reason
        return {}
    return {
        name: f"the Java plugin {plugin.name}"
        for plugin in plugins
        if _is_written(plugin, since_ms)
        for java_class in plugin.classes
        for name in (java_class.name, java_class.simple_name)
    }


def installed_classes(home: Path | None, plugin_path: Sequence[Path]) -> frozenset[tuple[str, str]]:
    """The Java classes with the names of their plugins, by the full name and by the simple name."""
    try:
        plugins = installed(home, plugin_path).plugins
    except JavaPluginError:
        return frozenset()
    return frozenset(
        (name, plugin.name)
        for plugin in plugins
        for java_class in plugin.classes
        for name in (java_class.name, java_class.simple_name)
    )


def removed_classes(
    before: frozenset[tuple[str, str]], now: frozenset[tuple[str, str]]
) -> dict[str, str]:
    """The removed Java plugin of each class that a plugin had before, and has no more."""
    return {name: f"the removed Java plugin {plugin}" for name, plugin in sorted(before - now)}


def _is_written(plugin: Plugin, since_ms: int) -> bool:
    try:
        paths = list(jar_paths(plugin.path, follow_links=True))
        return any(each.stat().st_ctime_ns / 1e6 > since_ms for each in paths)
    except OSError:
        return True
