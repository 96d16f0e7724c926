"""Errors of Iceberg's library, without text that a server sent."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from drover.connector import DatabaseFailure, RetriableError, database_failure
from drover.connectors.lakehouse.fitted_rows import TableAccessError, TableError
from drover.connectors.lakehouse.rows import EXTRA
from drover.connectors.refused_records import RefusedRecordError
from drover.policy.egress import forbidden_host
from drover.policy.files import ForbiddenPathError
from drover.policy.foreign_errors import causes_of, connection_text, response_text

#: Pyarrow's messages for an S3 store that is away or busy.
_AWAY = re.compile(
    r"AWS Error (NETWORK_CONNECTION|SERVICE_UNAVAILABLE|SLOW_DOWN|INTERNAL_FAILURE|THROTTLING|"
    r"REQUEST_TIMEOUT|UNKNOWN \(HTTP status (429|5\d\d)\))"
)
#: The part of an object store's error that the local library wrote.
_STORE = re.compile(
    r".{0,300}AWS Error \w+(?: \(HTTP status \d+\))? during \w+ operation"
    r"|google::cloud::Status\(\w+"
)
_RIGHTS = ": check the credentials, and grant them this right in the catalogue"
_STORE_RIGHTS = ": check the credentials, and grant them the right to read, write and list there"
#: Packages whose errors contain responses.
_OF_CLIENTS = ("requests", "urllib3", "azure", "adlfs", "gcsfs", "s3fs", "aiohttp", "fsspec")


@contextmanager
def translated_errors(what: str) -> Iterator[None]:
    """Convert the library's errors to ``TableError``, or ``RetriableError`` if a retry may help."""
    try:
        import pyiceberg.exceptions as known
        import requests
    except ModuleNotFoundError as error:
        raise TableError(EXTRA) from error
    passing = (
        known.CommitStateUnknownException,
        known.ServerError,
        known.ServiceUnavailableError,
        known.TooManyRequestsError,
        requests.ConnectionError,
        requests.Timeout,
        requests.exceptions.ChunkedEncodingError,
        ConnectionError,
        TimeoutError,
    )
    try:
        yield
    except RefusedRecordError as error:
        raise RefusedRecordError(error.record.within(what)) from error
    except TableError as error:
        raise type(error)(f"{what}: {error}") from error
    except (RetriableError, ForbiddenPathError):
        raise
    except (ModuleNotFoundError, known.NotInstalledError) as error:
        raise TableError(EXTRA) from error
    except Exception as error:  # noqa: BLE001 (catalogues and file systems raise their own)
        # no cause, as it may have parts of responses
        text = f"{what}: {safe_text(error)}"
        if forbidden_host(error) is not None or isinstance(error, requests.exceptions.SSLError):
            raise TableError(text) from None
        database = database_failure(error)
        if database is DatabaseFailure.LOGIN_REJECTED or _is_refused(error):
            raise TableAccessError(text) from None
        if isinstance(error, passing) or _waiting_helps(error):
            raise RetriableError(text) from None
        raise TableError(text) from None


def _waiting_helps(error: Exception) -> bool:
    """Whether a retry may fix an error of a database, of pyarrow, or of Azure's library."""
    status = _status_of(error)
    return (
        database_failure(error) is DatabaseFailure.OUTAGE
        or type(error).__name__ in ("ServiceRequestError", "ServiceResponseError")
        or (status is not None and (status in (408, 425, 429) or (status >= 500 and status != 501)))
        or _AWAY.search(str(error)) is not None
    )


def _status_of(error: Exception) -> int | None:
    """The status of the response behind an error; None without one."""
    for each in causes_of(error):
        for part in (each, getattr(each, "response", None)):
            status = getattr(part, "status_code", None)
            if isinstance(status, int):
                return status
    return None


def _is_refused(error: Exception) -> bool:
    """Whether a catalogue or a store rejected the credentials, or they lack a right."""
    status = _status_of(error)
    if type(error).__name__ == "OAuthError":  # the endpoint for tokens
        return status in (400, 401, 403)
    return status in (401, 403, 419) or "AWS Error ACCESS_DENIED" in str(error)


def safe_text(error: Exception) -> str:
    """An error in one line, without text that a server sent."""
    forbidden = forbidden_host(error)
    if forbidden is not None:
        return str(forbidden)
    name = type(error).__name__
    for cause in causes_of(error):
        response = getattr(cause, "response", None)
        status = getattr(response, "status_code", None)
        if response is not None and isinstance(status, int):
            length = len(getattr(response, "content", b"") or b"")
            text = f"{name}: answered {response_text(status, _media_type(response), length)}"
            return text + (_RIGHTS if status in (401, 403) else "")
    store = _STORE.search(str(error))
    if store is not None:
        return f"{name}: {store[0]}" + (_STORE_RIGHTS if "ACCESS_DENIED" in store[0] else "")
    kind = type(error).__module__.partition(".")[0]
    if kind in _OF_CLIENTS or "Azure" in str(error):  # pyarrow's errors of Azure are OSErrors
        return connection_text(error)
    return f"{name}: {str(error).strip().partition(chr(10))[0][:500]}"


def _media_type(response: Any) -> str | None:
    headers = getattr(response, "headers", None) or {}
    found = headers.get("content-type")
    return found if isinstance(found, str) else None
