"""What `drover down --delete-data` deletes: what clusters create, and no other file."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from drover.local.state import CLUSTER_ENTRIES, ClusterError


def deletion_text(directory: Path, *, whole: bool = False) -> str:
    """The number and size of the files to delete, and the names of their entries."""
    entries = _entries(directory, whole=whole)
    files = [file for entry in entries for file in _files(entry)]
    size_mib = sum(file.lstat().st_size for file in files) / 2**20
    names = ", ".join(entry.name for entry in entries)
    return f"{len(files)} files of {size_mib:.1f} MiB in all ({names})"


def delete_cluster(directory: Path, *, whole: bool = False) -> list[str]:
    """Delete what clusters create in their directory, and the directory if nothing else is in it.

    Args:
        directory: A cluster's directory, or a symbolic link to it.
        whole: Whether all that is in the directory was created for the cluster.

    Returns:
        What stays: other files in the directory, and the targets of symbolic links.

    Raises:
        ClusterError: A file cannot be deleted.
    """
    left: list[str] = []
    path = directory
    try:
        for path in _entries(directory, whole=whole):
            if path.is_symlink():
                left.append(f"{path.resolve()} (to which {path} linked)")
                path.unlink()
            elif path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        path = directory
        if others := sorted(map(str, directory.iterdir())):
            return [*left, *others]
        directory.resolve().rmdir()  # the name "." cannot be removed
        if directory.is_symlink():
            directory.unlink()
    except OSError as error:
        raise ClusterError(f"cannot delete {path}: {error.strerror or error}") from error
    return left


def _entries(directory: Path, *, whole: bool) -> list[Path]:
    """The entries of the directory to delete; what marks it as a cluster's comes last."""
    found = [each for each in directory.iterdir() if whole or each.name in CLUSTER_ENTRIES]
    last = {name: number for number, name in enumerate(CLUSTER_ENTRIES)}
    return sorted(found, key=lambda each: (last.get(each.name, -1), each.name))


def _files(entry: Path) -> Iterator[Path]:
    """The files below an entry; links are not followed."""
    if entry.is_symlink() or not entry.is_dir():
        yield entry
        return
    for folder, _, names in os.walk(entry):
        yield from (Path(folder) / name for name in names)
