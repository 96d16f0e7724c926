"""The data directory of an embedded cluster, and the locks of its services."""

import errno
import fcntl
import os
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urlsplit

import structlog

from drover.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    Reason,
    UnavailableError,
    Violation,
)
from drover.private_files import SharedDirectoryError, private_directory

_SETTING = "DROVER_STORAGE_URL"

_log = structlog.get_logger(__name__)


def storage_directory(storage_url: str) -> Path:
    """The directory of an embedded ``storage_url``: ``sqlite:///abs/path``.

    Raises:
        InvalidArgumentError: INVALID_CONFIG, another scheme or no absolute path.
    """
    try:
        url = urlsplit(storage_url)
    except ValueError as error:
        raise _bad_url(storage_url, str(error)) from error
    if url.scheme != "sqlite":
        raise _bad_url(
            storage_url, "must be sqlite:///absolute/path or kafka://host:port,host:port"
        )
    if url.netloc or (url.path and not url.path.startswith("/")):
        raise _bad_url(
            storage_url, "must have an absolute path after three slashes: sqlite:///absolute/path"
        )
    if url.query or url.fragment:
        raise _bad_url(storage_url, "must have %3F and %23 in place of ? and # in the path")
    path = unquote(url.path)
    if not path.strip("/") or "\0" in path:
        raise _bad_url(storage_url, "must name a directory: sqlite:///absolute/path")
    return Path("/" + path.lstrip("/"))


def _bad_url(storage_url: str, what: str) -> InvalidArgumentError:
    message = f"{_SETTING} {storage_url!r}: {what}"
    return InvalidArgumentError(
        Reason.INVALID_CONFIG, message, violations=[Violation(_SETTING, what)]
    )


class DirectoryLock:
    """A service's lock on a data directory; ends with ``release`` or with the process."""

    def __init__(self, descriptor: int, *, shared: bool = False) -> None:
        self._descriptor: int | None = descriptor
        self._shared = shared

    def release(self) -> None:
        """Release the lock for another process; idempotent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            # the file is not removed: another process may have just opened it to lock it
            if not self._shared:
                os.ftruncate(descriptor, 0)
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


class DataDirectory:
    """The directory with an embedded cluster's files."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def prepare(self) -> None:
        """Create the directory if it is missing, and check that only this user can open it.

        The rights of other users are removed.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE; the message has the remedy.
        """
        try:
            previous_mode = private_directory(self.path)
            with tempfile.TemporaryFile(dir=self.path) as probe:
                probe.write(b"drover")
                probe.flush()
                os.fsync(probe.fileno())
        except SharedDirectoryError as error:
            raise UnavailableError(
                Reason.STORAGE_UNAVAILABLE,
                f"cannot use the data directory {self.path} ({_SETTING}): {error}",
                metadata={"path": str(self.path)},
            ) from error
        except OSError as error:
            raise self._unusable(error) from error
        if previous_mode is not None:
            _log.warning(
                "the data directory was open to other users: its mode is now 0700",
                path=str(self.path),
                previous_mode=f"{previous_mode:04o}",
            )

    def lock(self, service_name: str, *, shared: bool = False) -> DirectoryLock:
        """Lock ``<directory>/<service_name>.lock`` for this process.

        Args:
            service_name: The file's name, and the owner's name in messages.
            shared: Take a shared lock instead of an exclusive one.

        Raises:
            FailedPreconditionError: STORAGE_OWNED, another process has a conflicting lock.
            UnavailableError: STORAGE_UNAVAILABLE.
        """
        try:
            descriptor = os.open(
                self.path / f"{service_name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
        except OSError as error:
            raise self._unusable(error) from error
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            if not shared:
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError as error:
            owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise self._owned(service_name, owner) from error
        except OSError as error:
            os.close(descriptor)
            raise self._unusable(error) from error
        return DirectoryLock(descriptor, shared=shared)

    def is_locked(self, service_name: str) -> bool:
        """Whether a process has an exclusive lock on ``<directory>/<service_name>.lock``.

        The check takes the lock for a moment, so a concurrent ``lock`` may fail.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE.
        """
        try:
            descriptor = os.open(self.path / f"{service_name}.lock", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._unusable(error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def _owned(self, service_name: str, owner: str) -> FailedPreconditionError:
        who = f"another {service_name}" + (f" (pid {owner})" if owner else "")
        return FailedPreconditionError(
            Reason.STORAGE_OWNED,
            f"{who} uses {self.path}: stop it or choose another {_SETTING}",
            metadata={"path": str(self.path), "pid": owner},
        )

    def _unusable(self, error: OSError) -> UnavailableError:
        advice = {
            errno.ENOSPC: "free some space",
            errno.EDQUOT: "free some space",
            errno.EROFS: f"it is on a read-only file system; choose another {_SETTING}",
        }.get(
            error.errno or 0,
            f"make it writable for this user, or choose another {_SETTING}",
        )
        return UnavailableError(
            Reason.STORAGE_UNAVAILABLE,
            f"cannot use the data directory {self.path}: {error.strerror or error}; {advice}",
            metadata={"path": str(self.path)},
        )
