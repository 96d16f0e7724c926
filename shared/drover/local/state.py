"""The state file and the lock in the directory of a cluster."""

import fcntl
import json
import os
import shlex
import stat
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

import psutil

from drover.model.command_lines import drover_command
from drover.private_files import (
    SharedDirectoryError,
    open_private,
    private_directory,
    user_name,
)

#: The default directory of `drover up`, relative to the working directory.
DEFAULT_DIRECTORY = Path(".drover") / "up"
#: The folders of the embedded storage, of the logs and of the certificates of `drover up --tls`, in
#: the cluster's directory.
DATA_DIRECTORY = "data"
LOGS_DIRECTORY = "logs"
CERTIFICATES_DIRECTORY = "certs"
_STATE_FILE = "cluster.json"
_LOCK_FILE = "supervisor.lock"
_WRITABLE_BY_OTHERS = 0o022
#: The metrics addresses, in the format of Prometheus's file_sd_configs.
TARGETS_FILE = "prometheus-targets.json"
#: All that a cluster creates in its directory; the lock file last, which marks it as a cluster's.
CLUSTER_ENTRIES = (
    DATA_DIRECTORY,
    LOGS_DIRECTORY,
    CERTIFICATES_DIRECTORY,
    TARGETS_FILE,
    _STATE_FILE,
    _LOCK_FILE,
)


class ClusterError(Exception):
    """A cluster cannot be started, found or stopped; the message is one line for the user."""


@dataclass(frozen=True, slots=True)
class ProcessState:
    """One process of the cluster; ``pid`` is None while it is down."""

    pid: int | None
    address: str
    log: str
    metrics_address: str = ""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The cluster's state as its supervisor last wrote it.

    Attributes:
        supervisor_pid: The supervisor's pid.
        supervisor_started_s: Its start in seconds since the epoch; distinguishes it from a later
            process with the same pid.
        processes: The processes by name.
        certificates: The directory of the TLS certificates; empty for plaintext.
    """

    supervisor_pid: int
    supervisor_started_s: float
    processes: Mapping[str, ProcessState]
    certificates: str = ""

    def addresses(self, prefix: str) -> list[str]:
        """The addresses of the processes whose names start with ``prefix``, in order of names."""
        return [p.address for name, p in sorted(self.processes.items()) if name.startswith(prefix)]

    def supervisor(self) -> psutil.Process | None:
        """The supervisor's process; None if it does not run."""
        try:
            process = psutil.Process(self.supervisor_pid)
            if abs(process.create_time() - self.supervisor_started_s) > 1.0:
                return None
            return process if process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None


def write_state(directory: Path, state: ClusterState) -> None:
    """Write the state file and the list of Prometheus targets."""
    _replace(directory / _STATE_FILE, asdict(state))
    targets = [
        {"targets": [process.metrics_address], "labels": {"process": name}}
        for name, process in state.processes.items()
        if process.metrics_address
    ]
    _replace(directory / TARGETS_FILE, targets)


def _replace(path: Path, content: object) -> None:
    """Replace a JSON file atomically, so a reader never sees a partial one."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)
    Path(name).replace(path)


def remove_state(directory: Path) -> None:
    """Remove the files that ``write_state`` wrote, if they exist."""
    for name in (_STATE_FILE, TARGETS_FILE):
        (directory / name).unlink(missing_ok=True)


def check_trusted(directory: Path) -> None:
    """Check that only the current user can have written what is in a cluster's directory.

    Another user's state file would name the server that receives this user's calls, and the
    process that `drover down` ends.

    Raises:
        ClusterError: The directory or its state file belongs to another user, or others may write
            to it.
    """
    for path in (directory, directory / _STATE_FILE):
        try:
            status = path.stat()
        except OSError:
            continue
        here = "choose another --dir or --address, or work in another folder"
        if status.st_uid != os.geteuid():
            raise ClusterError(
                f"{path} belongs to {user_name(status.st_uid)}, and commands of"
                f" {user_name(os.geteuid())} trust only clusters of the same user: {here}"
            )
        if status.st_mode & _WRITABLE_BY_OTHERS:
            raise ClusterError(
                f"other users may write to {path} (mode {stat.S_IMODE(status.st_mode):04o}), so it"
                f" is not trusted: run `chmod go-w {shlex.quote(str(path))}` if you know its"
                f" content, or {here}"
            )


def read_state(directory: Path) -> ClusterState | None:
    """The state of the cluster in ``directory``; None if the file is missing or malformed.

    Raises:
        ClusterError: Another user can have written it.
    """
    check_trusted(directory)
    try:
        raw = json.loads((directory / _STATE_FILE).read_text(encoding="utf-8"))
        return ClusterState(
            supervisor_pid=int(raw["supervisor_pid"]),
            supervisor_started_s=float(raw["supervisor_started_s"]),
            processes={name: ProcessState(**value) for name, value in raw["processes"].items()},
            certificates=str(raw.get("certificates", "")),
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def prepare_directory(directory: Path, on_event: Callable[[str, str], None]) -> None:
    """Create a cluster's directory, or take the rights of other users from it.

    Args:
        directory: The cluster's directory.
        on_event: Called with "cluster" and a description if rights were taken.

    Raises:
        ClusterError: The directory belongs to another user, or cannot be created.
    """
    try:
        previous_mode = private_directory(directory)
    except SharedDirectoryError as error:
        raise ClusterError(f"cannot use {directory}: {error}") from error
    except OSError as error:
        raise ClusterError(f"cannot use {directory}: {error.strerror}") from error
    if previous_mode is not None:
        on_event(
            "cluster",
            f"{directory} was open to other users (mode {previous_mode:04o}): its mode is now 0700",
        )


class DirectoryLock:
    """Locks a cluster's directory for one supervisor; use as a context manager or close it."""

    def __init__(
        self, directory: Path, on_event: Callable[[str, str], None] = lambda _name, _text: None
    ) -> None:
        """Create the directory as in ``prepare_directory`` and take its lock.

        Raises:
            ClusterError: Another supervisor holds the lock, the directory belongs to another user,
                or it cannot be written.
        """
        prepare_directory(directory, on_event)
        try:
            self._file = open_private(directory / _LOCK_FILE)
        except OSError as error:
            raise ClusterError(f"cannot use {directory}: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            state = read_state(directory)
            who = f" (pid {state.supervisor_pid})" if state else ""
            raise ClusterError(
                f"a cluster{who} already runs in {directory}: stop it with "
                f"`{down_command(directory)}` or choose another --dir"
            ) from error

    def close(self) -> None:
        """Release the lock."""
        self._file.close()

    def __enter__(self) -> "DirectoryLock":
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def is_held(directory: Path) -> bool:
    """Whether a supervisor holds the lock of ``directory``."""
    if not is_cluster_directory(directory):
        return False
    with (directory / _LOCK_FILE).open(encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def is_cluster_directory(directory: Path) -> bool:
    """Whether a supervisor has used ``directory``; no other directory may be removed.

    Raises:
        ClusterError: The user may not read it; it may belong to another user.
    """
    try:
        return (directory / _LOCK_FILE).is_file()
    except PermissionError as error:
        check_trusted(directory)
        raise ClusterError(f"cannot use {directory}: {error.strerror}") from error


def down_command(directory: Path, *options: str) -> str:
    """The command that stops the cluster in a directory, also after the cluster has ended."""
    place = () if directory == DEFAULT_DIRECTORY else ("--dir", str(directory))
    return drover_command("down", options=[*options, *place])
