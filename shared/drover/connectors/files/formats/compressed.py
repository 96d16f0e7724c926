"""Text that is compressed as a whole: gzip, zstd, bz2. It is read from its start on, once."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import IO, Any, Self

import pyarrow as pa

from drover.connectors.files.storage.file_identity import HEAD_BYTES, FileError
from drover.connectors.files.storage.readable_files import OpenFile

AUTO, NONE = "auto", "none"
GZIP, ZSTD, BZ2 = "gzip", "zstd", "bz2"
#: How names end whose files are compressed.
SUFFIXES = {".gz": GZIP, ".zst": ZSTD, ".bz2": BZ2}
#: So much text is held at most, so that a small file cannot become more than memory holds.
WINDOW_MAX_BYTES = 32 * 1024 * 1024
_READ_BYTES = 64 * 1024
_UNKNOWN_BYTES = 1 << 62


def codec_of(path: str, setting: str) -> str | None:
    """How a file is compressed, by the setting or by how its name ends; None when it is not."""
    if setting == AUTO:
        return SUFFIXES.get(PurePath(path).suffix.lower())
    return None if setting == NONE else setting


def inner_name(path: str) -> str:
    """A path without the suffix that says how its file is compressed."""
    suffix = PurePath(path).suffix
    return path.removesuffix(suffix) if suffix.lower() in SUFFIXES else path


class CompressedFile:
    """The text of a compressed file as an OpenFile: places are those in the text.

    What was read stays until it is released; only what comes behind it can be read then.
    """

    def __init__(self, file: OpenFile, codec: str) -> None:
        self._file = file
        # Arrow goes on with the next member of gzip, and tells a stream that is cut off
        self._stream = pa.CompressedInputStream(pa.PythonFile(file.stream(), "r"), codec)
        self._start = 0
        self._text = bytearray()
        #: Whether all text that can be read was read, and why there is no more; None at a good end.
        self.ended = False
        self.fault: str | None = None

    @property
    def size_bytes(self) -> int:
        """See OpenFile; more than there can be while it is not known."""
        return self._start + len(self._text) if self.ended else _UNKNOWN_BYTES

    @property
    def compressed_bytes(self) -> int:
        """How large the file is now."""
        return self._file.size_bytes

    def pread(self, length: int, at: int) -> bytes:
        """See OpenFile.

        Raises:
            FileError: that is more than is held.
        """
        assert at >= self._start, "it was released"
        while not self.ended and self._start + len(self._text) < at + length:
            if at > self._start + len(self._text):
                self._drop(len(self._text))
            elif len(self._text) > WINDOW_MAX_BYTES:
                raise FileError(
                    f"has a record of more than {WINDOW_MAX_BYTES} bytes, which is the most in a "
                    "compressed file: unpack it"
                )
            self._read()
        first = at - self._start
        return bytes(self._text[first : first + length])

    def release(self, at: int) -> None:
        """Forget the text before ``at``."""
        self._drop(min(at - self._start, len(self._text)))

    def stream(self) -> IO[bytes]:
        """See OpenFile; text is not read this way."""
        raise NotImplementedError

    def identity(self, head_bytes: int) -> dict[str, Any]:
        """See OpenFile: that of the compressed file."""
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
