"""Files and directories that only the current user can open.

Drover's own files hold records, configs with secrets and the key that signs calls between workers.
The umask stays the user's, because other programs read the files of connectors.
"""

import os
import pwd
import shlex
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

_DIRECTORY_MODE = 0o700
_FILE_MODE = 0o600
_OF_OTHERS = 0o077


class SharedDirectoryError(Exception):
    """A directory is open to other users and cannot be closed; the message has the command to run.

    The message is a clause about the directory: "it belongs to …".
    """


def private_directory(path: Path) -> int | None:
    """Create a directory for the current user only, or take the rights of others from it.

    Returns:
        The previous mode if it gave rights to others, else None.

    Raises:
        SharedDirectoryError: It belongs to another user, or others have files in it.
        OSError: It cannot be created or changed.
    """
    try:
        path.mkdir(mode=_DIRECTORY_MODE, parents=True)
    except FileExistsError:
        if not path.is_dir():
            raise
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        mode = stat.S_IMODE(status.st_mode)
        if status.st_uid != os.geteuid():
            raise SharedDirectoryError(
                f"it belongs to {user_name(status.st_uid)}, who can read and replace what this"
                f" process, of {user_name(os.geteuid())}, writes in it: run"
                f" `sudo chown {user_name(os.geteuid())} {shlex.quote(str(path))}"
                f" && sudo chmod 700 {shlex.quote(str(path))}`, or choose a directory below it"
            )
        if not mode & _OF_OTHERS:
            return None
        if mode & stat.S_ISVTX and _has_files_of_others(descriptor):
            raise SharedDirectoryError(
                f"it has mode {mode:04o}, and other users have files in it: choose a directory"
                " below it"
            )
        os.fchmod(descriptor, _DIRECTORY_MODE)
    finally:
        os.close(descriptor)
    return mode


def open_private(path: Path) -> BinaryIO:
    """Open a file to append to it; a new file is for the current user only.

    Raises:
        OSError: It cannot be opened.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, _FILE_MODE), "ab")


def replace_private(path: Path, text: str) -> None:
    """Write a file for the current user only. A link with its name is replaced, not followed; an
    interrupted call leaves the previous file.

    Raises:
        OSError: It cannot be written.
    """
    descriptor, new = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as stream:
            stream.write(text)
        Path(new).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(new).unlink()
        raise


def make_private(path: Path) -> None:
    """Take the rights of other users from a file of the current user.

    It does not open the file, because closing it would release SQLite's locks.
    """
    # without the right to change it, its directory protects it
    with suppress(OSError):
        if path.stat().st_mode & _OF_OTHERS:
            path.chmod(_FILE_MODE)


def user_name(user_id: int) -> str:
    """The name of a user of this machine; the id if there is none."""
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return str(user_id)


def _has_files_of_others(descriptor: int) -> bool:
    own = os.geteuid()
    for name in os.listdir(descriptor):
        with suppress(FileNotFoundError):
            if os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_uid != own:
                return True
    return False
