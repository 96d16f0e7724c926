"""The processes of a cluster: coordinators, config stores, status stores and workers."""

import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path

from drover.local import ports
from drover.local.process import ProcessSpec
from drover.local.state import DATA_DIRECTORY, ClusterError
from drover.security.development_ca import ACCESS_FILE, SERVICE, files_of

_STORES = ("config-store", "status-store")
#: The services of a cluster; each is a distribution ``drover-<name>``.
SERVICES = ("coordinator", *_STORES, "worker")
#: Ports are counted from here.
DEFAULT_PORT_BASE = 7400
_PORTS = {"coordinator": 1, "config-store": 2, "status-store": 3}
#: Of the second coordinator; the others follow, and then the other stores.
_FURTHER_PORT = 4
_WORKER_PORT = 11
#: More than a worker takes to hand its work over, or to give that up, by its default settings.
_WORKER_STOP_GRACE_S = 45.0
_METRICS_LISTEN = "DROVER_METRICS_LISTEN"
_METRICS_PORT_ABOVE = 100
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """What kind of cluster to run in ``directory``.

    ``listen`` fixes addresses by process name ("coordinator", "worker-1"); the others get their
    port above ``port_base`` where it is free, else any free one, as with a base of 0. With
    ``metrics`` each serves its metrics on loopback, at a port of its own. ``env`` is added to the
    environment of every process. ``storage_url`` names a Kafka cluster to keep everything in;
    empty for SQLite files in ``directory``, with which there is one store of each kind.
    ``certificates`` is a directory as `drover certs init` makes it, to speak TLS by.
    """

    directory: Path
    worker_count: int = 2
    coordinator_count: int = 1
    config_store_count: int = 1
    status_store_count: int = 1
    storage_url: str = ""
    certificates: Path | None = None
    host: str = "127.0.0.1"
    port_base: int = 0
    metrics: bool = True
    listen: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def data_directory(self) -> Path:
        """Where the logs and topics are."""
        return self.directory.absolute() / DATA_DIRECTORY


def kafka_url(given: str, environ: Mapping[str, str]) -> str:
    """The Kafka cluster that is asked for: as given, else in DROVER_STORAGE_URL; empty for none.

    Raises:
        ClusterError: Another storage was given.
    """
    if given and not given.startswith("kafka://"):
        raise ClusterError(
            f"the storage URL is {given!r}: it must be kafka://host:port, with more brokers after"
            " commas; an embedded cluster keeps its data in --dir"
        )
    in_environment = environ.get("DROVER_STORAGE_URL", "")
    return given or (in_environment if in_environment.startswith("kafka://") else "")


def default_listen(port_base: int) -> dict[str, str]:
    """Where the first process of each kind listens if nobody says otherwise, by its name."""
    named = {**_PORTS, "worker-1": _WORKER_PORT}
    return {name: f"{_LOOPBACK}:{port_base + port}" for name, port in named.items()}


def listen_from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The addresses that the DROVER_…_LISTEN settings ask for, by process name."""
    names = {f"{_variable(name)}_LISTEN": name for name in ("coordinator", *_STORES)}
    names["DROVER_WORKER_LISTEN"] = "worker-1"
    return {name: environ[key] for key, name in names.items() if environ.get(key)}


def cluster_stages(options: ClusterOptions) -> list[list[ProcessSpec]]:
    """The processes of a cluster in the order of their start; see ``Supervisor``.

    Raises:
        ClusterError: the services are not installed, an address is malformed or in use, or several
            stores are wanted without Kafka.
    """
    missing = [kind for kind in SERVICES if importlib.util.find_spec(_package(kind)) is None]
    if missing:
        raise ClusterError(
            f"not installed here: {', '.join(f'drover-{kind}' for kind in missing)};"
            " pip install 'drover-connect[cluster]' brings all services"
        )
    if not options.storage_url and max(options.config_store_count, options.status_store_count) > 1:
        raise ClusterError("several config or status stores need Kafka: give --storage-url")
    addresses = _choose_addresses(options)
    metrics = _metrics_addresses(options, addresses)
    coordinators = ",".join(addresses[name] for name in _coordinator_names(options))
    common = {
        **options.env,
        **_tls_settings(options.certificates),
        "DROVER_STORAGE_URL": options.storage_url or f"sqlite://{options.data_directory}",
        "DROVER_COORDINATOR_ADDRESS": coordinators,
        **{
            f"{_variable(kind)}_ADDRESS": ",".join(addresses[name] for name in names)
            for kind, names in _store_names(options).items()
        },
    }
    # one that is alone is told of no others
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
                "DROVER_WORKER_LISTEN": addresses[name],
                "DROVER_WORKER_ADVERTISED": addresses[name],
                "DROVER_WORKER_INTERNAL_LISTEN": _internal_listen(addresses[name]),
                # as listened, whatever this process was told
                "DROVER_WORKER_INTERNAL_ADVERTISED": "",
                _METRICS_LISTEN: metrics[name],
            },
            metrics_address=metrics[name],
            stop_grace_s=_WORKER_STOP_GRACE_S,
        )
        for name in _worker_names(options)
    ]
    return [services, workers]


def _tls_settings(certificates: Path | None) -> dict[str, str]:
    if certificates is None:
        return {}
    files = files_of(certificates.absolute(), SERVICE)
    return {
        "DROVER_TLS_CA": files.ca,
        "DROVER_TLS_CERT": files.cert,
        "DROVER_TLS_KEY": files.key,
        "DROVER_ACCESS_FILE": str(certificates.absolute() / ACCESS_FILE),
    }


def _coordinator_names(options: ClusterOptions) -> list[str]:
    return _names("coordinator", options.coordinator_count)


def _store_names(options: ClusterOptions) -> dict[str, list[str]]:
    counts = (options.config_store_count, options.status_store_count)
    return {kind: _names(kind, number) for kind, number in zip(_STORES, counts, strict=True)}


def _names(kind: str, number: int) -> list[str]:
    """The first has the kind's name, as the only one has; the next is "coordinator-2"."""
    return [kind, *(f"{kind}-{each}" for each in range(2, number + 1))]


def _worker_names(options: ClusterOptions) -> list[str]:
    return [f"worker-{number}" for number in range(1, options.worker_count + 1)]


def _variable(name: str) -> str:
    return f"DROVER_{name.upper().replace('-', '_')}"


def _module(name: str) -> list[str]:
    return [sys.executable, "-m", _package(name)]


def _package(service: str) -> str:
    return f"drover_{service.replace('-', '_')}"


def addresses_above(options: ClusterOptions, port_base: int) -> dict[str, str]:
    """The address of every process whose ports are counted from ``port_base``, by name."""
    workers = _worker_names(options)
    services = _service_names(options)
    own = {name: _WORKER_PORT + index for index, name in enumerate(workers)}
    further = [name for name in services if name not in _PORTS]
    between = (port for port in count(_FURTHER_PORT) if port not in own.values())
    numbers = _PORTS | dict(zip(further, between, strict=False)) | own
    return {name: f"{options.host}:{port_base + numbers[name]}" for name in [*services, *workers]}


def _service_names(options: ClusterOptions) -> list[str]:
    return [*_coordinator_names(options), *chain.from_iterable(_store_names(options).values())]


def _choose_addresses(options: ClusterOptions) -> dict[str, str]:
    names = [*_service_names(options), *_worker_names(options)]
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
    """Where each process serves its metrics: 100 ports above its own by default."""
    if not options.metrics:
        return dict.fromkeys(addresses, "")
    taken = {int(address.rpartition(":")[2]) for address in addresses.values()}
    found: dict[str, int] = {}
    if options.port_base or options.listen:
        for name, address in addresses.items():
            port = int(address.rpartition(":")[2]) + _METRICS_PORT_ABOVE
            if port < 65_536 and port not in taken and ports.is_free(_LOOPBACK, port):
                found[name] = port
                taken.add(port)
    missing = [name for name in addresses if name not in found]
    while missing:
        (port,) = ports.free_ports(_LOOPBACK, 1)
        if port not in taken:
            found[missing.pop(0)] = port
            taken.add(port)
    return {name: f"{_LOOPBACK}:{port}" for name, port in found.items()}


def _internal_listen(worker_address: str) -> str:
    """A free port for the other workers, on the worker's own interface; loopback when on all."""
    host = worker_address.rpartition(":")[0]
    return f"{'127.0.0.1' if host in ('0.0.0.0', '[::]') else host}:0"


def _check_free(name: str, address: str) -> None:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ClusterError(f"the address of {name} is {address!r}; it must be host:port")
    if not ports.is_free(host.strip("[]"), int(port)):
        raise ClusterError(f"cannot listen on {address} for {name}: the port is in use")
