"""A REST catalogue of Iceberg with timeouts, within the worker's policies of hosts and files."""

from functools import partial

from pyiceberg.catalog import URI
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.rest.auth import AUTH_MANAGER
from pyiceberg.io import FileIO
from pyiceberg.typedef import EMPTY_DICT, Properties
from requests import Session

from drover.connectors.lakehouse.checked_files import (
    CHECKED_FILES,
    IMPLEMENTATION,
    CheckedFileIO,
)
from drover.connectors.lakehouse.server_properties import ServerProperties
from drover.policy.checked_requests import restrict_session

#: Timeouts for connecting, and for the next bytes.
TIMEOUTS_S = (10.0, 60.0)


class TimedRestCatalog(RestCatalog):
    """The library's catalogue with timeouts: without them a call could block forever.

    Properties from the server pass the allow-list, and files of tables are checked.
    """

    def __init__(self, name: str, **properties: str) -> None:
        self._server = ServerProperties(name)
        super().__init__(name, **properties)

    def _config_headers(self, session: Session) -> None:
        """Called once per session, before the login; sets timeouts and policies."""
        super()._config_headers(session)
        restrict_session(session)
        session.request = partial(  # type: ignore[method-assign]
            session.request, timeout=TIMEOUTS_S
        )

    def _fetch_config(self) -> None:
        """Called before the session is made; the library only merges the properties here."""
        own = dict(self.properties)
        super()._fetch_config()
        sent = {n: value for n, value in self.properties.items() if own.get(n) != value}
        self.properties = {**own, **self._server.checked(sent), IMPLEMENTATION: CHECKED_FILES}
        self.uri = self.properties[URI]

    def _init_sigv4(self, session: Session) -> None:
        super()._init_sigv4(session)
        restrict_session(session)  # also the adapter that signs

    def _load_file_io(
        self, properties: Properties = EMPTY_DICT, location: str | None = None
    ) -> FileIO:
        del location
        manager = {AUTH_MANAGER: self._auth_manager} if self._auth_manager else {}
        return CheckedFileIO({**self.properties, **self._server.checked(properties), **manager})
