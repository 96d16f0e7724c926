"""The causes of failures that plugins raise: their own, or a system's."""

import errno
import ssl
import urllib.error
from collections.abc import Sequence
from typing import Any

from drover.config.plugin_errors import error_text
from drover.connector import CredentialsRejectedError, RetriableError
from drover.connector.database_failures import DatabaseFailure, database_failure
from drover.dataplane.answers import with_causes
from drover.model.failures import FailureCause
from drover.pipeline import RecordFailedError

#: The network, a network file system, or a disk without room.
_OUTAGE_NUMBERS = frozenset(
    {
        *(errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.ESTALE),
        *(errno.ENOSPC, errno.EDQUOT),
    }
)
#: Names of client libraries' exceptions for a server that cannot be reached, or ends a connection.
#: Most have an error of the socket as their cause, but not all.
_OUTAGE_NAMES = frozenset(
    {
        *("ConnectionError", "ConnectError", "ConnectTimeout", "ConnectionTimeout"),
        *("ReadTimeout", "Timeout", "TimeoutException", "NetworkError", "RemoteProtocolError"),
        *("ConnectionFailure", "EndpointConnectionError", "NoBrokersAvailable"),
        *("ClientConnectorError", "ServerDisconnectedError"),
    }
)
_MISTRUSTED = "CERTIFICATE_VERIFY_FAILED"
_REJECTED_STATUSES = (401, 403, 407)
_BUSY_STATUSES = (408, 425, 429, 500, 502, 503, 504)


def cause_of_failure(error: BaseException) -> FailureCause:
    """Whether a system's outage or a rejection of credentials is behind ``error``, else PLUGIN.

    Recognises the exceptions of Drover, of sockets, of DB-API drivers and of SQLAlchemy, and the
    status of a failed HTTP request: plugins need not convert them. A certificate that is not
    trusted is no outage.
    """
    causes = list(with_causes(error))
    if any(isinstance(each, RecordFailedError) for each in causes):
        return FailureCause.PLUGIN
    if any(isinstance(each, CredentialsRejectedError) for each in causes):
        return FailureCause.CREDENTIALS
    if any(isinstance(each, RetriableError) for each in causes):
        return FailureCause.OUTAGE
    if any(_is_mistrusted(each) for each in causes):
        return FailureCause.PLUGIN
    return _of_libraries(causes)


def _of_libraries(causes: Sequence[BaseException]) -> FailureCause:
    """The cause that follows from the first error with a known meaning."""
    for each in causes:
        status, database = _http_status(each), database_failure(each)
        if status in _REJECTED_STATUSES or database is DatabaseFailure.LOGIN_REJECTED:
            return FailureCause.CREDENTIALS
        if status in _BUSY_STATUSES or database is DatabaseFailure.OUTAGE or _is_outage(each):
            return FailureCause.OUTAGE
        if status is not None or database is not None:
            return FailureCause.PLUGIN
    return FailureCause.PLUGIN


def _is_mistrusted(error: BaseException) -> bool:
    """Whether a certificate was not trusted; some libraries keep only the text."""
    return isinstance(error, ssl.SSLCertVerificationError) or _MISTRUSTED in error_text(error)


def _is_outage(error: BaseException) -> bool:
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    if isinstance(error, OSError) and error.errno in _OUTAGE_NUMBERS:
        return True
    # gaierror is raised by sockets, herror by libraries that resolve names themselves
    return any(
        each.__name__ in _OUTAGE_NAMES or each.__name__ in ("gaierror", "herror")
        for each in type(error).__mro__
    )


def _http_status(error: BaseException) -> int | None:
    """The status of the response that a client library turned into ``error``."""
    if isinstance(error, urllib.error.HTTPError):
        return error.code
    response: Any = getattr(error, "response", None)
    for found in (
        getattr(response, "status_code", None),
        getattr(response, "status", None),
        getattr(error, "status", None),
    ):
        if isinstance(found, int) and 400 <= found < 600:
            return found
    return None
