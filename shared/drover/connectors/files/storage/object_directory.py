"""A directory of an object store to which the files of each topic partition are added exactly once.

Objects cannot be renamed, and a suspended owner could keep a lock. Each topic partition therefore
has a log beside the files, ``.drover/CONNECTOR/TOPIC-PARTITION/log/N``. Its entries are created
only if absent; an entry has the next files, their end offset and the writer. Files are first
uploaded below ``staged``, which readers ignore. The entry commits them; then they are copied to
their final places, which the next owner repeats if the writer died. A task that takes over a topic
partition appends an entry: an earlier owner then finds its number used or a later entry, and
publishes no file.

An entry contains the whole state, so earlier entries are removed. It has the end offset of each
output of the topic partition: an output with another id begins when the topic was created again or
its offsets were reset. Files of earlier outputs stay.
"""

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

from drover.connector import RetriableError, StaleClaimError, Term, TopicPartition
from drover.connectors.files.storage.object_store import (
    ObjectPlace,
    ObjectStoreError,
    translated_errors,
)
from drover.connectors.files.storage.output_directory import (
    StagedFile,
    tag_of,
    unknown_output,
)

_SIDE = ".drover"
_ATTEMPTS = 10
_PARALLEL = 8

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NamedFile:
    """The parts of a file's name. ``end_offset`` is at least the offset after its first record."""

    topic: str
    partition: int
    output_id: str
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class FileNaming:
    """The names of files: ``template`` has topic, partition, start, end, tag, output and extension.

    ``output`` is empty for the first output of a topic partition, and a hyphen and the id for
    others. ``pattern`` extracts the topic, partition, start and output from a name.
    """

    template: str
    pattern: re.Pattern[str]

    def name(self, file: StagedFile, tag: str, output_id: str, extension: str) -> str:
        """The name of a file."""
        return self.template.format(
            topic=file.topic,
            partition=file.partition,
            start=file.start_offset,
            end=file.end_offset,
            tag=tag,
            output=f"-{output_id}" if output_id else "",
            extension=extension,
        )

    def parsed(self, name: str, tag: str) -> NamedFile | None:
        """The parts of a file name of this connector; else None."""
        match = self.pattern.fullmatch(name)
        parts = {} if match is None else match.groupdict()
        if match is None or parts.get("tag", tag) != tag:
            return None
        start = int(match["start"])
        return NamedFile(
            match["topic"],
            int(match["partition"]),
            match["output"] or "",
            start,
            int(parts.get("end", start + 1)),
        )


#: The same names as in directories on disks.
OWN_NAMES = FileNaming(
    "{topic}-{partition}-{start:020d}-{end:020d}-{tag}{output}.{extension}",
    re.compile(
        r"(?P<topic>.+)-(?P<partition>\d+)-(?P<start>\d{20})-(?P<end>\d{20})-(?P<tag>\w{8})"
        r"(?:-(?P<output>[0-9a-f]{8}))?\.[a-z0-9.]+"
    ),
)
#: The names of Confluent's connectors. Its S3 source reads names that match (.+)\+(\d+)\+.+$ as
#: topic and partition, which the hyphen before an output's id keeps.
CONFLUENT_NAMES = FileNaming(
    "{topic}+{partition}+{start:010d}{output}.{extension}",
    re.compile(
        r"(?P<topic>.+)\+(?P<partition>\d+)\+(?P<start>\d{10,})"
        r"(?:-(?P<output>[0-9a-f]{8}))?\.[a-z0-9.]+"
    ),
)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A log entry: ``files`` are staged objects and their final places, perhaps not copied yet.

    ``earlier`` has the ids and end offsets of other outputs.
    """

    number: int
    owner: str
    id: str
    end_offset: int
    files: tuple[tuple[str, str], ...] = ()
    output_id: str = ""
    earlier: tuple[tuple[str, int], ...] = ()

    def ends(self) -> dict[str, int]:
        """The end offsets of all outputs."""
        return {**dict(self.earlier), self.output_id: self.end_offset}

    def encoded(self) -> bytes:
        fields = {
            "owner": self.owner,
            "id": self.id,
            "end_offset": self.end_offset,
            "files": self.files,
            "output_id": self.output_id,
            "earlier": self.earlier,
        }
        return json.dumps(fields).encode()

    @classmethod
    def decoded(cls, number: int, data: bytes) -> "_Entry":
        fields: Mapping[str, Any] = json.loads(data)
        return cls(
            number,
            fields["owner"],
            fields["id"],
            fields["end_offset"],
            tuple((staged, place) for staged, place in fields["files"]),
            fields.get("output_id", ""),
            tuple((output_id, end) for output_id, end in fields.get("earlier", ())),
        )


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
        self._tag = tag_of(connector)
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

    def take_over(
        self,
        topic: str,
        partition: int,
        start_offset: int,
        *,
        output_id: str = "",
        is_committed: bool = True,
    ) -> int:
        """Become the owner of a topic partition; returns the offset up to which files of its output
        exist.

        That is ``start_offset``, or later when files were published and their offsets not
        committed.

        Raises:
            StaleClaimError: Other tasks keep taking it over.
            UnknownOutputError: It has files from ``start_offset`` on, which is not committed.
        """
        side = self._side(topic, partition)
        with translated_errors(self._place, f"taking {topic}-{partition} over"):
            for _ in range(_ATTEMPTS):
                head = self._head(side)
                written = 0 if head is None else head.ends().get(output_id, 0)
                if not is_committed and written > start_offset:
                    raise unknown_output(self._place.url, topic, partition, written)
                end_offset = max(start_offset, written)
                files = () if head is None else head.files
                own = self._append(side, head, output_id, end_offset, files)
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
        """Discard files of the present output from an offset on: removes files that start there or
        later.

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
            if self._append(side, head, head.output_id, offset, ()) is None:
                raise self._stale(topic, partition)
            own = (topic, partition, head.output_id)
            removed = [
                path
                for path, file in self._named_files()
                if (file.topic, file.partition, file.output_id) == own
                and file.start_offset >= offset
            ]
            self._delete(removed)

    def written_offsets(
        self, partitions: Mapping[TopicPartition, str]
    ) -> dict[TopicPartition, int]:
        """The offset after the last record in the files of topic partitions, given with the ids of
        their outputs; nothing is changed.

        Files without a log, as of Confluent's connector, have only their first offset in their
        names: the result is at least the offset after it.
        """
        found: dict[TopicPartition, int] = {}
        unlogged = set[TopicPartition]()
        with translated_errors(self._place, "reading what was written"):
            for key, output_id in partitions.items():
                head = self._head(self._side(*key))
                if head is None:
                    unlogged.add(key)
                elif head.ends().get(output_id, 0) > 0:
                    found[key] = head.ends()[output_id]
            for _, file in self._named_files() if unlogged else ():
                key = TopicPartition(file.topic, file.partition)
                if key in unlogged and partitions[key] == file.output_id:
                    found[key] = max(found.get(key, 0), file.end_offset)
        return found

    def probe(self) -> None:
        """Check all operations on files with a temporary object.

        Raises:
            ObjectStoreError: An operation is refused, or the store does not support creating an
                object only if it is absent.
        """
        store, path = self._place.store(), f"{self._own}/probe-{uuid.uuid4().hex}"
        import obstore
        from obstore.exceptions import AlreadyExistsError

        with translated_errors(self._place, "trying to create an object"):
            obstore.put(store, path, b"", mode="create")
        is_exclusive, written = False, [path]
        try:
            with translated_errors(self._place, "trying to create an object twice"):
                try:
                    obstore.put(store, path, b"", mode="create")
                except AlreadyExistsError:
                    is_exclusive = True
            with translated_errors(self._place, "trying to read an object"):
                obstore.get(store, path).bytes()
            with translated_errors(self._place, "trying to copy an object"):
                obstore.copy(store, path, f"{path}-copy")
                written.append(f"{path}-copy")
            with translated_errors(self._place, "trying to list objects"):
                list(obstore.list(store, self._own))
        finally:
            with translated_errors(self._place, "trying to delete objects"):
                self._delete(written)
        if not is_exclusive:
            raise ObjectStoreError(
                f"{self._place.url}: the store overwrites objects that should be created only once "
                "(If-None-Match), so concurrent writers are not detected: use a newer version of it"
            )

    def _publish(self, key: tuple[str, int], files: Sequence[StagedFile]) -> None:
        topic, partition = key
        side, head = self._side(topic, partition), self._heads[key]
        pairs = tuple(
            (f"{side}/staged/{each.staged}", self._path_of(each, head.output_id)) for each in files
        )
        end_offset = max(each.end_offset for each in files)
        own = self._append(side, head, head.output_id, end_offset, pairs)
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
        output_id: str,
        end_offset: int,
        files: tuple[tuple[str, str], ...],
    ) -> _Entry | None:
        """Append an entry; None if its number is used."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        number = 1 if head is None else head.number + 1
        ends = {} if head is None else head.ends()
        earlier = tuple(each for each in ends.items() if each[0] != output_id)
        name = uuid.uuid4().hex
        own = _Entry(number, self._owner, name, end_offset, files, output_id, earlier)
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

    def _path_of(self, file: StagedFile, output_id: str) -> str:
        name = self._naming.name(file, self._tag, output_id, self._extension)
        return f"{file.directory}/{name}" if file.directory else name

    def _named_files(self) -> Iterator[tuple[str, NamedFile]]:
        """This connector's files, with the parts of their names."""
        for each in self._listed(""):
            path = each["path"]
            file = self._naming.parsed(path.rpartition("/")[2], self._tag)
            if file is not None and not path.startswith(f"{_SIDE}/"):
                yield path, file

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
