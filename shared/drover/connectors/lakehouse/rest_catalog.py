"""A REST catalogue of Iceberg with timeouts."""

from functools import partial

from pyiceberg.catalog.rest import RestCatalog
from requests import Session

#: Timeouts for connecting, and for the next bytes.
TIMEOUTS_S = (10.0, 60.0)


class TimedRestCatalog(RestCatalog):
    """The library's catalogue with timeouts: without them a call could block forever."""

    def _config_headers(self, session: Session) -> None:
        """Called once per session, before the login; sets the timeouts."""
        super()._config_headers(session)
        session.request = partial(  # type: ignore[method-assign]
            session.request, timeout=TIMEOUTS_S
        )
