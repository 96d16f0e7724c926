"""The commands of ``drover plugin`` that install plugins of Kafka Connect on this machine.

They call no cluster.
"""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from drover.cli.console import (
    CliError,
    Output,
    OutputOption,
    YesOption,
    complain,
    confirm,
    plain,
    print_document,
    print_table,
    say,
)
from drover.cli.names import trimmed
from drover.java_plugins import install
from drover.java_plugins.catalogue import JavaPluginError, Plugin, installed
from drover.java_plugins.describe import JavaHost
from drover.java_plugins.places import host_jars, plugin_home, plugin_path
from drover.local.java_check import JavaUnusableError, find_java

_What = Annotated[
    str,
    typer.Argument(
        metavar="DIR|ZIP|TAR.GZ|JAR|G:A:V|G:A:TYPE:CLASSIFIER:V",
        help="A folder, an archive, a jar, or Maven coordinates.",
        callback=trimmed,
    ),
]
_Name = Annotated[
    str,
    typer.Option(
        "--name", help="The plugin's name, without its version; by default that of the file."
    ),
]


def add(what: _What, name: _Name = "", output: OutputOption = Output.TABLE) -> None:
    """Install a plugin of Kafka Connect on this machine, beside its other versions.

    It is put into DROVER_PLUGIN_HOME. Maven coordinates need mvn; a jar comes with its runtime
    dependencies. `drover plugin reload` makes running workers use it.
    """
    _install(what, name, output, upgrades=False)


def upgrade(what: _What, name: _Name = "", output: OutputOption = Output.TABLE) -> None:
    """Install a version of a plugin, and remove its other versions."""
    _install(what, name, output, upgrades=True)


def remove(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME[@VERSION]",
            help="As `drover plugin list --local` shows it.",
            callback=trimmed,
        ),
    ],
    yes: YesOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Remove a plugin of Kafka Connect from this machine; connectors that use it fail."""
    home = plugin_home()
    confirm(f"remove {name} from {home}?", yes=yes, in_scripts=True)
    try:
        removed = install.remove(name, home)
    except JavaPluginError as error:
        raise CliError(str(error)) from None
    if output is not Output.TABLE:
        print_document({"plugin": removed.name, "removed": True}, output)
    else:
        say(plain(f"removed {removed.name}; `drover plugin reload` makes workers notice it"))


def show_installed(output: Output) -> None:
    """Print the Java plugins of this machine."""
    try:
        catalogue = installed(plugin_home(), plugin_path())
    except JavaPluginError as error:
        raise CliError(str(error)) from None
    if output is not Output.TABLE:
        print_document([_document(each) for each in catalogue.plugins], output)
    else:
        rows = [row for each in catalogue.plugins for row in _rows(each)]
        columns = ("CLASS", "TYPE", "VERSION", "PLUGIN", "NEEDS KAFKA", "PATH")
        print_table(columns, rows, empty="no Java plugins")
    for each in catalogue.problems:
        complain(plain(each))


def _install(what: str, name: str, output: Output, *, upgrades: bool) -> None:
    try:
        done = install.add(what, plugin_home(), host=_host(), name=name, upgrades=upgrades)
    except JavaPluginError as error:
        raise CliError(str(error)) from None
    if output is not Output.TABLE:
        document = _document(done.plugin) | {
            "changed": done.is_new,
            "replaced": list(done.replaced),
        }
        print_document(document | {"warnings": list(done.warnings)}, output)
        return
    if done.is_new:
        instead = f" instead of {', '.join(done.replaced)}" if done.replaced else ""
        say(plain(f"installed {done.plugin.name}{instead}"))
    else:
        say(plain(f"{done.plugin.name} is installed: nothing changed"))
    for java_class in done.plugin.classes:
        needs = " (needs Kafka)" if java_class.needs_kafka else ""
        say(plain(f"  {_kind(java_class.kind)} {java_class.name}{needs}"))
    for warning in done.warnings:
        say(plain(f"warning: {warning}"))
    if done.is_new:
        say("`drover plugin reload` makes running workers use it")


def _host() -> JavaHost | None:
    """The JVM for plugins' code; None without Java or without the worker's package."""
    jars = host_jars()
    if jars is None:
        return None
    try:
        return JavaHost(find_java().path, jars)
    except JavaUnusableError:
        return None


def _kind(kind: str) -> str:
    return kind.replace("_", " ")


def _rows(plugin: Plugin) -> Iterator[tuple[str, ...]]:
    for each in plugin.classes:
        needs = "yes" if each.needs_kafka else "no"
        yield (each.name, _kind(each.kind), each.version, plugin.name, needs, str(plugin.path))


def _document(plugin: Plugin) -> dict[str, Any]:
    return {
        "plugin": plugin.name,
        "path": str(plugin.path),
        "source": plugin.source,
        "classes": [
            {
                "class": each.name,
                "type": each.kind.value,
                "version": each.version,
                "needs_kafka": each.needs_kafka,
                "java": each.java,
            }
            for each in plugin.classes
        ],
        "jars": [{"path": each.path, "sha256": each.sha256} for each in plugin.jars],
        "problems": list(plugin.problems),
    }
