"""The groups of commands, each imported when it is first used: most commands need one group."""

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
import typer.core

from drover.cli.cluster_choice import add_directory_option


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a command is defined.

    Attributes:
        module: The module.
        attribute: A group (a Typer) or the function of a command.
    """

    module: str
    attribute: str = "commands"

    def command(self, name: str) -> Any:
        """The command, of Typer's click."""
        found = getattr(import_module(self.module), self.attribute)
        made: Any
        if isinstance(found, typer.Typer):
            made = typer.main.get_group(found)
        else:
            holder = typer.Typer(add_completion=False)
            holder.command(name)(found)
            made = typer.main.get_command(holder)
        made.name = name
        add_directory_option(made)
        return made


_PLACES = {
    "connector": _Place("drover.cli.commands.connector"),
    "plugin": _Place("drover.cli.commands.plugin"),
    "topic": _Place("drover.cli.commands.topic"),
    "dlq": _Place("drover.cli.commands.dlq"),
    "config": _Place("drover.cli.commands.config"),
    "group": _Place("drover.cli.commands.group"),
    "cluster": _Place("drover.cli.commands.cluster"),
    "worker": _Place("drover.cli.commands.worker"),
    "logger": _Place("drover.cli.commands.logger"),
    "certs": _Place("drover.cli.commands.certs"),
    "context": _Place("drover.cli.commands.context"),
    "apply": _Place("drover.cli.commands.apply", "apply"),
    "up": _Place("drover.cli.commands.cluster", "up"),
    "down": _Place("drover.cli.commands.cluster", "down"),
    "mcp": _Place("drover.cli.commands.mcp", "mcp"),
    "migrate": _Place("drover.cli.commands.migrate", "migrate"),
    "spark-archive": _Place("drover.cli.commands.spark_archive", "spark_archive"),
    "doctor": _Place("drover.cli.doctor.command", "doctor"),
}


class CommandGroups(typer.core.TyperGroup):
    """The commands of ``drover``: groups in other modules, and commands registered here."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _ImportedCommands(dict(self.commands))


class _ImportedCommands(MutableMapping[str, Any]):
    """Commands by name. Listing the names imports nothing."""

    def __init__(self, registered: dict[str, Any]) -> None:
        self._found = registered
        self._names = [*_PLACES, *registered]

    def __getitem__(self, name: str) -> Any:
        if name not in self._found and name in _PLACES:
            self._found[name] = _PLACES[name].command(name)
        return self._found[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._found[name] = command
        self._names.append(name)

    def __delitem__(self, name: str) -> None:
        del self._found[name]
        self._names.remove(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
