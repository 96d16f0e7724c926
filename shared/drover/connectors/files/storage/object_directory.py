"""A directory of an object store to which the files of each topic partition are added exactly once.

Objects cannot be renamed, and a suspended owner could keep a lock. Each topic partition therefore
has a log beside the files, ``.drover/CONNECTOR/TOPIC-PARTITION/log/N``. Its entries are created
only if absent; an entry has the next files, their end offset and the writer. Files are first
uploaded below ``staged``, which readers ignore. The entry commits them; then they are copied to
their final places, which the next owner repeats if the writer died. A task that takes over a topic
partition appends an entry: an earlier owner then finds its number used or a later entry, and
publishes no file.

An entry contains the whole state, so earlier entries are removed.
"""

import hashlib
import json
import logging
import re
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

from drover.connector import RetriableError, StaleClaimError, Term
from drover.connectors.files.storage.object_store import (
    ObjectPlace,
    ObjectStoreError,
    translated_errors,
)
from drover.connectors.files.storage.output_directory import StagedFile

_SIDE = ".drover"
_ATTEMPTS = 10
_PARALLEL = 8

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FileNaming:
    """The names of files: ``template`` has topic, partition, start, end, tag and extension.

    ``pattern`` extracts the topic, partition and start from a name.
    """

    template: str
    pattern: re.Pattern[str]

    def name(self, file: StagedFile, tag: str, extension: str) -> str:
        """The name of a file."""
        return self.template.format(
            topic=file.topic,
            partition=file.partition,
            start=file.start_offset,
            end=file.end_offset,
            tag=tag,
            extension=extension,
        )

    def start_of(self, name: str, topic: str, partition: int, tag: str) -> int | None:
        """The start offset in a file name of this topic partition and connector; else None."""
        match = self.pattern.fullmatch(name)
        if match is None or (match["topic"], int(match["partition"])) != (topic, partition):
            return None
        if match.groupdict().get("tag", tag) != tag:
            return None
        return int(match["start"])


#: The same names as in directories on disks.
OWN_NAMES = FileNaming(
    "{topic}-{partition}-{start:020d}-{end:020d}-{tag}.{extension}",
    re.compile(
        r"(?P<topic>.+)-(?P<partition>\d+)-(?P<start>\d{20})-\d{20}-(?P<tag>\w{8})\.[a-z0-9.]+"
    ),
)
#: The names of Confluent's connectors.
CONFLUENT_NAMES = FileNaming(
    "{topic}+{partition}+{start:010d}.{extension}",
    re.compile(r"(?P<topic>.+)\+(?P<partition>\d+)\+(?P<start>\d{10,})\.[a-z0-9.]+"),
)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A log entry: ``files`` are staged objects and their final places, perhaps not copied yet."""

    number: int
    owner: str
    id: str
    end_offset: int
    files: tuple[tuple[str, str], ...] = ()

    def encoded(self) -> bytes:
        fields = {
            "owner": self.owner,
            "id": self.id,
            "end_offset": self.end_offset,
            "files": self.files,
        }
        return json.dumps(fields).encode()

    @classmethod
    def decoded(cls, number: int, data: bytes) -> "_Entry":
        fields: Mapping[str, Any] = json.loads(data)
        files = tuple((staged, place) for staged, place in fields["files"])
        return cls(number, fields["owner"], fields["id"], fields["end_offset"], files)


@dataclass(frozen=True, slots=True)
class ObjectStaging:
    """The staging area in the object store. Executors write to unnamed files on their local disk,
    which vanish with the process, and upload them when complete. Picklable.
    """

    place: ObjectPlace
    prefix: str

    def create(self, topic: str, partition: int, name: str) -> IO[bytes]:
        """A new file to write."""
        return tempfile.TemporaryFile()

    def keep(self, file: IO[bytes], topic: str, partition: int, name: str) -> None:
        """Upload a completely written file."""
        import obstore

        file.seek(0)
        path = f"{self.prefix}/{topic}-{partition}/staged/{name}"
        with translated_errors(self.place, "uploading"):
            obstore.put(self.place.store(), path, file)

    def discard(self, topic: str, partition: int, name: str) -> None:
        """Do nothing: the next owner of the topic partition removes staged files."""


class ObjectDirectory:
    """The files of one connector below a URL, from the view of one owner."""

    def __init__(
        self,
        place: ObjectPlace,
        *,
        connector: str,
        claim: Term,
        extension: str,
        naming: FileNaming = OWN_NAMES,
    ) -> None:
        self._place = place
        self._tag = hashlib.blake2b(connector.encode(), digest_size=4).hexdigest()
        # has the log of each topic partition, and staged files
        self._own = f"{_SIDE}/{self._tag}"
        self._owner = str(claim)
        self._extension = extension
        self._naming = naming
        self._heads: dict[tuple[str, int], _Entry] = {}

    def staged(self) -> ObjectStaging:
        """The staging area for executors."""
        return ObjectStaging(self._place, self._own)

    def check_owner(self, topic: str, partition: int) -> None:
        """Do nothing: publishing detects that another task has taken over."""

    def close(self) -> None:
        """Do nothing."""

    def take_over(self, topic: str, partition: int, start_offset: int) -> int:
        """Become the owner of a topic partition; returns the offset up to which files exist.

        That is ``start_offset``, or later when files were published and their offsets not
        committed.

        Raises:
            StaleClaimError: Other tasks keep taking it over.
        """
        side = self._side(topic, partition)
        with translated_errors(self._place, f"taking {topic}-{partition} over"):
            for _ in range(_ATTEMPTS):
                head = self._head(side)
                end_offset = start_offset if head is None else max(start_offset, head.end_offset)
                own = self._append(side, head, end_offset, () if head is None else head.files)
                if own is not None:
                    break
            else:
                raise self._stale(topic, partition)
            self._put_in_place(own)
            left = [
                each["path"]
                for each in self._listed(f"{side}/staged")
                # an upload in progress now belongs to a stale owner, which will detect that
            ]
            self._delete([*left, *self._entries_before(side, own.number)])
        self._heads[topic, partition] = own
        if end_offset > start_offset:
            _log.warning(
                "%s-%d: offsets %d to %d were written and not committed: they are skipped",
                *(topic, partition, start_offset, end_offset - 1),
            )
        return end_offset

    def publish(self, files: Iterable[StagedFile]) -> None:
        """Publish files; durable when it returns.

        Raises:
            StaleClaimError: An owner with another claim has the topic partition.
        """
        by_partition: dict[tuple[str, int], list[StagedFile]] = {}
        for each in files:
            by_partition.setdefault((each.topic, each.partition), []).append(each)
        if not by_partition:
            return
        with (
            translated_errors(self._place, "writing"),
            ThreadPoolExecutor(min(_PARALLEL, len(by_partition))) as pool,
        ):
            list(pool.map(lambda each: self._publish(*each), by_partition.items()))

    def set_back(self, topic: str, partition: int, offset: int) -> None:
        """Discard files from an offset on: removes files that start there or later.

        Call it only while no task runs.

        Raises:
            StaleClaimError: A task runs.
        """
        side = self._side(topic, partition)
        with translated_errors(self._place, f"setting {topic}-{partition} back"):
            head = self._head(side)
            if head is None:
                return
            self._put_in_place(head)
            # the entry first: a lower position is harmless, missing files are not
            if self._append(side, head, offset, ()) is None:
                raise self._stale(topic, partition)
            removed = [
                each["path"]
                for each in self._listed("")
                if not each["path"].startswith(f"{_SIDE}/")
                and (start := self._start_of(each["path"], topic, partition)) is not None
                and start >= offset
            ]
            self._delete(removed)

    def partitions(self) -> list[tuple[str, int]]:
        """The topic partitions that have files."""
        with translated_errors(self._place, "listing"):
            names = {each["path"].split("/")[-3] for each in self._listed(self._own)}
        found = (re.fullmatch(r"(.+)-(\d+)", name) for name in sorted(names))
        return [(match[1], int(match[2])) for match in found if match is not None]

    def probe(self) -> None:
        """Check all operations on files with a temporary object.

        Raises:
            ObjectStoreError: An operation is refused, or the store does not support creating an
                object only if it is absent.
        """
        store, path = self._place.store(), f"{self._own}/probe-{uuid.uuid4().hex}"
        import obstore
        from obstore.exceptions import AlreadyExistsError

        with translated_errors(self._place, "trying whether files can be written"):
            obstore.put(store, path, b"", mode="create")
            try:
                obstore.put(store, path, b"", mode="create")
            except AlreadyExistsError:
                return
            finally:
                obstore.copy(store, path, f"{path}-copy")
                list(obstore.list(store, self._own))
                self._delete([path, f"{path}-copy"])
            raise ObjectStoreError(
                f"{self._place.url}: the store overwrites objects that should be created only once "
                "(If-None-Match), so concurrent writers are not detected: use a newer version of it"
            )

    def _publish(self, key: tuple[str, int], files: Sequence[StagedFile]) -> None:
        topic, partition = key
        side, head = self._side(topic, partition), self._heads[key]
        pairs = tuple((f"{side}/staged/{each.staged}", self._path_of(each)) for each in files)
        own = self._append(side, head, max(each.end_offset for each in files), pairs)
        if own is None:
            self._delete([staged for staged, _ in pairs])
            raise self._stale(topic, partition)
        if any(number > own.number for number, _ in self._numbers(side)):
            # the number was free because a later owner had removed the entry
            self._delete([_log_path(side, own.number), *(staged for staged, _ in pairs)])
            raise self._stale(topic, partition)
        self._put_in_place(own)
        self._heads[key] = own
        self._delete([_log_path(side, head.number), *(staged for staged, _ in pairs)])

    def _append(
        self,
        side: str,
        head: _Entry | None,
        end_offset: int,
        files: tuple[tuple[str, str], ...],
    ) -> _Entry | None:
        """Append an entry; None if its number is used."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        number = 1 if head is None else head.number + 1
        own = _Entry(number, self._owner, uuid.uuid4().hex, end_offset, files)
        path = _log_path(side, number)
        try:
            obstore.put(self._place.store(), path, own.encoded(), mode="create")
        except AlreadyExistsError:
            # the client repeats a request after a lost answer, and then finds its own entry
            found = self._entry(number, path)
            return own if found is not None and found.id == own.id else None
        return own

    def _head(self, side: str) -> _Entry | None:
        for _ in range(_ATTEMPTS):
            numbers = self._numbers(side)
            if not numbers:
                return None
            found = self._entry(*max(numbers))
            if found is not None:
                return found
        raise RetriableError(f"{self._place.url}: {side} changes too often to be read")

    def _numbers(self, side: str) -> list[tuple[int, str]]:
        paths = (each["path"] for each in self._listed(f"{side}/log"))
        return [(int(path.rpartition("/")[2]), path) for path in paths]

    def _entries_before(self, side: str, number: int) -> list[str]:
        return [path for each, path in self._numbers(side) if each < number]

    def _put_in_place(self, entry: _Entry) -> None:
        import obstore

        store = self._place.store()
        for staged, place in entry.files:
            try:
                obstore.copy(store, staged, place)
            except FileNotFoundError:
                obstore.head(store, place)  # it was copied before

    def _entry(self, number: int, path: str) -> _Entry | None:
        """An entry of a log; None if its owner has removed it after a later one."""
        import obstore

        try:
            data = bytes(obstore.get(self._place.store(), path).bytes())
        except FileNotFoundError:
            return None
        return _Entry.decoded(number, data)

    def _listed(self, prefix: str) -> Iterator[Any]:
        import obstore

        for each in obstore.list(self._place.store(), prefix or None, chunk_size=1000):
            yield from each

    def _delete(self, paths: list[str]) -> None:
        import obstore

        if not paths:
            return
        store = self._place.store()
        try:
            obstore.delete(store, paths)
        except FileNotFoundError:
            # Google's and Azure's stores raise for a missing object, unlike S3, and may skip the
            # others
            for each in paths:
                with suppress(FileNotFoundError):
                    obstore.delete(store, each)

    def _path_of(self, file: StagedFile) -> str:
        name = self._naming.name(file, self._tag, self._extension)
        return f"{file.directory}/{name}" if file.directory else name

    def _start_of(self, path: str, topic: str, partition: int) -> int | None:
        return self._naming.start_of(path.rpartition("/")[2], topic, partition, self._tag)

    def _side(self, topic: str, partition: int) -> str:
        return f"{self._own}/{topic}-{partition}"

    def _stale(self, topic: str, partition: int) -> StaleClaimError:
        return StaleClaimError(
            f"{topic}-{partition} in {self._place.url} was taken over by another task: the "
            f"claim {self._owner} is stale",
            self._owner,
        )


def _log_path(side: str, number: int) -> str:
    return f"{side}/log/{number:020d}"
