"""Chooses the cluster of a command that names none: the one of its folder."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from drover.cli.access import present_access, present_directory, use_directory
from drover.cli.console import (
    DEFAULT_COORDINATOR_ADDRESS,
    DEFAULT_WORKER_ADDRESS,
    EXIT_USAGE,
    CliError,
    note_cluster,
)
from drover.local.found_clusters import (
    FoundCluster,
    cluster_in,
    clusters_of_folder,
    registered_clusters,
)
from drover.local.state import check_trusted
from drover.model.command_lines import drover_command


def cluster_of_command() -> FoundCluster | None:
    """The cluster in --dir, else the one of the present folder; None if none runs there.

    Raises:
        CliError: No cluster runs in --dir, or several run in this folder.
        ClusterError: Other users can write to --dir.
    """
    directory = present_directory()
    if directory is not None:
        check_trusted(directory)
        found = cluster_in(directory)
        if found is None:
            command = drover_command("up", options=["--dir", str(directory)])
            raise CliError(f"no cluster runs in {directory}; `{command}` starts one")
        return found
    clusters = clusters_of_folder(Path.cwd())
    if len(clusters) > 1:
        names = ", ".join(os.path.relpath(each.directory) for each in clusters)
        raise CliError(f"several clusters run in this folder: name one with --dir ({names})")
    return clusters[0] if clusters else None


def worker_addresses(given: str) -> list[str]:
    """Addresses at which to try a worker.

    ``given`` (comma-separated), else the context's, else the cluster of ``cluster_of_command``,
    else the default. Unless the command names the cluster, a line on stderr does.
    """
    return _addresses(given, present_access().address, "worker", DEFAULT_WORKER_ADDRESS)


def coordinator_addresses(given: str) -> list[str]:
    """Addresses of coordinators, chosen as in ``worker_addresses``."""
    access = present_access()
    return _addresses(given, access.coordinator, "coordinator", DEFAULT_COORDINATOR_ADDRESS)


def _addresses(given: str, of_context: str, process: str, default: str) -> list[str]:
    if given:
        return _split(given)
    if of_context and present_directory() is None:
        addresses = _split(of_context)
        if origin := present_access().origin:
            note_cluster(f"{origin} at {addresses[0]}")
        return addresses
    cluster = cluster_of_command()
    if cluster is None:
        _refuse_another_folders(default)
        note_cluster(f"the default address {default}")
        return [default]
    addresses = cluster.state.addresses(process) or [default]
    if present_directory() is None:
        note_cluster(f"the cluster in {os.path.relpath(cluster.directory)} at {addresses[0]}")
    return addresses


def _refuse_another_folders(default: str) -> None:
    clusters = registered_clusters()
    for each in clusters:
        if default in each.state.addresses(""):
            others = ", ".join(str(one.directory) for one in clusters)
            raise CliError(
                f"no cluster runs in this folder: name one with --dir ({others}), --address or "
                "--context"
            )


def _split(addresses: str) -> list[str]:
    return [_checked(each.strip()) for each in addresses.split(",")]


def _checked(address: str) -> str:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise CliError(f"the address {address!r} is not host:port", EXIT_USAGE)
    return address


def add_directory_option(command: Any) -> None:
    """Add --dir to each command below ``command``, of Typer's click, that has --address."""
    for each in getattr(command, "commands", {}).values():
        add_directory_option(each)
    names = {option for each in command.params for option in each.opts}
    if "--address" in names and "--dir" not in names:
        command.params.append(_directory_option())


def _directory_option() -> Any:
    def command(
        directory: Annotated[
            Path | None,
            typer.Option(
                "--dir",
                file_okay=False,
                show_default=False,
                callback=use_directory,
                help="The directory of the cluster, as given to `drover up`.",
            ),
        ] = None,
    ) -> None:
        del directory

    holder = typer.Typer(add_completion=False)
    holder.command()(command)
    (option,) = (each for each in typer.main.get_command(holder).params if "--dir" in each.opts)
    option.expose_value = False
    return option
