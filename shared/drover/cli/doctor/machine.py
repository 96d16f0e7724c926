"""Checks the machine: Java, versions, memory, disk, open files, ports."""

import importlib.metadata
import importlib.util
import os
import platform
import resource
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from drover.cli.doctor.finding import Finding, Level
from drover.errors import InvalidArgumentError
from drover.java_plugins.allowed import ALLOWED_VARIABLE, class_fault, worker_catalogue
from drover.java_plugins.places import host_jars, missing_host
from drover.java_plugins.values import JavaPluginError
from drover.local import ports
from drover.local.cluster import (
    DEFAULT_PORT_BASE,
    SERVICES,
    default_listen,
    listen_from_environment,
)
from drover.local.java_check import JavaUnusableError, find_java
from drover.local.state import DATA_DIRECTORY, ClusterState
from drover.log.directory import storage_directory

_MIB = 1024 * 1024
#: A worker's herder, its engine's Python process and Spark's JVM with a heap of 1 GiB.
MEMORY_WANTED_BYTES = 2048 * _MIB
DISK_WANTED_BYTES, DISK_NEEDED_BYTES = 1024 * _MIB, 64 * _MIB
FILES_WANTED = 1_024
#: SQLite's WAL needs file locks and shared memory, which these do not provide reliably.
_NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "glusterfs", "fuse.glusterfs", "ceph"}
)


def look_at_machine(
    directory: Path, running: ClusterState | None, environ: Mapping[str, str]
) -> list[Finding]:
    """Check this machine.

    Args:
        directory: The cluster's directory.
        running: The state of the cluster that runs there, if any.
        environ: Environment with the settings and JAVA_HOME.
    """
    installed = [kind for kind in SERVICES if importlib.util.find_spec(_package(kind)) is not None]
    return [
        _java(environ, needed="worker" in installed),
        *_java_plugins(environ, needed="worker" in installed),
        *_versions(installed),
        _memory(),
        *_disk(directory, environ),
        _open_files(),
        *_ports(running, environ),
    ]


def _java(environ: Mapping[str, str], *, needed: bool) -> Finding:
    try:
        java = find_java(environ)
    except JavaUnusableError as error:
        problem, _, advice = str(error).partition("; ")
        if not needed:
            return Finding(
                "java", Level.OK, f"{problem}; only workers need Java, and none is installed here"
            )
        return Finding("java", Level.ERROR, problem, advice)
    return Finding("java", Level.OK, f"Java {java.version}, {java.path}")


def _java_plugins(environ: Mapping[str, str], *, needed: bool) -> Iterator[Finding]:
    """The Java plugins of this machine, if there are any and a worker could run them."""
    if not needed:
        return
    name = "java plugins"
    try:
        found = worker_catalogue(environ)
    except JavaPluginError as error:
        problem, _, advice = str(error).partition(": ")
        yield Finding(name, Level.ERROR, problem, advice)
        return
    for each in found.problems:
        yield Finding(name, Level.WARNING, each, "install the plugin again, or remove its folder")
    if not found.plugins:
        return
    if host_jars(environ) is None:
        problem, _, advice = missing_host(environ).partition(": ")
        yield Finding(name, Level.ERROR, problem, advice)
        return
    try:
        refused = sorted({each.name for each in found.classes if class_fault(each.name, environ)})
    except ValueError as error:
        yield Finding(name, Level.ERROR, str(error), f"correct {ALLOWED_VARIABLE}")
        return
    if refused:
        yield Finding(
            name,
            Level.WARNING,
            f"{len(refused)} of {len(found.classes)} classes may not be used, such as {refused[0]}:"
            f" {ALLOWED_VARIABLE} does not include them",
            f"add the classes that configs may name to {ALLOWED_VARIABLE} of the workers",
        )
    else:
        names = ", ".join(each.name for each in found.plugins)
        yield Finding(name, Level.OK, f"{names} can be used")


def _versions(installed: list[str]) -> Iterator[Finding]:
    python = f"Python {platform.python_version()}"
    library = importlib.metadata.version("drover-connect")
    others = {f"drover-{kind}": _version(f"drover-{kind}") for kind in installed}
    wrong = {name: version for name, version in others.items() if version != library}
    if wrong:
        versions = ", ".join(f"{name} {version}" for name, version in wrong.items())
        yield Finding(
            "versions",
            Level.ERROR,
            f"versions differ: drover-connect {library}, {versions}",
            f"install the same version of all: pip install 'drover-connect[cluster]=={library}'",
        )
    else:
        names = ", ".join(("drover-connect", *others))
        yield Finding("versions", Level.OK, f"{python}; {library} of {names}")
    if "worker" in installed:
        spark = _version("pyspark")
        if spark:
            yield Finding("spark", Level.OK, f"pyspark {spark}")
        else:
            yield Finding(
                "spark",
                Level.ERROR,
                "pyspark is not installed",
                "pip install 'drover-connect[spark]'",
            )


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _memory() -> Finding:
    available = psutil.virtual_memory().available
    amount = f"{available // _MIB} MiB available"
    if available >= MEMORY_WANTED_BYTES:
        return Finding("memory", Level.OK, amount)
    return Finding(
        "memory",
        Level.WARNING,
        amount,
        f"a worker with its engine takes about {MEMORY_WANTED_BYTES // _MIB} MiB: run fewer"
        " workers, or set spark.driver.memory in DROVER_SPARK_CONF",
    )


def _disk(directory: Path, environ: Mapping[str, str]) -> Iterator[Finding]:
    data = directory / DATA_DIRECTORY
    url = environ.get("DROVER_STORAGE_URL", "")
    if url.startswith("sqlite:"):
        try:
            data = storage_directory(url)
        except InvalidArgumentError as error:
            yield Finding("disk", Level.ERROR, error.message, "correct DROVER_STORAGE_URL")
            return
    place = data.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    if not os.access(place, os.W_OK | os.X_OK):
        yield Finding(
            "disk",
            Level.ERROR,
            f"{place} cannot be written by this user",
            f"grant write permission to the user who runs Drover, or choose another directory than"
            f" {data}",
        )
        return
    usage = shutil.disk_usage(place)
    amount = f"{usage.free // _MIB} MiB free at {place}"
    advice = "free some space, or reduce DROVER_TOPIC_RETENTION_MS: a full disk fails every write"
    if usage.free < DISK_NEEDED_BYTES:
        yield Finding("disk", Level.ERROR, amount, advice)
    elif usage.free < max(DISK_WANTED_BYTES, usage.total // 20):
        yield Finding("disk", Level.WARNING, amount, advice)
    else:
        yield Finding("disk", Level.OK, amount)
    kind = _file_system(place)
    if kind in _NETWORK_FILE_SYSTEMS:
        yield Finding(
            "file system",
            Level.ERROR,
            f"{place} is on {kind}, a network file system",
            "SQLite files can be corrupted there: use a local disk, or Kafka as storage",
        )


def _file_system(place: Path) -> str:
    found = ("", "")
    for each in psutil.disk_partitions(all=True):
        with suppress(ValueError):
            place.relative_to(each.mountpoint)
            found = max(found, (each.mountpoint, each.fstype), key=lambda pair: len(pair[0]))
    return found[1]


def _open_files() -> Finding:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY or limit >= FILES_WANTED:
        return Finding("open files", Level.OK, "no limit" if limit < 0 else f"up to {limit}")
    return Finding(
        "open files",
        Level.WARNING,
        f"only {limit} for each process",
        f"raise the limit to {FILES_WANTED} or more: ulimit -n, or LimitNOFILE of systemd",
    )


def _ports(running: ClusterState | None, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Check that the services' ports are free, unless the cluster itself runs here."""
    if running is not None:
        addresses = ", ".join(each.address for each in running.processes.values())
        yield Finding("ports", Level.OK, f"in use by the cluster that runs here: {addresses}")
        return
    asked = listen_from_environment(environ)
    base = environ.get("DROVER_PORT_BASE", "")
    listens = default_listen(int(base) if base.isdecimal() else DEFAULT_PORT_BASE)
    taken = 0
    for name, address in {**listens, **asked}.items():
        host, _, port = address.rpartition(":")
        if not port.isdecimal() or ports.is_free(host.strip("[]"), int(port)):
            continue
        taken += 1
        who = _holder(int(port))
        yield Finding(
            f"port {port}",
            Level.ERROR if name in asked else Level.WARNING,
            f"in use{who}; {name} would listen there",
            f"stop that process, or set another port in {_variable(name)}; without the setting"
            " `drover up` takes a free one",
        )
    if not taken:
        yield Finding("ports", Level.OK, "the ports of all services are free")


def _holder(port: int) -> str:
    """The process that listens on the port; empty if this user cannot see it."""
    with suppress(psutil.Error, PermissionError):
        for each in psutil.net_connections("tcp"):
            listens = each.status == psutil.CONN_LISTEN and getattr(each.laddr, "port", 0) == port
            if listens and each.pid:
                return f" by {psutil.Process(each.pid).name()} (pid {each.pid})"
    return ""


def _variable(name: str) -> str:
    return f"DROVER_{name.removesuffix('-1').upper().replace('-', '_')}_LISTEN"


def _package(service: str) -> str:
    return f"drover_{service.replace('-', '_')}"
