"""Text files compressed as a whole (gzip, zstd, bz2), read once from the start."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import IO, Any, Self

import pyarrow as pa

from drover.connectors.files.storage.file_identity import HEAD_BYTES, FileError
from drover.connectors.files.storage.readable_files import OpenFile

AUTO, NONE = "auto", "none"
GZIP, ZSTD, BZ2 = "gzip", "zstd", "bz2"
#: Codecs by file extension.
SUFFIXES = {".gz": GZIP, ".zst": ZSTD, ".bz2": BZ2}
#: The most text held in memory, which bounds what a small compressed file can expand to.
WINDOW_MAX_BYTES = 32 * 1024 * 1024
_READ_BYTES = 64 * 1024
_UNKNOWN_BYTES = 1 << 62


def codec_of(path: str, setting: str) -> str | None:
    """The codec of a file, from the setting or the extension; None if it is not compressed."""
    if setting == AUTO:
        return SUFFIXES.get(PurePath(path).suffix.lower())
    return None if setting == NONE else setting


def inner_name(path: str) -> str:
    """The path without its compression extension."""
    suffix = PurePath(path).suffix
    return path.removesuffix(suffix) if suffix.lower() in SUFFIXES else path


class CompressedFile:
    """The text of a compressed file as an OpenFile; positions refer to the text.

    Text is held until it is released; reads cannot go back before that point.
    """

    def __init__(self, file: OpenFile, codec: str) -> None:
        self._file = file
        # Arrow continues with the next gzip member, and detects a truncated stream
        self._stream = pa.CompressedInputStream(pa.PythonFile(file.stream(), "r"), codec)
        self._start = 0
        self._text = bytearray()
        #: Whether all readable text was read, and the error that ended it; None at a regular end.
        self.ended = False
        self.fault: str | None = None

    @property
    def size_bytes(self) -> int:
        """See OpenFile; a huge number until the size is known."""
        return self._start + len(self._text) if self.ended else _UNKNOWN_BYTES

    @property
    def compressed_bytes(self) -> int:
        """The current size of the compressed file."""
        return self._file.size_bytes

    def pread(self, length: int, at: int) -> bytes:
        """See OpenFile.

        Raises:
            FileError: The range exceeds the text that may be held.
        """
        assert at >= self._start, "it was released"
        while not self.ended and self._start + len(self._text) < at + length:
            if at > self._start + len(self._text):
                self._drop(len(self._text))
            elif len(self._text) > WINDOW_MAX_BYTES:
                raise FileError(
                    f"has a record of more than {WINDOW_MAX_BYTES} bytes, the limit for a "
                    "compressed file: unpack it"
                )
            self._read()
        first = at - self._start
        return bytes(self._text[first : first + length])

    def release(self, at: int) -> None:
        """Release the text before ``at``."""
        self._drop(min(at - self._start, len(self._text)))

    def stream(self) -> IO[bytes]:
        """Not supported; see OpenFile."""
        raise NotImplementedError

    def identity(self, head_bytes: int) -> dict[str, Any]:
        """See OpenFile: the identity of the compressed file."""
        del head_bytes
        return self._file.identity(min(HEAD_BYTES, self._file.size_bytes))

    def fingerprint(self) -> dict[str, Any]:
        """See OpenFile."""
        return self._file.fingerprint()

    def matches(self, offset: Mapping[str, Any]) -> bool:
        """See OpenFile."""
        return self._file.matches(offset)

    def __enter__(self) -> Self:
        """See OpenFile."""
        return self

    def __exit__(self, *exc: object) -> None:
        """See OpenFile."""
        self._file.__exit__(*exc)

    def _read(self) -> None:
        try:
            found = self._stream.read(_READ_BYTES)
        except FileError:
            raise
        except (OSError, pa.ArrowException) as error:
            self.fault = " ".join(str(error).split())
            found = b""
        self.ended = not found
        self._text += found

    def _drop(self, count: int) -> None:
        del self._text[:count]
        self._start += count
