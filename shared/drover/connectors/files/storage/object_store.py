"""Access to object stores: URLs, settings, and error messages."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from drover.connector import (
    Check,
    ConfigDef,
    ConfigKey,
    ConfigType,
    CredentialsRejectedError,
    Importance,
    Password,
    RetriableError,
)
from drover.policy.client_setting_lists import Library
from drover.policy.client_settings import client_setting_fault, urls_in
from drover.policy.egress import AllowedHosts, plain_host_of
from drover.policy.files import (
    ForbiddenPathError,
    check_opened,
    check_root,
    directory_fault,
    path_fault,
)
from drover.policy.foreign_errors import connection_text

if TYPE_CHECKING:
    from obstore.store import ObjectStore

ENDPOINT = "store.url"
REGION = "s3.region"
PATH_STYLE = "s3.path.style.access.enabled"
ACCESS_KEY, SECRET_KEY = "aws.access.key.id", "aws.secret.access.key"
SESSION_TOKEN = "aws.session.token"
GCS_FILE, GCS_JSON = "gcs.credentials.path", "gcs.credentials.json"
AZURE_ACCOUNT, AZURE_KEY, AZURE_SAS = (
    "azblob.account.name",
    "azblob.account.key",
    "azblob.sas.token",
)

_URL = re.compile(r"(s3|s3a|gs|az|abfss?)://[^/?#]+(/[^?#]*)?")
_RETRIES = 5
_TIMEOUT_S, _CONNECT_TIMEOUT_S, _RETRY_TIMEOUT_S = 60, 10, 60
EXTRA = "object stores need one more library on the workers: pip install 'drover-connect[objects]'"
#: Status codes, in the library's messages, for which a retry cannot help.
FINAL_STATUS = re.compile(r"status code: (400|401|403|404|405|411|416|501)\b")
_REFUSED_STATUS = re.compile(r"status code: (401|403)\b")
#: S3's codes for credentials that it rejects with another status.
_REJECTED_CODES = ("ExpiredToken", "InvalidToken", "TokenRefreshRequired", "InvalidAccessKeyId")
#: A certificate that the library's TLS does not trust, in its messages.
MISTRUSTED = re.compile(r"InvalidCertificate\(|invalid peer certificate")
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist")
_CODE = re.compile(r"<Code>(\w{1,40})</Code>")
#: The start of the library's message, up to the first text that the store may have sent.
_SAFE = re.compile(
    r".*?(status code: \d{3}|Got invalid [a-z]+(?: [a-z]+)? response|HTTP error: [a-z ,]+)"
)
_QUERY = re.compile(r"\?\S+")
#: A longer file has no credentials.
_LOGIN_MAX_CHARS = 1024 * 1024


class ObjectStoreError(Exception):
    """An object store refuses an operation; the message has the remedy."""


class AccessRefusedError(ObjectStoreError, CredentialsRejectedError):
    """An object store rejects the credentials, or they lack a right."""


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """A URL of an object store with its credentials; picklable, its repr shows no secret.

    ``options`` are the library's; without credentials among them, the worker's environment provides
    them.
    """

    url: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def store(self) -> "ObjectStore":
        """The library's store with paths relative to the URL; one per process.

        Raises:
            ObjectStoreError: The library is missing, or rejects the settings.
        """
        return _store(self)

    def below(self, path: str) -> "ObjectPlace":
        """A directory below this place."""
        return ObjectPlace(f"{self.url.rstrip('/')}/{path}", self.options)


def is_object_url(path: str) -> bool:
    """Whether a path is in an object store."""
    return "://" in path


def url_fault(url: str) -> str | None:
    """The error in a URL of an object store, or None."""
    if _URL.fullmatch(url):
        return None
    return (
        "must be a URL such as s3://bucket/directory, gs://bucket/directory or "
        f"az://container/directory, not {url[:200]!r}"
    )


def place_fault(path: str) -> str | None:
    """The error in a path on a disk or in an object store, or None."""
    return url_fault(path) if is_object_url(path) else directory_fault(path)


def _address_fault(url: str) -> str | None:
    if not (url.isascii() and re.fullmatch(r"https?://[^/?#\s]+/?.*", url)):
        return f"must be a URL such as https://minio:9000, not {url[:200]!r}"
    return client_setting_fault(Library.OBSTORE, "endpoint", url)


def _google_login_fault(login: Password) -> str | None:
    """The login may name the store's address (``gcs_base_url``)."""
    return client_setting_fault(Library.OBSTORE, "service_account_key", login.value)


def place_of(url: str, config: Mapping[str, Any]) -> ObjectPlace:
    """The place for a URL, with the settings of a parsed config."""
    secrets = {name: _secret(config.get(name)) for name in _SECRETS}
    options: dict[str, str | None]
    if url.startswith("s3"):
        style = "false" if config.get(PATH_STYLE, True) else "true"
        options = {
            "endpoint": config.get(ENDPOINT),
            "region": config.get(REGION),
            "access_key_id": config.get(ACCESS_KEY),
            "secret_access_key": secrets[SECRET_KEY],
            "session_token": secrets[SESSION_TOKEN],
            "virtual_hosted_style_request": style,
        }
    elif url.startswith("gs"):
        options = {
            "base_url": config.get(ENDPOINT),
            "service_account_path": config.get(GCS_FILE),
            "service_account_key": secrets[GCS_JSON],
        }
    else:
        options = {
            "endpoint": config.get(ENDPOINT),
            # the library extracts the account from abfss://container@account.…
            "account_name": config.get(AZURE_ACCOUNT) if "@" not in url else None,
            "account_key": secrets[AZURE_KEY],
            "sas_token": secrets[AZURE_SAS],
        }
    return ObjectPlace(url, tuple((name, each) for name, each in options.items() if each))


def _secret(value: Any) -> str | None:
    return value.value if value else None


@lru_cache(maxsize=16)
def _store(place: ObjectPlace) -> "ObjectStore":
    try:
        from obstore.exceptions import BaseError
        from obstore.store import from_url
    except ModuleNotFoundError as error:
        raise ObjectStoreError(EXTRA) from error
    from datetime import timedelta

    check_place(place)
    options: dict[str, Any] = dict(place.options)
    address = options.get("endpoint") or options.get("base_url") or ""
    try:
        return from_url(
            place.url,
            client_options={
                "allow_http": address.startswith("http://"),
                "timeout": f"{_TIMEOUT_S}s",
                "connect_timeout": f"{_CONNECT_TIMEOUT_S}s",
            },
            retry_config={
                "max_retries": _RETRIES,
                "retry_timeout": timedelta(seconds=_RETRY_TIMEOUT_S),
            },
            **options,
        )
    except (BaseError, ValueError, TypeError) as error:
        line = str(error).partition("\n")[0]  # about the settings: nothing was sent yet
        raise ObjectStoreError(f"{place.url} cannot be used: {line[:500]}") from error


def check_place(place: ObjectPlace) -> None:
    """Check the addresses of a store and the files of its credentials.

    Stores without an address have the provider's, which needs to be listed if hosts are listed.

    Raises:
        ObjectStoreError: Connectors may not use them.
        RetriableError: A host name cannot be resolved.
    """
    hosts = AllowedHosts.of_worker()
    options = dict(place.options)
    named = [options.get("endpoint") or options.get("base_url") or ""]
    named += urls_in(options.get("service_account_key", ""))
    if not named[0] and hosts.patterns is not None:
        named[0] = f"https://{_default_host(place.url, options)}"
    try:
        if options.get("service_account_path"):
            named.append(_address_in_login(options["service_account_path"]))
        for each in filter(None, named):
            hosts.addresses(*plain_host_of(each))
    except (PermissionError, ValueError) as error:
        raise ObjectStoreError(f"{place.url} cannot be used: {error}") from None
    except OSError as error:
        raise RetriableError(f"{place.url}: {connection_text(error)}") from None


def _address_in_login(path: str) -> str:
    """The store's address in a file with a Google login; empty for the provider's."""
    check_root(path)
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            check_opened(file.fileno(), path)
            login = json.loads(file.read(_LOGIN_MAX_CHARS))
    except ForbiddenPathError:
        raise
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise ValueError(f"{path} must have a login as JSON") from None
    return str(login.get("gcs_base_url") or "") if isinstance(login, dict) else ""


def _default_host(url: str, options: Mapping[str, str]) -> str:
    parts = urlsplit(url)
    if parts.scheme in ("s3", "s3a"):
        region = options.get("region")
        return f"s3.{region}.amazonaws.com" if region else "s3.amazonaws.com"
    if parts.scheme == "gs":
        return "storage.googleapis.com"
    account = options.get("account_name") or (parts.hostname or "").partition(".")[0]
    return f"{account}.blob.core.windows.net"


def safe_text(error: BaseException) -> str:
    """An error of a store in one line, without text that the store sent."""
    found = _SAFE.match(str(error).partition("\n")[0])
    return _QUERY.sub("", found[0])[:500] if found else type(error).__name__


@contextmanager
def translated_errors(place: ObjectPlace, doing: str) -> Iterator[None]:
    """Convert errors of the store to ``ObjectStoreError``, or ``RetriableError`` if a retry may
    help.
    """
    place.store()  # raises if the library is missing
    from obstore.exceptions import (
        BaseError,
        GenericError,
        PermissionDeniedError,
        UnauthenticatedError,
    )

    try:
        yield
    except (BaseError, FileNotFoundError) as error:
        # no cause, as it has the response
        text = f"{place.url}, {doing}: {safe_text(error)}"
        refused = (PermissionDeniedError, UnauthenticatedError)
        rejected = _REFUSED_STATUS.search(text) or _code(error) in _REJECTED_CODES
        if isinstance(error, refused) or rejected:
            raise AccessRefusedError(
                f"{place.url}, {doing}: the store refuses it ({_code(error)}): check the "
                "credentials, and that they may read, write, list and delete there"
            ) from None
        if MISTRUSTED.search(str(error)):
            text = f"{place.url}, {doing}: the store's certificate is not trusted"
        elif any(each in str(error) for each in _NO_BUCKET):
            text = f"{place.url}, {doing}: the bucket does not exist: create it, or correct the URL"
        elif isinstance(error, GenericError) and not FINAL_STATUS.search(text):
            raise RetriableError(text) from None
        raise ObjectStoreError(text) from None


def _code(error: BaseException) -> str:
    found = _CODE.search(str(error))
    return found[1] if found else "no right"


def _key(
    name: str, documentation: str, kind: ConfigType = ConfigType.STRING, **more: Any
) -> ConfigKey:
    return ConfigKey(
        name,
        kind,
        **{"default": None, "importance": Importance.MEDIUM, **more},
        group="Object store",
        documentation=documentation,
    )


_SECRETS = (SECRET_KEY, SESSION_TOKEN, GCS_JSON, AZURE_KEY, AZURE_SAS)
#: Confluent's setting names for S3, GCS and Azure.
STORE_SETTINGS = ConfigDef(
    _key(REGION, "The region of an S3 bucket; by default the region of the worker's environment."),
    _key(
        ENDPOINT,
        "The address of an S3-compatible or other store, such as http://minio:9000.",
        validator=Check(_address_fault),
    ),
    _key(
        PATH_STYLE,
        "Whether the bucket is in the path of S3 requests (true) or in the host name.",
        ConfigType.BOOLEAN,
        default=True,
        importance=Importance.LOW,
    ),
    _key(
        ACCESS_KEY,
        "The S3 access key; by default credentials of the worker's environment or machine.",
    ),
    _key(SECRET_KEY, "The S3 secret key.", ConfigType.PASSWORD),
    _key(SESSION_TOKEN, "The session token of temporary credentials.", ConfigType.PASSWORD),
    _key(GCS_FILE, "A file with Google credentials on the workers.", validator=Check(path_fault)),
    _key(
        GCS_JSON,
        "Google credentials as JSON.",
        ConfigType.PASSWORD,
        validator=Check(_google_login_fault),
    ),
    _key(AZURE_ACCOUNT, "Azure's storage account."),
    _key(AZURE_KEY, "Azure's account key.", ConfigType.PASSWORD),
    _key(AZURE_SAS, "An Azure shared access signature.", ConfigType.PASSWORD),
)
