"""A catalogue of Iceberg in a database, within the worker's policies of hosts and files."""

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

from drover.connectors.lakehouse.checked_files import (
    CHECKED_FILES,
    IMPLEMENTATION,
    CheckedFileIO,
)
from drover.connectors.lakehouse.server_properties import ServerProperties
from drover.policy.checked_databases import restrict_engine


class CheckedSqlCatalog(SqlCatalog):
    """The library's catalogue; hosts, tables' properties and files are checked."""

    def __init__(self, name: str, **properties: str) -> None:
        self._server = ServerProperties(name)
        # the library also loads the files of new tables by this property
        super().__init__(name, **{**properties, IMPLEMENTATION: CHECKED_FILES})

    def _init_catalog(self) -> None:
        """Called before the first connection."""
        restrict_engine(self.engine)
        super()._init_catalog()

    def _load_file_io(
        self, properties: Properties = EMPTY_DICT, location: str | None = None
    ) -> FileIO:
        del location
        return CheckedFileIO({**self.properties, **self._server.checked(properties)})
