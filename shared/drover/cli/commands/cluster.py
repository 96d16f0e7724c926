"""``drover up``, ``drover down`` and ``drover cluster info``."""

import asyncio
import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.cluster_choice import cluster_of_command, worker_addresses
from drover.cli.commands.cluster_events import audit, rebalances
from drover.cli.commands.worker import state_of, worker_document
from drover.cli.console import (
    EXIT_USAGE,
    AddressOption,
    CliError,
    Output,
    OutputOption,
    YesOption,
    confirm,
    print_document,
    print_event,
    print_table,
    run_call,
    say,
    warn,
)
from drover.cli.output.connectors import worker_health
from drover.cli.output.workers import memory_cell, memory_text
from drover.client import ConnectClient
from drover.local import ports
from drover.local.cluster import (
    DEFAULT_PORT_BASE,
    GATEWAY,
    REST_ADDRESS,
    ClusterOptions,
    addresses_above,
    cluster_stages,
    kafka_url,
    listen_from_environment,
)
from drover.local.deletion import delete_cluster, deletion_text
from drover.local.found_clusters import register, running_elsewhere, unregister
from drover.local.java_check import JavaUnusableError, find_java
from drover.local.process import (
    ProcessRestartPolicy,
    StartTimeoutError,
    descendants,
    kill_all,
    wait_until_gone,
)
from drover.local.running_cluster import refuse_beside_another
from drover.local.state import (
    CERTIFICATES_DIRECTORY,
    DEFAULT_DIRECTORY,
    LOGS_DIRECTORY,
    TARGETS_FILE,
    ClusterError,
    check_trusted,
    down_command,
    is_cluster_directory,
    is_held,
    prepare_directory,
    read_state,
)
from drover.local.supervisor import Supervisor, run_until_signal
from drover.model.command_lines import drover_command
from drover.model.sizes import size_text
from drover.security.development_ca import CA_FILE, files_of, keep_certificates

commands = typer.Typer(no_args_is_help=True, help="The cluster as a whole.")
commands.command("rebalances")(rebalances)
commands.command("audit")(audit)

#: What enforces a limit of an engine.
_LIMITS = {
    pb.ENGINE_LIMIT_CONTROL_GROUP: "control group",
    pb.ENGINE_LIMIT_RLIMIT: "RLIMIT_DATA and heap",
    pb.ENGINE_LIMIT_SPARK: "spark.master",
}
#: The longest a cluster takes to stop: the grace of workers plus the grace of services.
_DOWN_TIMEOUT_S = 75.0
#: Leaves ports above it for the maximum number of workers and services.
PORT_BASE_MAX = 65_400

DirectoryOption = Annotated[
    Path,
    typer.Option("--dir", help="Where the cluster keeps its data and logs.", file_okay=False),
]


def up(
    directory: DirectoryOption = DEFAULT_DIRECTORY,
    workers: Annotated[int, typer.Option(min=1, max=64, help="How many workers.")] = 2,
    coordinators: Annotated[
        int,
        typer.Option(min=1, max=7, help="How many coordinators; each takes over for a failed one."),
    ] = 1,
    storage_url: Annotated[
        str,
        typer.Option(
            metavar="KAFKA_URL",
            show_default=False,
            help="Store everything in Kafka, kafka://host:port,host:port; by default "
            "DROVER_STORAGE_URL if that is a kafka:// URL, else files in --dir. Topics, group id "
            "and client settings come from the environment.",
        ),
    ] = "",
    config_stores: Annotated[
        int, typer.Option(min=1, max=7, help="How many config stores; several on Kafka only.")
    ] = 1,
    status_stores: Annotated[
        int, typer.Option(min=1, max=7, help="How many status stores; several on Kafka only.")
    ] = 1,
    gateways: Annotated[
        int,
        typer.Option(
            min=0,
            max=7,
            help="How many gateways, which serve Kafka Connect's REST API; 0 for none.",
        ),
    ] = 1,
    port_base: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=PORT_BASE_MAX,
            envvar="DROVER_PORT_BASE",
            show_default=False,
            help="Base of the ports: coordinator +1, stores +2 and +3, workers from +11, gateways "
            f"from +83; 0 for any free ports. By default {DEFAULT_PORT_BASE}, with other free "
            "ports in place of those in use, and 8083 for the first gateway if it is free.",
        ),
    ] = None,
    metrics: Annotated[
        bool,
        typer.Option(help="Serve metrics for Prometheus, each process on a port of its own."),
    ] = True,
    tls: Annotated[
        bool,
        typer.Option("--tls", help="Use TLS with certificates for this machine, created in --dir."),
    ] = False,
    certs: Annotated[
        Path | None,
        typer.Option(
            file_okay=False,
            show_default=False,
            help="Use TLS with the certificates in this directory, created by `drover certs init`.",
        ),
    ] = None,
    file_roots: Annotated[
        str,
        typer.Option(
            metavar="DIR[,DIR]",
            show_default=False,
            help="The directories below which connectors may read and write files; by default "
            "DROVER_FILE_ROOTS, else every directory, or none with --tls or --certs.",
        ),
    ] = "",
    timeout_s: Annotated[
        float,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            min=1,
            help="How long each process may take to start, with a worker's Spark engine.",
        ),
    ] = ProcessRestartPolicy().serving_timeout_s,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run a cluster on this machine until Ctrl-C, with embedded storage or on Kafka."""
    try:
        find_java()
    except JavaUnusableError as error:
        raise CliError(str(error)) from None
    say_event = partial(_print_event, output)
    if is_cluster_directory(directory):
        prepare_directory(directory, say_event)
    if is_held(directory):
        state = read_state(directory)
        who = f" (pid {state.supervisor_pid})" if state else ""
        raise ClusterError(
            f"a cluster{who} already runs in {directory}; `{down_command(directory)}` stops it"
        )
    options = ClusterOptions(
        directory,
        worker_count=workers,
        coordinator_count=coordinators,
        config_store_count=config_stores,
        status_store_count=status_stores,
        gateway_count=gateways,
        storage_url=kafka_url(storage_url, os.environ),
        port_base=DEFAULT_PORT_BASE if port_base is None else 0,
        metrics=metrics,
        listen=given_addresses(port_base),
        file_roots=_file_roots(file_roots),
    )
    counted = _counted_addresses(options, port_base)
    asyncio.run(refuse_beside_another(_of_grpc(counted)))
    if tls:
        # before keys are created in it
        prepare_directory(directory, say_event)
    options = replace(options, certificates=_certificates(directory, tls=tls, given=certs))
    if port_base is not None:
        options = replace(options, listen={**counted, **options.listen})
    supervisor = Supervisor(
        directory.absolute(),
        cluster_stages(options),
        policy=ProcessRestartPolicy(serving_timeout_s=timeout_s),
        on_event=say_event,
        certificates=options.certificates,
    )
    try:
        asyncio.run(run_until_signal(supervisor, partial(_print_up, output, options, supervisor)))
    except StartTimeoutError as error:
        command = drover_command("up", options=["--timeout", f"{2 * timeout_s:g}"])
        raise CliError(f"{error}; `{command}` waits longer") from None
    finally:
        unregister(directory.absolute())
    if output is not Output.TABLE:
        _print_event(output, "cluster", "down")
    else:
        kept = "; its topics remain in Kafka" if options.storage_url else ""
        _print_event(output, "cluster", f"the cluster is down{kept}")


def _print_up(output: Output, options: ClusterOptions, supervisor: Supervisor) -> None:
    register(options.directory.absolute())
    address = supervisor.addresses("worker")[0]
    if output is not Output.TABLE:
        print_event({"process": "cluster", "event": "up", "address": address}, output)
        return
    where = f" on {options.storage_url}" if options.storage_url else ""
    logs = options.directory / LOGS_DIRECTORY
    _print_event(
        output, "cluster", f"the cluster is up{where}; logs are in {logs}; Ctrl-C stops it"
    )
    if options.metrics:
        served = {name: p.spec.metrics_address for name, p in supervisor.processes.items()}
        say("metrics: " + ", ".join(f"{name} {where}" for name, where in served.items()))
        say(f"Prometheus targets (file_sd): {options.directory / TARGETS_FILE}")
    scheme = "http" if options.certificates is None else "https"
    for gateway in supervisor.addresses(GATEWAY):
        say(f"Kafka Connect's REST API: {scheme}://{gateway}")
        say(f"Console: {scheme}://{gateway}/ui/")
    if options.directory != DEFAULT_DIRECTORY:
        say(f"commands find it from its folder, or by --dir {options.directory}")
    say(f"try: drover cluster info, or grpcurl {_grpcurl_options(options)} {address} list")


def given_addresses(port_base: int | None) -> dict[str, str]:
    """The addresses in the environment, and Kafka Connect's for the first gateway if it is free."""
    given = listen_from_environment(os.environ)
    host, _, port = REST_ADDRESS.rpartition(":")
    if port_base is None and GATEWAY not in given and ports.is_free(host, int(port)):
        given[GATEWAY] = REST_ADDRESS
    return given


def _of_grpc(addresses: Mapping[str, str]) -> dict[str, str]:
    """The addresses without gateways' addresses, which may be any HTTP servers."""
    return {name: at for name, at in addresses.items() if not name.startswith(GATEWAY)}


def _counted_addresses(options: ClusterOptions, port_base: int | None) -> dict[str, str]:
    """The addresses counted from the port base, without those set by DROVER_…_LISTEN."""
    base = options.port_base if port_base is None else port_base
    addresses = addresses_above(options, base) if base else {}
    return {name: at for name, at in addresses.items() if name not in options.listen}


def _file_roots(given: str) -> tuple[Path, ...]:
    roots = [Path(root.strip()).absolute() for root in given.split(",") if root.strip()]
    for root in roots:
        if not root.is_dir():
            raise CliError(f"--file-roots: {root} is not a directory: create it", EXIT_USAGE)
    return tuple(roots)


def _certificates(directory: Path, *, tls: bool, given: Path | None) -> Path | None:
    """The directory of certificates, created if --tls needs it; None for plaintext."""
    if given is not None:
        if not (given / CA_FILE).exists():
            command = drover_command("certs init", str(given))
            raise ClusterError(f"{given} has no certificates: `{command}` makes them")
        return given.absolute()
    if not tls:
        return None
    made = directory.absolute() / CERTIFICATES_DIRECTORY
    try:
        keep_certificates(made)
    except OSError as error:
        raise ClusterError(f"cannot use {made}: {error.strerror}") from None
    return made


def _grpcurl_options(options: ClusterOptions) -> str:
    if options.certificates is None:
        return "-plaintext"
    files = files_of(options.certificates, "admin")
    return f"-cacert {files.ca} -cert {files.cert} -key {files.key}"


def _print_event(output: Output, name: str, text: str) -> None:
    now = datetime.now(UTC)
    if output is not Output.TABLE:
        time = now.isoformat(timespec="milliseconds")
        print_event({"time": time, "process": name, "event": text}, output)
    else:
        time = now.astimezone().strftime("%Y-%m-%d %H:%M:%S")
        print(f"{time}  {name:<13} {text}", flush=True)


def down(
    directory: DirectoryOption = DEFAULT_DIRECTORY,
    delete_data: Annotated[
        bool,
        typer.Option(
            "--delete-data",
            help="List, then delete what the cluster created: configs, offsets, topics, logs.",
        ),
    ] = False,
    keep_data: Annotated[
        bool, typer.Option("--keep-data", hidden=True, help="The default; has no effect.")
    ] = False,
    yes: YesOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Stop the cluster of this folder, and those left by `make run`; their data stays.

    In a terminal --delete-data asks first.
    """
    if delete_data and keep_data:
        raise CliError("--delete-data and --keep-data contradict each other", EXIT_USAGE)
    directories = [directory]
    demo_runs: list[Path] = []
    if directory == DEFAULT_DIRECTORY:
        if not is_cluster_directory(directory):
            directories = _clusters_here() or directories
        demo_runs = sorted(DEFAULT_DIRECTORY.parent.glob("run-*"))
        directories += demo_runs
    known = [path for path in directories if is_cluster_directory(path)]
    for path in known:
        check_trusted(path)
    if delete_data and known:
        if output is Output.TABLE:
            for path in known:
                say(f"to delete: {path}, {deletion_text(path, whole=path in demo_runs)}")
        confirm(f"Stop and delete {', '.join(map(str, known))}?", yes=yes, in_scripts=True)
    stopped, removed = [], []
    for path in known:
        if asyncio.run(_stop(path)):
            stopped.append(str(path))
            if output is Output.TABLE:
                say(f"stopped the cluster in {path}")
    if delete_data:
        for path in known:
            left = delete_cluster(path, whole=path in demo_runs)
            removed.append(str(path))
            if left:
                warn(f"not deleted: {', '.join(left)}, which no cluster created")
    if output is not Output.TABLE:
        print_document({"stopped": stopped, "removed": removed}, output)
        return
    for name in removed:
        say(f"deleted {name}")
    if not known:
        say(f"nothing to stop: there is no cluster in {directory}{running_elsewhere()}")
    elif not delete_data:
        of_command: dict[str, list[str]] = {}
        for path in known:
            place = DEFAULT_DIRECTORY if path in demo_runs else path
            of_command.setdefault(down_command(place, "--delete-data"), []).append(str(path))
        for command, kept in of_command.items():
            say(f"the data stays in {', '.join(kept)}: `{command}` deletes it")


def _clusters_here() -> list[Path]:
    """The directory of the cluster that other commands in this folder use.

    Raises:
        CliError: There are several.
    """
    found = cluster_of_command()
    if found is not None:
        return [Path(os.path.relpath(found.directory))]
    return [Path()] if is_cluster_directory(Path()) else []


async def _stop(directory: Path) -> bool:
    """Stop the cluster that runs in a directory; False if none does."""
    state = read_state(directory)
    supervisor = state.supervisor() if state else None
    if supervisor is None:
        if is_held(directory):
            raise ClusterError(
                f"{directory} is locked by a supervisor whose pid is unknown: stop that process"
            )
        return False
    tree = [supervisor, *descendants(supervisor.pid)]
    supervisor.send_signal(signal.SIGTERM)
    await wait_until_gone([supervisor], _DOWN_TIMEOUT_S)
    await kill_all(tree)
    return True


@commands.command("info")
def info(address: AddressOption = "", output: OutputOption = Output.TABLE) -> None:
    """Show the workers, their connectors and tasks, and the leader."""
    answer = run_call(
        worker_addresses(address),
        lambda channel: ConnectClient(channel).get_cluster_info(),
        server="worker",
    )
    if output is not Output.TABLE:
        print_document(_info_document(answer), output)
        return
    for label, value in (
        ("version", answer.version),
        ("group", f"{answer.group_id}, generation {answer.generation}"),
        ("protocol", answer.protocol_name or "none yet"),
        ("leader", answer.leader_worker_id or "none yet"),
        ("storage", answer.storage_url),
        ("spark", answer.spark_version or "starting"),
        ("answered by", f"{answer.worker_id}, {answer.stage or 'idle'}"),
        ("its memory", memory_text(answer.engine_memory) or "no engine runs"),
    ):
        say(f"{label:<12} {value}")
    say("")
    rows = [
        (
            worker.worker_id,
            state_of(worker),
            worker_health(worker.health),
            "yes" if worker.leader else "",
            memory_cell(worker),
            ", ".join(worker.connectors) or "none",
            ", ".join(worker.tasks) or "none",
        )
        for worker in answer.workers
    ]
    columns = ("WORKER", "STATE", "HEALTH", "LEADER", "MEMORY", "CONNECTORS", "TASKS")
    print_table(columns, rows, empty="no workers yet")
    if len(answer.engines) > 1:
        say("")
        say(f"engines of {answer.worker_id}")
        engines = [
            (
                engine.name,
                _engine_state(engine),
                size_text(engine.memory_bytes) if engine.memory_bytes else "unlimited",
                str(engine.cores or "unlimited"),
                ", ".join(_limits(engine)) or "none",
            )
            for engine in answer.engines
        ]
        print_table(("ENGINE", "STATE", "MEMORY", "CORES", "LIMITED BY"), engines, empty="")


def _engine_state(engine: pb.EngineInfo) -> str:
    """UP, STARTING while its process runs and its Spark is not up, or DOWN without a process."""
    if engine.up:
        return "UP"
    runs = engine.memory_limit != pb.ENGINE_LIMIT_UNSPECIFIED
    return "STARTING" if runs else "DOWN"


def _limits(engine: pb.EngineInfo) -> list[str]:
    """What enforces each limit of an engine."""
    return [
        f"{what}: {_LIMITS[kind]}"
        for what, kind in (("memory", engine.memory_limit), ("cores", engine.cores_limit))
        if kind in _LIMITS
    ]


def _info_document(answer: pb.GetClusterInfoResponse) -> dict[str, Any]:
    return {
        "version": answer.version,
        "group_id": answer.group_id,
        "generation": answer.generation,
        "protocol_name": answer.protocol_name,
        "worker_id": answer.worker_id,
        "leader_worker_id": answer.leader_worker_id,
        "stage": answer.stage,
        "storage_url": answer.storage_url,
        "spark_version": answer.spark_version,
        "workers": [worker_document(worker) for worker in answer.workers],
        "engines": [
            {
                "name": engine.name,
                "up": engine.up,
                "state": _engine_state(engine),
                "memory_bytes": engine.memory_bytes or None,
                "cores": engine.cores or None,
                "limited_by": _limits(engine),
            }
            for engine in answer.engines
        ],
    }
