"""Finds the clusters of `drover up` in a folder, and the running clusters of other folders."""

import contextlib
import hashlib
import itertools
import json
import os
from dataclasses import dataclass
from pathlib import Path

from drover.local.state import DEFAULT_DIRECTORY, ClusterError, ClusterState, read_state
from drover.private_files import SharedDirectoryError, private_directory
from drover.security.files import replace_file

#: The most entries of a folder that are searched.
_ENTRIES_MAX = 1_000


@dataclass(frozen=True, slots=True)
class FoundCluster:
    """A cluster and its directory."""

    directory: Path
    state: ClusterState

    @property
    def is_running(self) -> bool:
        """Whether its supervisor runs."""
        return self.state.supervisor() is not None


def clusters_of_folder(folder: Path) -> list[FoundCluster]:
    """The clusters that commands in ``folder`` may mean.

    That is the one in its .drover/up; else the one whose directory contains the folder; else those
    that run in directories directly below it. Of the latter two, directories that others can write
    to are left out.

    Raises:
        ClusterError: Others can write to .drover/up.
    """
    own = read_state(folder / DEFAULT_DIRECTORY)
    if own is not None:
        return [FoundCluster(folder / DEFAULT_DIRECTORY, own)]
    for each in (folder, *folder.parents):
        if found := cluster_in(each):
            return [found]
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        names = sorted(entry.name for entry in itertools.islice(entries, _ENTRIES_MAX))
        below = [found for name in names if (found := cluster_in(folder / name))]
        return [each for each in below if each.is_running]
    return []


def cluster_in(directory: Path) -> FoundCluster | None:
    """The cluster whose processes ``directory`` lists, which may have died; None if there is none,
    or if others can write to the directory.
    """
    try:
        state = read_state(directory)
    except ClusterError:
        return None
    return None if state is None else FoundCluster(directory, state)


def register(directory: Path) -> None:
    """Record that a cluster of this user runs in ``directory``, an absolute path, with its state
    file; if the user's folder for such records cannot be written, there is none.
    """
    with contextlib.suppress(OSError, SharedDirectoryError):
        private_directory(_registry())
        replace_file(_entry(directory), json.dumps(str(directory)).encode(), mode=0o600)


def unregister(directory: Path) -> None:
    """Undo ``register``."""
    with contextlib.suppress(OSError):
        _entry(directory).unlink(missing_ok=True)


def registered_clusters() -> list[FoundCluster]:
    """All recorded clusters of this user that run; the records of others are removed."""
    found = []
    with contextlib.suppress(OSError, ValueError):
        for entry in sorted(_registry().iterdir())[:_ENTRIES_MAX]:
            cluster = cluster_in(Path(json.loads(entry.read_text(encoding="utf-8"))))
            if cluster and cluster.is_running:
                found.append(cluster)
            else:
                entry.unlink(missing_ok=True)
    return found


def running_elsewhere() -> str:
    """The directories of this user's running clusters, for a message of a command that found none;
    empty if there are none.
    """
    names = ", ".join(str(each.directory) for each in registered_clusters())
    return f"; clusters that run: {names}" if names else ""


def _registry() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "drover" / "clusters"


def _entry(directory: Path) -> Path:
    return _registry() / hashlib.sha256(str(directory).encode()).hexdigest()[:32]
