"""A directory of files that are named by the offsets of their records. Standard library only.

A file is ``TOPIC-PARTITION-START-END-CONNECTOR.EXT``: its records have offsets from START to END -
1 of a topic partition, and CONNECTOR is a checksum of the connector's name, so that several
connectors may share a directory. ``-OUTPUT`` follows CONNECTOR where the output of the topic
partition has an id: after its topic was created again, or its offsets were reset. Files of other
outputs are never removed.

The hidden directory ``.drover`` beside them has a staging directory for each topic partition and
owner. Files are published, and removed, only by a rename from or to that directory. A task that
takes over a topic partition first moves the staging directories of earlier owners away: after that
each of their renames fails, wherever they were suspended. Files that they published before are then
removed. No lock is needed, which a suspended owner could keep.
"""

import contextlib
import hashlib
import logging
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from drover.connector import StaleClaimError, TaskId, Term, TopicPartition
from drover.policy.files import check_root

_SIDE = ".drover"
_NAME = re.compile(
    r"(?P<topic>.+)-(?P<partition>\d+)-(?P<start>\d{20})-(?P<end>\d{20})-(?P<connector>[0-9a-f]{8})"
    r"(?:-(?P<output>[0-9a-f]{8}))?\.[a-z0-9.]+"
)

_log = logging.getLogger(__name__)


class UnknownOutputError(Exception):
    """Output exists where no offset is committed, so it may not be removed or written again."""


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A durable, hidden file, and its final place below the directory."""

    staged: str
    directory: str
    topic: str
    partition: int
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class DirectoryStaging:
    """The staging directories of an owner: TOPIC-PARTITION/owner for each topic partition. The task
    creates them; a missing one means that another task has taken over. Picklable.
    """

    directory: str
    owner: str

    def create(self, topic: str, partition: int, name: str) -> IO[bytes]:
        """A new file to write."""
        return self._path(topic, partition, name).open("xb")

    def keep(self, file: IO[bytes], topic: str, partition: int, name: str) -> None:
        """Make a completely written file durable."""
        os.fsync(file.fileno())

    def discard(self, topic: str, partition: int, name: str) -> None:
        """Remove a file."""
        self._path(topic, partition, name).unlink(missing_ok=True)

    def _path(self, topic: str, partition: int, name: str) -> Path:
        return Path(self.directory, f"{topic}-{partition}", self.owner, name)


class OutputDirectory:
    """The files of one connector in a directory, from the view of one owner."""

    def __init__(self, path: str, *, task: TaskId, term: Term, extension: str) -> None:
        """Create the directory.

        Raises:
            OSError: It cannot be created, or is outside of the worker's roots.
        """
        check_root(path)
        self.path = Path(os.path.realpath(path))
        self.path.mkdir(parents=True, exist_ok=True)
        self._tag = tag_of(task.connector)
        self.staging = self.path / _SIDE / self._tag
        self._owner = _Owner(term, task.task)
        self._extension = extension
        #: The output ids of the topic partitions that were taken over.
        self._taken: dict[tuple[str, int], str] = {}

    @property
    def owner(self) -> str:
        """The name of this owner's staging directories."""
        return str(self._owner)

    def staged(self) -> DirectoryStaging:
        """The staging area for executors."""
        return DirectoryStaging(str(self.staging), self.owner)

    def take_over(
        self,
        topic: str,
        partition: int,
        start_offset: int,
        *,
        output_id: str = "",
        is_committed: bool = True,
    ) -> int:
        """Become the owner of a topic partition and remove the files of its output from
        ``start_offset`` on.

        Offsets below are committed, others are not. Returns ``start_offset``: no files exist from
        there on.

        Args:
            topic: The topic.
            partition: The partition.
            start_offset: The offset of the next record to write.
            output_id: The id of the output to write.
            is_committed: Whether ``start_offset`` is a committed offset. Otherwise nothing is
                removed.

        Raises:
            StaleClaimError: An owner with a later claim has it.
            UnknownOutputError: It has files from ``start_offset`` on, which is not committed.
        """
        side = self._side(topic, partition)
        own = side / self.owner
        own.mkdir(parents=True, exist_ok=True)
        for each in sorted(side.iterdir()):
            other = _Owner.parse(each.name)
            if other is not None and other.is_later_than(self._owner):
                shutil.rmtree(own, ignore_errors=True)
                raise self._stale(topic, partition)
            if other is not None and other != self._owner:
                trash = side / f"removed-{uuid.uuid4().hex}"
                with contextlib.suppress(FileNotFoundError):
                    each.rename(trash)
                shutil.rmtree(trash, ignore_errors=True)
            elif other is None:
                shutil.rmtree(each, ignore_errors=True)
        self._taken[topic, partition] = output_id
        self._remove_files(topic, partition, start_offset, output_id, is_committed)
        with contextlib.suppress(FileNotFoundError):
            for left in own.iterdir():
                left.unlink(missing_ok=True)
        return start_offset

    def check_owner(self, topic: str, partition: int) -> None:
        """Raise if another task has taken over the topic partition.

        Raises:
            StaleClaimError: An owner with another claim has it.
        """
        if not (self._side(topic, partition) / self.owner).is_dir():
            raise self._stale(topic, partition)

    def publish(self, files: Iterable[StagedFile]) -> None:
        """Publish files; durable when it returns.

        Raises:
            StaleClaimError: An owner with another claim has it.
            OSError: A place is outside of the worker's roots, or cannot be written.
        """
        made: set[Path] = set()
        for each in files:
            directory = self.path / each.directory
            if directory not in made:
                directory.mkdir(parents=True, exist_ok=True)
                check_root(str(directory))
                made |= {directory, *self._parents(directory)}
            name = (
                f"{each.topic}-{each.partition}-{each.start_offset:020d}-{each.end_offset:020d}-"
                f"{self._tag}{_suffix(self._taken[each.topic, each.partition])}.{self._extension}"
            )
            staged = self._side(each.topic, each.partition) / self.owner / each.staged
            try:
                staged.rename(directory / name)
            except FileNotFoundError:
                raise self._stale(each.topic, each.partition) from None
        for directory in sorted(made, reverse=True):
            _sync(directory)

    def close(self) -> None:
        """Remove empty staging directories."""
        for topic, partition in self._taken:
            shutil.rmtree(self._side(topic, partition) / self.owner, ignore_errors=True)
            for directory in (
                self._side(topic, partition),
                self.staging,
                self.staging.parent,
            ):
                with contextlib.suppress(OSError):
                    directory.rmdir()  # fails if another owner has files there
        self._taken.clear()

    def _remove_files(
        self, topic: str, partition: int, start_offset: int, output_id: str, is_committed: bool
    ) -> None:
        own = self._side(topic, partition) / self.owner
        removed: list[Path] = []
        found = [
            (path, int(name["start"]), int(name["end"]))
            for path, name in _files(self.path, self._tag)
            if (name["topic"], int(name["partition"])) == (topic, partition)
            and (name["output"] or "") == output_id
        ]
        last = max((end for _, _, end in found), default=0)
        if not is_committed and last > start_offset:
            raise unknown_output(str(self.path), topic, partition, last)
        for path, start, end in found:
            if start >= start_offset:
                try:
                    path.rename(own / uuid.uuid4().hex)
                except FileNotFoundError:
                    raise self._stale(topic, partition) from None
                removed.append(path)
            elif end > start_offset:
                _log.warning(
                    "%s will have duplicates from offset %d on: the offsets were reset into the "
                    "middle of this file",
                    path,
                    start_offset,
                )
        if removed:
            _log.info(
                "removed %d uncommitted files of %s-%d from offset %d on",
                len(removed),
                topic,
                partition,
                start_offset,
            )
        for directory in {path.parent for path in removed}:
            _sync(directory)

    def _parents(self, directory: Path) -> list[Path]:
        """The directories between this one and the root path, which may be new."""
        return [each for each in directory.parents if each.is_relative_to(self.path)]

    def _side(self, topic: str, partition: int) -> Path:
        return self.staging / f"{topic}-{partition}"

    def _stale(self, topic: str, partition: int) -> StaleClaimError:
        return StaleClaimError(
            f"{topic}-{partition} in {self.path} was taken over under a later claim than "
            f"{self._owner.term}",
            self._owner.term,
        )


@dataclass(frozen=True, slots=True)
class _Owner:
    """A task under a claim."""

    term: Term
    task: int

    def __str__(self) -> str:
        return f"{self.term.generation}-{self.term.sequence}-{self.task}"

    @classmethod
    def parse(cls, name: str) -> "_Owner | None":
        match = re.fullmatch(r"(\d+)-(\d+)-(\d+)", name)
        return cls(Term(int(match[1]), int(match[2])), int(match[3])) if match else None

    def is_later_than(self, other: "_Owner") -> bool:
        """Sequences order the claims of one task; different tasks have different generations,
        because a partition moves between tasks only in a new generation.
        """
        if self.task != other.task:
            return self.term.generation > other.term.generation
        return self.term > other.term


def written_offsets(
    path: str, connector: str, partitions: Mapping[TopicPartition, str]
) -> dict[TopicPartition, int]:
    """The offset after the last record in the files of topic partitions, given with the ids of
    their outputs; nothing is changed.

    Raises:
        OSError: The directory cannot be read, or is outside of the worker's roots.
    """
    check_root(path)
    root = Path(os.path.realpath(path))
    found: dict[TopicPartition, int] = {}
    for _, name in _files(root, tag_of(connector)) if root.is_dir() else ():
        key = TopicPartition(name["topic"], int(name["partition"]))
        if partitions.get(key) == (name["output"] or ""):
            found[key] = max(found.get(key, 0), int(name["end"]))
    return found


def tag_of(connector: str) -> str:
    """The checksum of a connector's name in the names of its files."""
    return hashlib.blake2b(connector.encode(), digest_size=4).hexdigest()


def unknown_output(where: str, topic: str, partition: int, end_offset: int) -> UnknownOutputError:
    """The error for output without a committed offset."""
    return UnknownOutputError(
        f"{where} has the records of {topic}-{partition} up to offset {end_offset}, but no offset "
        "is committed: continue after them (drover connector offsets NAME --adopt), or leave them "
        "and write the topic again from its start (--reset)"
    )


def _suffix(output_id: str) -> str:
    return f"-{output_id}" if output_id else ""


def _files(root: Path, tag: str) -> Iterator[tuple[Path, re.Match[str]]]:
    """A connector's files, with the parts of their names."""
    for directory, subdirectories, names in os.walk(root, onerror=_raise):
        subdirectories[:] = [each for each in subdirectories if not each.startswith(".")]
        for name in names:
            match = _NAME.fullmatch(name)
            if match is not None and match["connector"] == tag:
                yield Path(directory, name), match


def _raise(error: OSError) -> None:
    raise error


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
