"""A REST catalogue of Iceberg whose server may fall silent."""

from functools import partial

from pyiceberg.catalog.rest import RestCatalog
from requests import Session

#: To connect, and to wait for the next bytes.
TIMEOUTS_S = (10.0, 60.0)


class TimedRestCatalog(RestCatalog):
    """The library's, which by itself waits for ever: a task would never end then."""

    def _config_headers(self, session: Session) -> None:
        """The first thing that is done with a session, before it logs in."""
        super()._config_headers(session)
        session.request = partial(  # type: ignore[method-assign]
            session.request, timeout=TIMEOUTS_S
        )
