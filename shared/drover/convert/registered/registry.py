"""A client of the schema registry that caches schemas by id, and ids by schema and subject."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from ssl import SSLCertVerificationError
from typing import Any

from drover.policy.checked_http import bound_responses, restrict_client
from drover.policy.egress import ForbiddenHostError, forbidden_host
from drover.policy.foreign_errors import causes_of, connection_text
from drover.record.errors import (
    CredentialsRejectedError,
    PassError,
    RecordError,
    RetriableError,
    SchemaError,
)

_RESPONSE_MAX_BYTES = 16 * 1024 * 1024
#: Packages that the client needs; they are an optional dependency.
_MODULES = ("authlib", "cachetools", "httpx2")
_REGISTRIES_MAX = 32
_REFERENCES_MAX = 1000
#: The registry's error codes for an unknown subject, version or schema.
_UNKNOWN = range(40400, 40500)
#: Error codes of token servers for credentials that they reject (RFC 6749, section 5.2).
_REJECTIONS = ("invalid_client", "invalid_grant", "unauthorized_client", "access_denied")
#: The registry's error codes; its messages are not shown, as anything may have sent them.
_MEANINGS = {
    40401: "the subject does not exist",
    40402: "the version does not exist",
    40403: "the schema does not exist",
    409: "incompatible schema",
    42201: "invalid schema",
    42202: "invalid version",
    42203: "invalid compatibility level",
    42205: "the subject is read-only",
    50001: "its storage failed",
    50002: "it timed out",
    50003: "it cannot forward to its leader",
}

# they log each request, with its headers
for _name in ("httpx2", "httpcore2"):
    logging.getLogger(_name).setLevel(logging.WARNING)


@dataclass(frozen=True)
class Access:
    """Addresses of a registry and settings of confluent-kafka's client, which may be secret."""

    urls: tuple[str, ...]
    schemas_max: int
    settings: tuple[tuple[str, Any], ...] = field(repr=False, default=())


@dataclass(frozen=True, slots=True)
class SchemaFormat:
    """A schema format.

    Attributes:
        type: The registry's name of the format.
        parse: Parses a schema's text to an object for encoding. The second argument has the names
            and texts of the referenced schemas, each after its own references. Raises SchemaError.
        for_reading: Converts a parsed schema to an object for decoding. Raises SchemaError.
    """

    type: str
    parse: Callable[[str, tuple[tuple[str, str], ...]], Any]
    for_reading: Callable[[Any], Any]


def missing_modules(extra: str, *further: str) -> str | None:
    """The error for missing packages, as the end of a sentence; None if all are installed."""
    if all(find_spec(each) is not None for each in (*_MODULES, *further)):
        return None
    return f"needs packages that are not installed: pip install 'drover-connect[{extra}]'"


@lru_cache(maxsize=_REGISTRIES_MAX)
def registry_at(access: Access, kind: SchemaFormat) -> "Registry":
    """The process-wide client for an access and a format."""
    return Registry(access, kind)


class Registry:
    """A caching client of one registry.

    Its methods raise RecordError for a bad schema or id of a record, RetriableError if the registry
    is unreachable or busy, CredentialsRejectedError if it rejects the credentials, and PassError
    for other refusals.
    """

    def __init__(self, access: Access, kind: SchemaFormat) -> None:
        # the import takes 200 ms, and the package may not be installed
        from confluent_kafka.schema_registry import SchemaRegistryClient

        self._place = ", ".join(access.urls)
        self._format = kind
        with self._errors("its settings"):
            self._client = SchemaRegistryClient(
                {
                    "url": ",".join(access.urls),
                    "cache.capacity": access.schemas_max,
                    **dict(access.settings),
                }
            )
            rest = self._client._rest_client
            tokens = getattr(rest.bearer_field_provider, "client", None)
            for each in (rest.session, *([] if tokens is None else [tokens])):
                restrict_client(each)
                bound_responses(each, _RESPONSE_MAX_BYTES)
        self.schema_of_id = lru_cache(maxsize=access.schemas_max)(self._schema_of_id)
        self.id_of = lru_cache(maxsize=access.schemas_max)(self._id_of)

    def _schema_of_id(self, schema_id: int) -> Any:
        """The object that decodes values with this schema id."""
        with self._errors(f"the schema with id {schema_id}"):
            return self._format.for_reading(self._parsed(self._client.get_schema(schema_id)))

    def _id_of(self, subject: str, text: str, *, register: bool, normalize: bool) -> int:
        """The id of a subject's schema; ``register`` registers it if it has none."""
        from confluent_kafka.schema_registry import Schema as RegistrySchema

        schema = RegistrySchema(text, schema_type=self._format.type)
        with self._errors(f"a schema for the subject {subject}"):
            if register:
                return int(self._client.register_schema(subject, schema, normalize))
            found = self._client.lookup_schema(subject, schema, normalize)
            assert found.schema_id is not None
            return int(found.schema_id)

    def latest(self, subject: str) -> tuple[int, Any]:
        """The id of a subject's latest version and its parsed schema; the client caches it."""
        with self._errors(f"the latest schema of the subject {subject}"):
            found = self._client.get_latest_version(subject)
            assert found.schema_id is not None
            return int(found.schema_id), self._parsed(found.schema)

    def _parsed(self, found: Any) -> Any:
        kind = found.schema_type or "AVRO"
        if kind != self._format.type:
            raise SchemaError(f"the schema is one of {kind}, not of {self._format.type}")
        texts: dict[tuple[str, int], tuple[str, str]] = {}
        self._collect(found, texts)
        return self._format.parse(found.schema_str, tuple(texts.values()))

    def _collect(self, found: Any, texts: dict[tuple[str, int], tuple[str, str]]) -> None:
        """Collect the referenced schemas, each after its own references."""
        for each in found.references or ():
            place = (each.subject, each.version)
            if place in texts:
                continue
            if len(texts) >= _REFERENCES_MAX:
                raise SchemaError(f"the schema refers to more than {_REFERENCES_MAX} others")
            referred = self._client.get_version(*place).schema
            self._collect(referred, texts)
            texts[place] = (str(each.name), str(referred.schema_str))

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Convert the client's errors; no message or cause has parts of a response."""
        from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError
        from httpx2 import HTTPError, InvalidURL

        try:
            yield
        except SchemaRegistryError as error:
            raise self._told(error.http_status_code, error.error_code, what) from None
        except (HTTPError, OAuthTokenError) as error:
            forbidden = forbidden_host(error)
            if forbidden is not None:
                raise PassError(str(forbidden)) from None
            told = connection_text(error)
            if isinstance(error, OAuthTokenError):
                told = f"no token of bearer.auth.issuer.endpoint.url ({told})"
            if _is_mistrusted(error):
                raise PassError(
                    f"the schema registry at {self._place} is not who it should be: {told}. "
                    "Check schema.registry.ssl.truststore.location"
                ) from None
            told = f"the schema registry at {self._place} does not answer for {what}: {told}"
            refused = isinstance(error, OAuthTokenError) and _is_refused(error)
            raise (CredentialsRejectedError if refused else RetriableError)(told) from None
        except json.JSONDecodeError:
            raise PassError(
                f"what answers at {self._place} is no schema registry: check schema.registry.url"
            ) from None
        except (InvalidURL, OSError, TypeError) as error:
            raise PassError(
                f"the schema registry at {self._place} cannot be asked: {self._local_text(error)}"
            ) from None

    @staticmethod
    def _local_text(error: Exception) -> str:
        if isinstance(error, ForbiddenHostError | ConnectionError):
            return str(error)
        return connection_text(error)

    def _told(self, status: int, code: Any, what: str) -> Exception:
        meaning = _MEANINGS.get(code) if isinstance(code, int) else None
        told = (
            f"the schema registry at {self._place} was asked for {what} and answered {status}"
            f"{'' if meaning is None else f' ({code}: {meaning})'}"
        )
        if status in (401, 403, 407):
            told = f"{told}. Check basic.auth.* or bearer.auth.*, and what they may do"
            return CredentialsRejectedError(told)
        if status in (408, 429) or status >= 500:
            return RetriableError(told)
        if status == 409:
            return RecordError(
                f"{told}. The schema is not compatible with those of its subject: change the "
                "records, or the subject's compatibility"
            )
        if status == 422 or (status == 404 and code in _UNKNOWN):
            return RecordError(told)
        return PassError(f"{told}. Check schema.registry.url")


def _is_refused(error: BaseException) -> bool:
    """Whether a token server rejected the credentials: it answers 400 or 401 with an error code
    (RFC 6749, section 5.2), which the library raises as its attribute ``error``.
    """
    return any(
        getattr(each, "error", None) in _REJECTIONS
        or getattr(getattr(each, "response", None), "status_code", None) in (400, 401, 403, 407)
        for each in causes_of(error)
    )


def _is_mistrusted(error: BaseException) -> bool:
    """Whether a failed certificate verification caused the error."""
    return any(isinstance(each, SSLCertVerificationError) for each in causes_of(error))


def in_order(settings: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Settings sorted by name; None values are omitted."""
    return tuple(sorted((name, value) for name, value in settings.items() if value is not None))
