"""Reads objects of a store as files."""

import fnmatch
import glob
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Self, cast

from drover.connector import whole_matcher
from drover.connectors.files.storage.file_identity import FileError
from drover.connectors.files.storage.object_store import ObjectPlace, translated_errors
from drover.connectors.files.storage.readable_files import FileReference, Look, OpenFile

#: The size of one request.
_AHEAD_BYTES = 2 * 1024 * 1024


class ObjectFiles:
    """The objects of a URL: a single one, a directory, or a glob.

    Only ``find`` checks for changes: an object does not grow, and a new version has another entity
    tag.
    """

    def __init__(self, url: str, options: tuple[tuple[str, str], ...]) -> None:
        self._url = url
        self._options = options
        self._found: dict[str, _Object] = {}

    def find(self, *, by_time: bool) -> Sequence[str]:
        """See Files.

        Raises:
            ObjectStoreError: The store refuses the request.
            RetriableError: The store is unavailable.
        """
        self._found = {each.path: each for each in self._list()}
        return sorted(
            self._found,
            key=lambda path: (self._found[path].modified_ns if by_time else 0, path),
        )

    def look(self, path: str) -> Look | None:
        """See Files."""
        found = self._found.get(path)
        return None if found is None else Look((found.size_bytes, found.tag), 0)

    def open(self, path: str) -> OpenFile:
        """See Files."""
        found = self._found[path]
        return ObjectFile(found.place, found.name, found.tag, found.size_bytes)

    def reference(self, path: str, identity: Mapping[str, Any]) -> FileReference:
        """See Files."""
        found = self._found[path]
        return ObjectReference(path, found.place, found.name, identity["etag"], identity["size"])

    def _list(self) -> "list[_Object]":
        base, pattern = _split(self._url)
        place = ObjectPlace(base, self._options)
        with translated_errors(place, "listing objects"):
            import obstore  # inside: a missing library becomes an ObjectStoreError

            if pattern is None:
                metas = list(obstore.list_with_delimiter(place.store())["objects"])
                wanted = [each for each in metas if not each["path"].startswith((".", "_"))]
                return [_Object.of(place, each) for each in wanted] or self._single()
            matches = whole_matcher(pattern, self._url)
            return [
                _Object.of(place, each)
                for batch in obstore.list(place.store())
                for each in batch
                if matches(each["path"])
            ]

    def _single(self) -> "list[_Object]":
        """The object of the URL, if it exists."""
        import obstore

        base, _, name = self._url.rpartition("/")
        if "://" not in base or base.endswith("/"):
            return []
        place = ObjectPlace(base, self._options)
        with translated_errors(place, "listing objects"):
            try:
                return [_Object.of(place, obstore.head(place.store(), name))]
            except FileNotFoundError:
                return []


@dataclass(frozen=True, slots=True)
class _Object:
    place: ObjectPlace
    name: str
    size_bytes: int
    tag: str
    modified_ns: int

    @classmethod
    def of(cls, place: ObjectPlace, meta: Any) -> "_Object":
        modified = meta["last_modified"]
        tag = meta["e_tag"] or str(modified)
        modified_ns = int(modified.timestamp() * 1_000_000_000)
        return cls(place, meta["path"], meta["size"], tag, modified_ns)

    @property
    def path(self) -> str:
        return f"{self.place.url.rstrip('/')}/{self.name}"


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """An object with planned pieces."""

    path: str
    place: ObjectPlace
    name: str
    tag: str
    size_bytes: int

    def open(self) -> OpenFile:
        """See FileReference."""
        return ObjectFile(self.place, self.name, self.tag, self.size_bytes)


class ObjectFile:
    """An object with the given entity tag, read by byte ranges; fails if the tag has changed."""

    def __init__(self, place: ObjectPlace, name: str, tag: str, size_bytes: int) -> None:
        self._place = place
        self._name = name
        self._tag = tag
        self._size_bytes = size_bytes
        self._block_at = 0
        self._block = b""
        self._stream: _Stream | None = None

    @property
    def size_bytes(self) -> int:
        """See OpenFile."""
        return self._size_bytes

    def pread(self, length: int, at: int) -> bytes:
        """See OpenFile.

        Raises:
            FileError: The object was removed or replaced.
            ObjectStoreError: The store refuses the request.
            RetriableError: The store is unavailable.
        """
        end = min(at + length, self._size_bytes)
        if at >= end:
            return b""
        if at < self._block_at or end > self._block_at + len(self._block):
            upto = min(max(end, at + _AHEAD_BYTES), self._size_bytes)
            self._block, self._block_at = self._get(at, upto), at
        return self._block[at - self._block_at : end - self._block_at]

    def stream(self) -> IO[bytes]:
        """See OpenFile."""
        if self._stream is None:
            self._stream = _Stream(self)
        return cast("IO[bytes]", self._stream)

    def identity(self, head_bytes: int) -> dict[str, Any]:
        """See OpenFile."""
        del head_bytes
        return self.fingerprint()

    def fingerprint(self) -> dict[str, Any]:
        """See OpenFile."""
        return {"size": self._size_bytes, "etag": self._tag}

    def matches(self, offset: Mapping[str, Any]) -> bool:
        """See OpenFile."""
        return self.fingerprint().items() <= offset.items()

    def __enter__(self) -> Self:
        """See OpenFile."""
        return self

    def __exit__(self, *exc: object) -> None:
        """See OpenFile."""
        if self._stream is not None:
            self._stream.close()

    def _get(self, start: int, end: int) -> bytes:
        import obstore
        from obstore.exceptions import PreconditionError

        with translated_errors(self._place, f"reading {self._name}"):
            try:
                options: Any = {"range": (start, end), "if_match": self._tag}
                return bytes(obstore.get(self._place.store(), self._name, options=options).bytes())
            except (FileNotFoundError, PreconditionError):
                raise FileError("was removed or replaced while it was read") from None


class _Stream(io.RawIOBase):
    """The object as a file for libraries."""

    def __init__(self, file: ObjectFile) -> None:
        self._file = file
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size_bytes}[whence]
        self._at = start + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        data = self._file.pread(len(buffer), self._at)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def _split(url: str) -> tuple[str, str | None]:
    """The part of a URL without wildcards, and a regular expression for the rest."""
    scheme, _, rest = url.partition("://")
    parts = rest.split("/")
    fixed = next((n for n, part in enumerate(parts) if glob.has_magic(part)), None)
    if fixed is None:
        return url.rstrip("/"), None
    base = "/".join(parts[:fixed])
    return f"{scheme}://{base}", _pattern(parts[fixed:])


def _pattern(parts: Sequence[str]) -> str:
    """The regular expression of a glob; ``**`` matches any number of directories."""
    texts = []
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if part == "**":
            texts.append(".*" if last else "(?:[^/]+/)*")
        else:
            own = fnmatch.translate(part).removeprefix("(?s:").removesuffix(r")\Z")
            texts.append(own.replace(".*", "[^/]*") + ("" if last else "/"))
    return "".join(texts)
