"""``drover doctor``: checks this machine and its cluster, and advises on each problem."""

import asyncio
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from drover.cli.access import access_to, present_access
from drover.cli.cluster_choice import cluster_of_command, worker_addresses
from drover.cli.console import (
    EXIT_REFUSED,
    AddressOption,
    Output,
    OutputOption,
    print_document,
    print_table,
    say,
)
from drover.cli.doctor.certificates import look_at_certificates, of_cluster, of_command
from drover.cli.doctor.cluster import look_at_cluster
from drover.cli.doctor.finding import Finding, Level
from drover.cli.doctor.kafka import look_at_brokers
from drover.cli.doctor.machine import look_at_machine
from drover.local.cluster import kafka_url
from drover.local.state import DEFAULT_DIRECTORY, read_state


def doctor(
    directory: Annotated[
        Path,
        typer.Option("--dir", help="Where the cluster keeps its data and logs.", file_okay=False),
    ] = DEFAULT_DIRECTORY,
    address: AddressOption = "",
    storage_url: Annotated[
        str,
        typer.Option(
            metavar="KAFKA_URL",
            show_default=False,
            help="Brokers to check, as kafka://host:port,host:port; by default those in "
            "DROVER_STORAGE_URL.",
        ),
    ] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Check this machine, its cluster and its brokers; exit 1 if there is an error.

    The machine: Java, versions, memory, disk, open files, ports, certificates. The cluster, if one
    runs here or --address or the context names a worker: every process, versions, clocks,
    certificates, engines, the leader, failed connectors and tasks. Nothing is changed.
    """
    access = present_access()
    given = address or access.address
    state = read_state(directory)
    if state is None and directory == DEFAULT_DIRECTORY and not given:
        found = cluster_of_command()
        directory, state = (found.directory, found.state) if found else (directory, None)
    running = state if state is not None and state.supervisor() is not None else None
    findings = look_at_machine(directory, running, os.environ)
    if access.tls is not None:
        findings += look_at_certificates(of_command(access.tls, os.environ))
    if running is not None and running.certificates:
        findings += look_at_certificates(of_cluster(Path(running.certificates)))
    brokers = kafka_url(storage_url, os.environ)
    if brokers:
        findings += look_at_brokers(brokers, os.environ.get("DROVER_KAFKA_CONFIG", ""))
    here = running.addresses("worker") if running else []
    if workers := worker_addresses(given) if given else here:
        way = partial(access_to, directory=directory)
        findings += asyncio.run(look_at_cluster(workers, running, way))
    else:
        findings.append(
            Finding(
                "cluster",
                Level.OK,
                f"none runs in {directory}; to check another one, give --address or a context",
            )
        )
    print_findings(findings, output)
    if any(each.level is Level.ERROR for each in findings):
        raise typer.Exit(EXIT_REFUSED)


def print_findings(findings: Sequence[Finding], output: Output) -> None:
    """Print the findings, then the advice for each problem."""
    counts = Counter(each.level for each in findings)
    if output is not Output.TABLE:
        document = {
            "errors": counts[Level.ERROR],
            "warnings": counts[Level.WARNING],
            "findings": [asdict(each) for each in findings],
        }
        print_document(document, output)
        return
    print_table(
        ("", "CHECK", "FOUND"),
        [(each.level, each.check, each.found) for each in findings],
        empty="",
    )
    # a connector and its tasks have the same advice
    advice = dict.fromkeys(f"{each.check}: {each.advice}" for each in findings if each.advice)
    if advice:
        say("")
    for text in advice:
        say(text)
    say("")
    totals = ((counts[Level.ERROR], "error"), (counts[Level.WARNING], "warning"))
    say(", ".join(f"{count} {what}{'' if count == 1 else 's'}" for count, what in totals))
