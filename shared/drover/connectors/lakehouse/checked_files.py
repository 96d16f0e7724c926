"""The files of Iceberg tables: each local path is checked when it is opened.

A table's properties and metadata name files: a catalogue, or whoever may change a table, could name
any file of the worker.
"""

from pyiceberg.io import FileIO, InputFile, OutputFile, load_file_io
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

from drover.policy.files import ForbiddenPathError, check_root

#: The library's property with the class that accesses files.
IMPLEMENTATION = "py-io-impl"
_LOCAL = "file"
#: The library also has Hadoop's file system, which loads a Java VM, and Hugging Face.
_STORES = frozenset(
    ("s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss", "wasb", "wasbs", "oss", _LOCAL)
)
_SHOWN_MAX_CHARS = 200


class CheckedFileIO(FileIO):
    """Opens files with the library's class for their location, below the worker's roots only."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__({k: v for k, v in properties.items() if k != IMPLEMENTATION})
        self._by_scheme: dict[str, FileIO] = {}

    def new_input(self, location: str) -> InputFile:
        """A file to read.

        Raises:
            ForbiddenPathError: It is outside of the worker's roots, or in another file system.
        """
        return self._of(location).new_input(location)

    def new_output(self, location: str) -> OutputFile:
        """A file to write; raises as ``new_input``."""
        return self._of(location).new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file; raises as ``new_input``."""
        name = location if isinstance(location, str) else location.location
        self._of(name).delete(name)

    def _of(self, location: str) -> FileIO:
        scheme, _, path = PyArrowFileIO.parse_location(location)
        if scheme not in _STORES:
            raise ForbiddenPathError(
                f"{location[:_SHOWN_MAX_CHARS]} must be on a disk, or in S3, GCS or Azure"
            )
        if scheme == _LOCAL:
            check_root(path)
        found = self._by_scheme.get(scheme)
        if found is None:
            found = self._by_scheme[scheme] = load_file_io(self.properties, location)
        return found


#: The class for the library's property.
CHECKED_FILES = f"{CheckedFileIO.__module__}.{CheckedFileIO.__qualname__}"
