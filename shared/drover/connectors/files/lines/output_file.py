"""A file with one owner at a time, written at absolute positions. Standard library only.

The directory ``.F.drover`` beside the file ``F`` has a lock file with the owner of ``F``: the
connector and the term of its claim. ``F`` is changed only under a flock on it, in a short critical
section that first checks the term, so an owner that lost its claim changes nothing.

An owner that is suspended inside its critical section keeps the flock. A new owner waits for it
until a timeout, then bypasses it: it replaces the lock file and ``F`` by copies. The suspended
owner then holds descriptors of files that no other process opens.

A file is taken over at its end if the committed offsets do not show its length: another program
wrote it, or offsets were lost. That position and the offsets committed then are noted beside the
lock: a later owner that finds the same offsets starts there.
"""

import errno
import fcntl
import json
import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from drover.connector import StaleClaimError, Term, TopicPartition
from drover.connectors.files.lines.written_offsets import (
    WrittenOffset,
    read_written,
    save_written,
)
from drover.policy.files import check_opened, check_root

LOCK_TIMEOUT_S = 10.0
_LOCK_POLL_S = 0.02
_STATE_BYTES = 4096
_COPY_BYTES = 8 * 1024 * 1024
_SEARCH_BYTES = 256 * 1024
_NO_KERNEL_COPY = (errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EBADF)


class OutputFileError(OSError):
    """A file that cannot be written; the message has the reason and the remedy."""


class LockTimeoutError(OutputFileError):
    """Another process holds the lock and does not release it."""


class OutputFile:
    """A file that its owner writes from a committed length on."""

    def __init__(
        self, path: str, *, connector: str, term: Term, lock_timeout_s: float = LOCK_TIMEOUT_S
    ) -> None:
        check_root(path)
        self.path = Path(os.path.realpath(path))
        self.side_directory = side_directory_of(self.path)
        self._connector = connector
        self._term = term
        self._lock_timeout_s = lock_timeout_s
        self._descriptor: int | None = None

    @property
    def parts_directory(self) -> Path:
        """The directory for the parts that this owner's executors write."""
        return self.side_directory / f"parts-{self._term}"

    def open(self, committed_length: int) -> None:
        """Take over the file and truncate it to the committed length.


        Raises:
            StaleClaimError: An owner with a higher term has the file.
            OutputFileError: The file is shorter than its committed length, or belongs to another
                connector.
        """
        self._open(lambda: committed_length, committed=None)

    def open_at_end(self, committed: str = "", *, cuts_last_line: bool = False) -> int:
        """Take over a file at its end; it need not exist.

        Args:
            committed: The committed offsets, as text. Another take-over with the same text
                truncates the file to where the first one began. Empty if none are committed:
                nothing is truncated.
            cuts_last_line: Whether to cut off an incomplete last line.

        Returns:
            The length from which to continue.

        Raises:
            StaleClaimError: An owner with a higher term has the file.
            OutputFileError: The file belongs to another connector, or was truncated.
        """
        return self._open(lambda: self._find_end(committed, cuts_last_line), committed)

    def forget_take_over(self) -> None:
        """Remove the note of ``open_at_end``, as other offsets are committed by now.

        Raises:
            StaleClaimError: An owner with a higher term has the file; the note stays.
        """
        if self._note_path.exists():
            with self._locked() as lock:
                self._check_owner(lock)
                self._note_path.unlink(missing_ok=True)

    def written(self) -> dict[TopicPartition, WrittenOffset]:
        """The topic partitions in the file."""
        return read_written(self.side_directory)

    def note_written(self, written: Mapping[TopicPartition, WrittenOffset]) -> None:
        """Note the topic partitions in the file; durable when it returns.

        Raises:
            StaleClaimError: An owner with a higher term has the file; nothing was written.
        """
        with self._locked() as lock:
            self._check_owner(lock)
            save_written(self.side_directory, written, is_durable=True)

    def append(
        self,
        position: int,
        parts: Sequence[Path],
        written: Mapping[TopicPartition, WrittenOffset] | None = None,
    ) -> int:
        """Write the parts, one after another, from ``position`` on; durable when it returns.

        Returns the position after them. ``written`` has the topic partitions that are in the file
        then.

        Raises:
            StaleClaimError: An owner with a higher term has the file; nothing was written.
            OutputFileError: Another program removed or replaced the file.
        """
        assert self._descriptor is not None
        with self._locked() as lock:
            self._check_owner(lock)
            self._check_same_file()
            for part in parts:
                position += _copy_into(part, self._descriptor, position)
            os.fsync(self._descriptor)
            if written is not None:
                save_written(self.side_directory, written, is_durable=False)
        return position

    def close(self) -> None:
        """Release the file; idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    # -- taking over -------------------------------------------------------------------------

    def _open(self, find_length: Callable[[], int], committed: str | None) -> int:
        self._make_side_directory()
        try:
            lock = self._acquire()
        except LockTimeoutError:
            lock = self._go_around(find_length())
        try:
            length = find_length()
            self._take(lock, length, committed)
        finally:
            os.close(lock)
        self._remove_parts_of_others()
        return length

    def _find_end(self, committed: str, cuts_last_line: bool) -> int:
        """The file's end at the first take-over under ``committed``; else its current end."""
        try:
            with self.path.open("rb") as file:
                noted = self._read_note()
                found = os.fstat(file.fileno())
                is_noted = committed and noted.get("committed") == committed
                if is_noted and noted.get("inode") == found.st_ino:
                    return int(noted["length"])
                return _end_of_last_line(file.fileno()) if cuts_last_line else found.st_size
        except FileNotFoundError:
            return 0
        except IsADirectoryError:
            raise self._irregular() from None

    def _irregular(self) -> OutputFileError:
        return OutputFileError(f"{self.path} is not a regular file: choose another file")

    def _read_note(self) -> dict[str, Any]:
        try:
            note = json.loads(self._note_path.read_bytes())
        except (FileNotFoundError, ValueError):
            return {}
        return note if isinstance(note, dict) else {}

    def _write_note(self, descriptor: int, committed: str, length: int) -> None:
        note = {
            "committed": committed,
            "inode": os.fstat(descriptor).st_ino,
            "length": length,
        }
        copy = self.side_directory / f"taken-over-{self._term}"
        with copy.open("w") as file:
            json.dump(note, file)
            file.flush()
            os.fsync(file.fileno())
        copy.replace(self._note_path)
        _sync_directory(self.side_directory)

    def _take(self, lock: int, committed_length: int, committed: str | None) -> None:
        owner = _read_state(lock)
        descriptor, created = self._open_or_create(committed_length)
        try:
            check_opened(descriptor, str(self.path))
            if not created:
                size = os.fstat(descriptor).st_size
                is_first = not committed and (committed == "" or not committed_length)
                self._check_takeover(owner, size, committed_length, is_first=is_first)
            # the descriptor is open: an owner that bypasses this lock replaces the file before
            # writing
            if not self._holds(lock):
                raise self._stale(None)
            if not committed:
                self._note_path.unlink(missing_ok=True)
            else:
                self._write_note(descriptor, committed, committed_length)
            _write_state(lock, self._connector, self._term)
            os.ftruncate(descriptor, committed_length)
            os.fsync(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def _check_takeover(
        self, owner: tuple[str, Term] | None, size: int, committed_length: int, *, is_first: bool
    ) -> None:
        if size < committed_length:
            raise OutputFileError(
                f"{self.path} has {size} bytes, but {committed_length} are committed: put the "
                "missing bytes back, or reset the connector's offsets to write its topics again "
                "after them"
            )
        if owner is None and size > 0 and is_first:
            raise OutputFileError(
                f"{self.path} exists with {size} bytes that this connector did not write: remove "
                "it or choose another file"
            )
        if owner is not None:
            if owner[0] != self._connector:
                raise OutputFileError(
                    f"{self.path} belongs to connector {owner[0]!r}: choose another file, or "
                    f"remove it together with {self.side_directory}"
                )
            if owner[1] > self._term:
                raise self._stale(owner[1])

    def _open_or_create(self, committed_length: int) -> tuple[int, bool]:
        """A descriptor, and whether the file is new; a removed file has no owner any longer."""
        try:
            if self.path.exists() and not stat.S_ISREG(self.path.stat().st_mode):
                raise self._irregular()
            return os.open(self.path, os.O_RDWR | os.O_CLOEXEC), False
        except FileNotFoundError:
            pass
        if committed_length > 0:
            raise OutputFileError(
                f"{self.path} is missing, but {committed_length} bytes of it are committed: put it "
                "back, or reset the connector's offsets to write its topics again"
            )
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        _sync_directory(self.path.parent)
        return descriptor, True

    def _go_around(self, committed_length: int) -> int:
        """Replace a lock that its holder does not release, and the file that the holder can still
        write.

        Returns a lock on the new lock file.
        """
        stuck = os.open(self._lock_path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            owner = _read_state(stuck)
        finally:
            os.close(stuck)
        if owner is not None and owner[1] > self._term:
            raise self._stale(owner[1])
        lock_copy = self.side_directory / f"lock-{self._term}"
        lock = os.open(lock_copy, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if owner is not None:
                _write_state(lock, *owner)
            lock_copy.replace(self._lock_path)
            if self.path.exists():
                self._replace_by_copy(committed_length)
            _sync_directory(self.side_directory)
        except BaseException:
            os.close(lock)
            raise
        return lock

    def _replace_by_copy(self, committed_length: int) -> None:
        copy = self.side_directory / f"copy-{self._term}"
        with self.path.open("rb") as source, copy.open("wb") as target:
            left = min(committed_length, os.fstat(source.fileno()).st_size)
            while left > 0:
                block = source.read(min(left, _COPY_BYTES))
                if not block:
                    break
                target.write(block)
                left -= len(block)
            target.flush()
            os.fsync(target.fileno())
        shutil.copymode(self.path, copy)
        copy.replace(self.path)
        _sync_directory(self.path.parent)

    # -- the lock ----------------------------------------------------------------------------

    @property
    def _lock_path(self) -> Path:
        return self.side_directory / "lock"

    @property
    def _note_path(self) -> Path:
        return self.side_directory / "taken-over"

    def _make_side_directory(self) -> None:
        if not self.path.parent.is_dir():
            raise OutputFileError(f"the directory {self.path.parent} does not exist: create it")
        self.side_directory.mkdir(exist_ok=True)
        _sync_directory(self.path.parent)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        lock = self._acquire()
        try:
            yield lock
        finally:
            os.close(lock)

    def _acquire(self) -> int:
        """Acquire the flock; closing the descriptor releases it."""
        pause = threading.Event()
        for _ in range(max(1, round(self._lock_timeout_s / _LOCK_POLL_S))):
            lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._holds(lock):
                    return lock
            except BlockingIOError:
                pass
            except BaseException:
                os.close(lock)
                raise
            os.close(lock)
            pause.wait(_LOCK_POLL_S)
        raise LockTimeoutError(
            f"{self._lock_path} has been locked for {self._lock_timeout_s:.0f} s by another writer "
            f"of {self.path}"
        )

    def _holds(self, lock: int) -> bool:
        """Whether this is still the current lock file."""
        try:
            return self._lock_path.stat().st_ino == os.fstat(lock).st_ino
        except FileNotFoundError:
            return False

    def _check_owner(self, lock: int) -> None:
        owner = _read_state(lock)
        if owner != (self._connector, self._term):
            raise self._stale(owner[1] if owner is not None else None)

    def _check_same_file(self) -> None:
        assert self._descriptor is not None
        try:
            same = self.path.stat().st_ino == os.fstat(self._descriptor).st_ino
        except FileNotFoundError:
            same = False
        if not same:
            raise OutputFileError(
                f"{self.path} was removed or replaced while it was written: put it back, or reset "
                "the connector's offsets to write its topics again"
            )

    def _stale(self, later: Term | None) -> StaleClaimError:
        by = f" ({later})" if later is not None else ""
        return StaleClaimError(
            f"{self.path} was taken over under a later claim{by} than {self._term}",
            self._term,
        )

    def _remove_parts_of_others(self) -> None:
        for entry in self.side_directory.glob("parts-*"):
            if entry != self.parts_directory:
                shutil.rmtree(entry, ignore_errors=True)


def traced_offsets(path: str, connector: str) -> dict[TopicPartition, WrittenOffset]:
    """The topic partitions in a file that a connector wrote, without changing anything."""
    check_root(path)
    file = Path(os.path.realpath(path))
    directory = side_directory_of(file)
    try:
        lock = os.open(directory / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return {}
    try:
        owner = _read_state(lock)
    finally:
        os.close(lock)
    is_own = owner is not None and owner[0] == connector and file.exists()
    return read_written(directory) if is_own else {}


def side_directory_of(file: Path) -> Path:
    """The directory for what belongs to a file."""
    return file.parent / f".{file.name}.drover"


def _read_state(lock: int) -> tuple[str, Term] | None:
    """The owner in the lock file, as connector and term; None for a new lock."""
    text = os.pread(lock, _STATE_BYTES, 0)
    if not text:
        return None
    try:
        state = json.loads(text)
        term = Term(int(state["generation"]), int(state["sequence"]))
        return str(state["connector"]), term
    except (ValueError, KeyError, TypeError) as error:
        raise OutputFileError(
            f"a lock file has {text[:80]!r} instead of the file's owner: remove its directory"
        ) from error


def _write_state(lock: int, connector: str, term: Term) -> None:
    """Write the owner in one write of fixed size: a kill leaves the old or the new state."""
    state = {"connector": connector, "generation": term.generation, "sequence": term.sequence}
    os.pwrite(lock, json.dumps(state).encode().ljust(_STATE_BYTES), 0)
    os.fsync(lock)


def _end_of_last_line(descriptor: int) -> int:
    """The position after the last newline; 0 without one."""
    end = os.fstat(descriptor).st_size
    while end > 0:
        begin = max(0, end - _SEARCH_BYTES)
        found = os.pread(descriptor, end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0


def _copy_into(part: Path, target: int, position: int) -> int:
    """Copy a file's bytes, in the kernel if possible; returns their number."""
    with part.open("rb") as source:
        size = os.fstat(source.fileno()).st_size
        copied = 0
        while copied < size:
            count = _copy_block(source.fileno(), copied, target, position + copied, size - copied)
            if count == 0:
                raise OutputFileError(f"{part} became shorter while it was copied")
            copied += count
    return size


def _copy_block(source: int, source_at: int, target: int, target_at: int, length: int) -> int:
    try:
        return os.copy_file_range(source, target, length, source_at, target_at)
    except OSError as error:
        if error.errno not in _NO_KERNEL_COPY:
            raise
    block = os.pread(source, min(length, _COPY_BYTES), source_at)
    return os.pwrite(target, block, target_at)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
