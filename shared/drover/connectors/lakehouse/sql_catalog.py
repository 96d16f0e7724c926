"""A catalogue of Iceberg in a database."""

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

from drover.connectors.lakehouse.checked_files import CHECKED_FILES, IMPLEMENTATION
from drover.connectors.lakehouse.server_properties import ServerProperties


class CheckedSqlCatalog(SqlCatalog):
    """The library's catalogue; tables' properties and files are checked."""

    def __init__(self, name: str, **properties: str) -> None:
        self._server = ServerProperties(name)
        super().__init__(name, **{**properties, IMPLEMENTATION: CHECKED_FILES})

    def _load_file_io(
        self, properties: Properties = EMPTY_DICT, location: str | None = None
    ) -> FileIO:
        return super()._load_file_io(self._server.checked(properties), location)
