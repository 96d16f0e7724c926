"""The processes of a cluster: coordinators, config stores, status stores, workers, gateways."""

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path

from drover.local import ports
from drover.local.process import ProcessSpec
from drover.local.state import DATA_DIRECTORY, ClusterError
from drover.model.command_lines import drover_command
from drover.python_process import python_command
from drover.security.development_ca import ACCESS_FILE, SERVICE, files_of
from drover.security.development_ca import GATEWAY as GATEWAY_CERTIFICATE

_STORES = ("config-store", "status-store")
GATEWAY = "gateway"
#: The services of a cluster; each is a distribution ``drover-<name>``.
SERVICES = ("coordinator", *_STORES, "worker", GATEWAY)
#: The base that the port offsets below are added to.
DEFAULT_PORT_BASE = 7400
_PORTS = {"coordinator": 1, "config-store": 2, "status-store": 3}
#: The first port for further coordinators and stores.
_FURTHER_PORT = 4
_WORKER_PORT = 11
#: Above the ports of the maximum number of workers.
_GATEWAY_PORT = 83
#: Where tools of Kafka Connect expect its REST API.
REST_ADDRESS = "127.0.0.1:8083"
#: More than the time in which a worker, with default settings, drains or aborts the drain.
_WORKER_STOP_GRACE_S = 45.0
_METRICS_LISTEN = "DROVER_METRICS_LISTEN"
_METRICS_PORT_ABOVE = 100
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The processes of a cluster and how they are configured.

    Attributes:
        directory: Where the cluster keeps its data and logs.
        worker_count: How many workers.
        coordinator_count: How many coordinators.
        config_store_count: How many config stores; more than one needs Kafka.
        status_store_count: How many status stores; more than one needs Kafka.
        gateway_count: How many gateways.
        storage_url: A kafka:// URL; empty for SQLite files in ``directory``.
        certificates: A directory made by `drover certs init`; None for plaintext.
        host: The host on which processes listen.
        port_base: Ports are counted from here; a port in use is replaced by a free one. 0 for any
            free ports.
        metrics: Whether each process serves metrics on a loopback port.
        listen: Fixed addresses by process name ("coordinator", "worker-1").
        file_roots: The directories below which connectors may access files; empty for the workers'
            default.
        env: Added to the environment of every process.
    """

    directory: Path
    worker_count: int = 2
    coordinator_count: int = 1
    config_store_count: int = 1
    status_store_count: int = 1
    gateway_count: int = 0
    storage_url: str = ""
    certificates: Path | None = None
    host: str = "127.0.0.1"
    port_base: int = 0
    metrics: bool = True
    listen: Mapping[str, str] = field(default_factory=dict)
    file_roots: Sequence[Path] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def data_directory(self) -> Path:
        """The directory of the embedded storage."""
        return self.directory.absolute() / DATA_DIRECTORY


def kafka_url(given: str, environ: Mapping[str, str]) -> str:
    """The kafka:// URL given or in DROVER_STORAGE_URL; empty for embedded storage.

    Raises:
        ClusterError: The given URL is not a kafka:// URL.
    """
    if given and not given.startswith("kafka://"):
        raise ClusterError(
            f"the storage URL {given!r} is not kafka://host:port,host:port: correct it, or leave it"
            " out to keep the data in --dir"
        )
    in_environment = environ.get("DROVER_STORAGE_URL", "")
    return given or (in_environment if in_environment.startswith("kafka://") else "")


def default_listen(port_base: int) -> dict[str, str]:
    """The default address of the first process of each kind, by name."""
    offsets = {**_PORTS, "worker-1": _WORKER_PORT, GATEWAY: _GATEWAY_PORT}
    listens = {name: f"{_LOOPBACK}:{port_base + offset}" for name, offset in offsets.items()}
    return listens if port_base != DEFAULT_PORT_BASE else {**listens, GATEWAY: REST_ADDRESS}


def listen_from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The addresses in the DROVER_…_LISTEN settings, by process name."""
    names = {f"{_variable(name)}_LISTEN": name for name in ("coordinator", *_STORES)}
    names["DROVER_WORKER_LISTEN"] = "worker-1"
    names["DROVER_GATEWAY_LISTEN"] = GATEWAY
    return {name: environ[key] for key, name in names.items() if environ.get(key)}


def cluster_stages(options: ClusterOptions) -> list[list[ProcessSpec]]:
    """The processes of a cluster in stages, in start order; see ``Supervisor``.

    Raises:
        ClusterError: A service is not installed, an address is malformed or in use, or a store has
            several replicas without Kafka.
    """
    needed = SERVICES if options.gateway_count else SERVICES[:-1]
    missing = [kind for kind in needed if importlib.util.find_spec(_package(kind)) is None]
    if missing:
        raise ClusterError(
            f"not installed here: {', '.join(f'drover-{kind}' for kind in missing)};"
            " pip install 'drover-connect[cluster]' installs all services"
        )
    if not options.storage_url and max(options.config_store_count, options.status_store_count) > 1:
        raise ClusterError("several config or status stores need Kafka: give --storage-url")
    if options.gateway_count and options.certificates is not None:
        _check_gateway_certificate(options.certificates)
    addresses = _choose_addresses(options)
    metrics = _metrics_addresses(options, addresses)
    coordinators = ",".join(addresses[name] for name in _coordinator_names(options))
    common = {
        **options.env,
        **_tls_settings(options.certificates, SERVICE),
        **_access_settings(options.certificates),
        "DROVER_STORAGE_URL": options.storage_url or f"sqlite://{options.data_directory}",
        "DROVER_COORDINATOR_ADDRESS": coordinators,
        **{
            f"{_variable(kind)}_ADDRESS": ",".join(addresses[name] for name in names)
            for kind, names in _store_names(options).items()
        },
    }
    roots = {"DROVER_FILE_ROOTS": ",".join(map(str, options.file_roots))}
    # a single coordinator needs no list of coordinators
    shared = {"DROVER_COORDINATORS": coordinators} if options.coordinator_count > 1 else {}
    services = [
        ProcessSpec(
            name=name,
            argv=_module("coordinator"),
            address=addresses[name],
            env={
                **common,
                **shared,
                "DROVER_COORDINATOR_LISTEN": addresses[name],
                _METRICS_LISTEN: metrics[name],
            },
            metrics_address=metrics[name],
        )
        for name in _coordinator_names(options)
    ]
    services += [
        ProcessSpec(
            name=name,
            argv=_module(kind),
            address=addresses[name],
            env={
                **common,
                f"{_variable(kind)}_LISTEN": addresses[name],
                _METRICS_LISTEN: metrics[name],
            },
            metrics_address=metrics[name],
        )
        for kind, names in _store_names(options).items()
        for name in names
    ]
    workers = [
        ProcessSpec(
            name=name,
            argv=_module("worker"),
            address=addresses[name],
            env={
                **common,
                **(roots if options.file_roots else {}),
                "DROVER_WORKER_LISTEN": addresses[name],
                "DROVER_WORKER_ADVERTISED": addresses[name],
                "DROVER_WORKER_INTERNAL_LISTEN": _internal_listen(addresses[name]),
                # overrides an inherited value, which cannot match the port chosen above
                "DROVER_WORKER_INTERNAL_ADVERTISED": "",
                _METRICS_LISTEN: metrics[name],
            },
            metrics_address=metrics[name],
            stop_grace_s=_WORKER_STOP_GRACE_S,
        )
        for name in _worker_names(options)
    ]
    gateways = [_gateway(name, options, addresses, metrics[name]) for name in _gateways(options)]
    return [services, workers, *([gateways] if gateways else [])]


def _gateway(
    name: str, options: ClusterOptions, addresses: Mapping[str, str], metrics_address: str
) -> ProcessSpec:
    """A gateway. It gets no file with secrets of the cluster, since it needs none of them."""
    workers = ",".join(addresses[each] for each in _worker_names(options))
    return ProcessSpec(
        name=name,
        argv=_module(GATEWAY),
        address=addresses[name],
        env={
            **options.env,
            **_tls_settings(options.certificates, GATEWAY_CERTIFICATE),
            "DROVER_GATEWAY_LISTEN": addresses[name],
            "DROVER_GATEWAY_WORKERS": workers,
            _METRICS_LISTEN: metrics_address,
        },
        metrics_address=metrics_address,
        over_http=True,
    )


def _check_gateway_certificate(certificates: Path) -> None:
    needed = Path(files_of(certificates, GATEWAY_CERTIFICATE).cert)
    if not needed.exists():
        command = drover_command("certs init", str(certificates), options=["--renew"])
        raise ClusterError(
            f"{needed} does not exist, and the gateway needs it: `{command}`"
            " issues it, or start without a gateway (--gateways 0)"
        )


def _tls_settings(certificates: Path | None, name: str) -> dict[str, str]:
    """The settings of a process with the certificate ``name``."""
    if certificates is None:
        return {}
    files = files_of(certificates.absolute(), name)
    return {"DROVER_TLS_CA": files.ca, "DROVER_TLS_CERT": files.cert, "DROVER_TLS_KEY": files.key}


def _access_settings(certificates: Path | None) -> dict[str, str]:
    if certificates is None:
        return {}
    return {"DROVER_ACCESS_FILE": str(certificates.absolute() / ACCESS_FILE)}


def _coordinator_names(options: ClusterOptions) -> list[str]:
    return _names("coordinator", options.coordinator_count)


def _store_names(options: ClusterOptions) -> dict[str, list[str]]:
    counts = (options.config_store_count, options.status_store_count)
    return {kind: _names(kind, number) for kind, number in zip(_STORES, counts, strict=True)}


def _names(kind: str, number: int) -> list[str]:
    """Process names, such as "coordinator" and "coordinator-2"."""
    return [kind, *(f"{kind}-{each}" for each in range(2, number + 1))]


def _worker_names(options: ClusterOptions) -> list[str]:
    return [f"worker-{number}" for number in range(1, options.worker_count + 1)]


def _gateways(options: ClusterOptions) -> list[str]:
    return _names(GATEWAY, options.gateway_count) if options.gateway_count else []


def _variable(name: str) -> str:
    return f"DROVER_{name.upper().replace('-', '_')}"


def _module(name: str) -> list[str]:
    return python_command(_package(name))


def _package(service: str) -> str:
    return f"drover_{service.replace('-', '_')}"


def addresses_above(options: ClusterOptions, port_base: int) -> dict[str, str]:
    """The address of every process, by name, with ports counted from ``port_base``."""
    workers = _worker_names(options)
    services = _service_names(options)
    worker_ports = {name: _WORKER_PORT + index for index, name in enumerate(workers)}
    further = [name for name in services if name not in _PORTS]
    unused = (port for port in count(_FURTHER_PORT) if port not in worker_ports.values())
    offsets = _PORTS | dict(zip(further, unused, strict=False)) | worker_ports
    offsets |= {name: _GATEWAY_PORT + index for index, name in enumerate(_gateways(options))}
    return {name: f"{options.host}:{port_base + offsets[name]}" for name in _all_names(options)}


def _all_names(options: ClusterOptions) -> list[str]:
    return [*_service_names(options), *_worker_names(options), *_gateways(options)]


def _service_names(options: ClusterOptions) -> list[str]:
    return [*_coordinator_names(options), *chain.from_iterable(_store_names(options).values())]


def _choose_addresses(options: ClusterOptions) -> dict[str, str]:
    names = _all_names(options)
    addresses = {name: options.listen[name] for name in names if name in options.listen}
    for name, address in addresses.items():
        _check_free(name, address)
    if options.port_base:
        for name, address in addresses_above(options, options.port_base).items():
            port = int(address.rpartition(":")[2])
            if address not in addresses.values() and ports.is_free(options.host, port):
                addresses.setdefault(name, address)
    missing = [name for name in names if name not in addresses]
    for name, port in zip(missing, ports.free_ports(options.host, len(missing)), strict=True):
        addresses[name] = f"{options.host}:{port}"
    return addresses


def _metrics_addresses(options: ClusterOptions, addresses: Mapping[str, str]) -> dict[str, str]:
    """The metrics address of each process: 100 ports above its own where that is free."""
    if not options.metrics:
        return dict.fromkeys(addresses, "")
    taken = {int(address.rpartition(":")[2]) for address in addresses.values()}
    chosen: dict[str, int] = {}
    if options.port_base or options.listen:
        for name, address in addresses.items():
            port = int(address.rpartition(":")[2]) + _METRICS_PORT_ABOVE
            if port < 65_536 and port not in taken and ports.is_free(_LOOPBACK, port):
                chosen[name] = port
                taken.add(port)
    missing = [name for name in addresses if name not in chosen]
    while missing:
        (port,) = ports.free_ports(_LOOPBACK, 1)
        if port not in taken:
            chosen[missing.pop(0)] = port
            taken.add(port)
    return {name: f"{_LOOPBACK}:{port}" for name, port in chosen.items()}


def _internal_listen(worker_address: str) -> str:
    """Any free port for internal calls, on the worker's interface; loopback if it is a wildcard."""
    host = worker_address.rpartition(":")[0]
    return f"{'127.0.0.1' if host in ('0.0.0.0', '[::]') else host}:0"


def _check_free(name: str, address: str) -> None:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ClusterError(f"the address {address!r} of {name} is not host:port: correct it")
    if not ports.is_free(host.strip("[]"), int(port)):
        raise ClusterError(f"cannot listen on {address} for {name}: the port is in use")
