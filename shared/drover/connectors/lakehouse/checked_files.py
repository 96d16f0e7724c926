"""The files of Iceberg tables, within the worker's policies of files and hosts.

Locations and addresses come from the config, from the catalogue's server, and from properties of
tables, so they are checked when a file is opened.
"""

import os
import re
from typing import Any

from pyiceberg.io import PY_IO_IMPL, FileIO, InputFile, OutputFile, load_file_io
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

from drover.policy.egress import AllowedHosts, ForbiddenHostError, plain_host_of
from drover.policy.files import ForbiddenPathError, check_root

#: The library's property with the class that accesses files.
IMPLEMENTATION = PY_IO_IMPL
_LOCAL = "file"
_S3, _GCS = ("s3", "s3a", "s3n", "oss"), ("gs", "gcs")
_AZURE = ("abfs", "abfss", "wasb", "wasbs")
#: Properties with addresses, by scheme of a location. The library also has Hadoop's file system,
#: which loads a Java VM, and Hugging Face.
_ADDRESSES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_S3, ("s3.endpoint", "s3.proxy-uri", "s3.signer.uri")),
    **dict.fromkeys(_GCS, ("gcs.service.host",)),
    **dict.fromkeys(
        _AZURE,
        (
            *("adls.account-host", "adls.connection-string"),
            *("adls.blob-storage-authority", "adls.dfs-storage-authority"),
        ),
    ),
}
#: The hosts without such a property.
_HOSTS = {
    **dict.fromkeys(_S3, "s3.amazonaws.com"),
    **dict.fromkeys(_GCS, "storage.googleapis.com"),
}
_URL = re.compile(r"https?://[^\s;,]+", re.IGNORECASE)
_SHOWN_MAX_CHARS = 200


class CheckedFileIO(FileIO):
    """Opens each file after a check of its path, or of the addresses of its store."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__({k: v for k, v in properties.items() if k != IMPLEMENTATION})
        self._stores: dict[tuple[str, str], FileIO] = {}

    def new_input(self, location: str) -> InputFile:
        """A file to read.

        Raises:
            ForbiddenPathError: It is outside of the worker's roots, or in another file system.
            ForbiddenHostError: Its store is not among the allowed hosts.
        """
        return self._checked(location).new_input(location)

    def new_output(self, location: str) -> OutputFile:
        """A file to write; raises as ``new_input``."""
        return self._checked(location).new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file; raises as ``new_input``."""
        place = location if isinstance(location, str) else location.location
        self._checked(place).delete(place)

    def _checked(self, location: str) -> FileIO:
        """The library's store for a location that connectors may access."""
        scheme, host, path = PyArrowFileIO.parse_location(location, self.properties)
        if scheme == _LOCAL:  # the library opens a relative path if the URL has a host
            check_root(os.path.abspath(path))  # noqa: PTH100 - links are resolved by the check
        elif scheme not in _ADDRESSES:
            raise ForbiddenPathError(
                f"{location[:_SHOWN_MAX_CHARS]} must be on a disk, or in S3, GCS or Azure"
            )
        key = (scheme, host)
        if key not in self._stores:
            if scheme != _LOCAL:
                self._check_store(scheme, host)
            self._stores[key] = load_file_io(self.properties, location)
        return self._stores[key]

    def _check_store(self, scheme: str, host: str) -> None:
        hosts = AllowedHosts.of_worker()
        named = [str(self.properties.get(each) or "") for each in _ADDRESSES[scheme]]
        if scheme in _AZURE and "@" in host:
            named.append(host.rpartition("@")[2])
        for each in filter(None, named):
            # connection strings have several URLs; other values may lack the protocol
            for url in _URL.findall(each) or [f"https://{each}"]:
                try:
                    hosts.addresses(*plain_host_of(url))
                except ValueError as error:
                    raise ForbiddenHostError(f"the object store's address {error}") from None
        region: Any = self.properties.get("s3.region") or self.properties.get("client.region")
        default = f"s3.{region}.amazonaws.com" if scheme in _S3 and region else _HOSTS.get(scheme)
        account = self.properties.get("adls.account-name")
        if scheme in _AZURE and account and "@" not in host:
            default = f"{account}.blob.core.windows.net"
        if default is not None and not any(named) and hosts.patterns is not None:
            fault = hosts.fault(default, 443)  # also if there is no resolver for such names
            if fault is not None:
                raise ForbiddenHostError(fault)
            hosts.addresses(default, 443)


#: The class for the library's property.
CHECKED_FILES = f"{CheckedFileIO.__module__}.{CheckedFileIO.__qualname__}"
