"""The common settings of HttpSource and HttpSink, with Aiven's names where they exist."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from drover.connector import (
    All,
    Check,
    ConfigDef,
    ConfigKey,
    ConfigType,
    Importance,
    InRange,
    NonEmpty,
    OneOf,
    Password,
    Violation,
    visible_when,
)
from drover.policy import egress
from drover.policy.egress import AllowedHosts
from drover.policy.foreign_errors import shown_url

URL = "http.url"
AUTHORIZATION = "http.authorization.type"
STATIC = "http.headers.authorization"
USER, PASSWORD = "http.basic.username", "http.basic.password"
TOKEN_URL, SCOPE = "oauth2.access.token.url", "oauth2.client.scope"
CLIENT_ID, CLIENT_SECRET = "oauth2.client.id", "oauth2.client.secret"
CLIENT_MODE = "oauth2.client.authorization.mode"
HEADERS = "http.headers.additional"
TIMEOUT_S = "http.timeout"
MAX_RETRIES, BACKOFF_MS = "max.retries", "retry.backoff.ms"
RATE = "http.max.requests.per.second"

NONE, OWN_HEADER, BASIC, OAUTH2 = "none", "static", "basic", "oauth2"
_NEEDED: Mapping[str, tuple[str, ...]] = {
    OWN_HEADER: (STATIC,),
    BASIC: (USER, PASSWORD),
    OAUTH2: (TOKEN_URL, CLIENT_ID, CLIENT_SECRET),
}
_GROUP = "HTTP"


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """How requests are made; picklable, its repr shows no secret.

    ``rate`` is the most requests per second, 0 for no limit.
    """

    allowed: AllowedHosts
    authorization: str = NONE
    header: str | None = field(default=None, repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token_url: str | None = None
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    scope: str | None = None
    client_in_body: bool = False
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    timeout_s: float = 30
    max_retries: int = 5
    backoff_ms: int = 1_000
    rate: float = 0

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "HttpSettings":
        """The settings of a parsed config."""
        return cls(
            AllowedHosts.of_worker(),
            config[AUTHORIZATION],
            header=_secret(config[STATIC]),
            user=config[USER],
            password=_secret(config[PASSWORD]),
            token_url=config[TOKEN_URL],
            client_id=config[CLIENT_ID],
            client_secret=_secret(config[CLIENT_SECRET]),
            scope=config[SCOPE],
            client_in_body=config[CLIENT_MODE] == "url",
            headers=tuple(_headers(_secret(config[HEADERS]) or "")),
            timeout_s=config[TIMEOUT_S],
            max_retries=config[MAX_RETRIES],
            backoff_ms=config[BACKOFF_MS],
            rate=config[RATE],
        )


def contradictions(config: Mapping[str, Any]) -> list[Violation]:
    """Missing settings of an authorization type."""
    kind = config.get(AUTHORIZATION, NONE)
    return [
        Violation(name, f"is required with {AUTHORIZATION}={kind}")
        for name in _NEEDED.get(kind, ())
        if name in config and config[name] is None
    ]


def url_fault(url: str) -> str | None:
    """The error in a URL, or None."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1)
    except ValueError:
        usable = False
    if not usable:
        return f"must be a URL such as https://api.example.com/orders, not {shown_url(url)[:200]!r}"
    if parts.password or parts.username:
        return f"must not contain a password: set {AUTHORIZATION}={BASIC}"
    return egress.url_fault(url)


def _secret(value: Any) -> str | None:
    return value.value if value else None


def _headers(text: str) -> list[tuple[str, str]]:
    """The headers in a list separated by commas; a fault must not show the secrets in it."""
    found = []
    for number, item in enumerate(text.split(",") if text.strip() else (), start=1):
        name, colon, value = item.partition(":")
        if not colon or not name.strip() or not name.strip().isascii():
            raise ValueError(f"must have headers as name:value; item {number} is none")
        found.append((name.strip(), value.strip()))
    return found


def _headers_fault(text: Password) -> str | None:
    try:
        _headers(text.value)
    except ValueError as error:
        return str(error)
    return None


def _key(
    name: str, documentation: str, kind: ConfigType = ConfigType.STRING, **more: Any
) -> ConfigKey:
    return ConfigKey(
        name,
        kind,
        documentation=documentation,
        group=_GROUP,
        **{"default": None, "importance": Importance.MEDIUM, **more},
    )


HTTP_SETTINGS = ConfigDef(
    ConfigKey(
        URL,
        ConfigType.STRING,
        importance=Importance.HIGH,
        group=_GROUP,
        documentation="The URL to call; of a sink ${topic} and ${key} in it are the record's.",
        validator=All(NonEmpty(), Check(url_fault)),
    ),
    _key(
        AUTHORIZATION,
        "The authorization: none, static (a fixed Authorization header), basic, or oauth2 (client "
        "credentials).",
        default=NONE,
        validator=OneOf(NONE, OWN_HEADER, BASIC, OAUTH2),
    ),
    _key(
        STATIC,
        "The Authorization header, such as Bearer and a token.",
        ConfigType.PASSWORD,
        recommender=visible_when(AUTHORIZATION, OWN_HEADER),
    ),
    _key(USER, "The user for basic.", recommender=visible_when(AUTHORIZATION, BASIC)),
    _key(
        PASSWORD,
        "The password for basic.",
        ConfigType.PASSWORD,
        recommender=visible_when(AUTHORIZATION, BASIC),
    ),
    _key(
        TOKEN_URL,
        "The URL that issues oauth2 tokens; a token is reused until shortly before it expires, "
        "and renewed once when it is refused.",
        validator=Check(url_fault),
        recommender=visible_when(AUTHORIZATION, OAUTH2),
    ),
    _key(CLIENT_ID, "The client id for oauth2.", recommender=visible_when(AUTHORIZATION, OAUTH2)),
    _key(
        CLIENT_SECRET,
        "The client secret for oauth2.",
        ConfigType.PASSWORD,
        recommender=visible_when(AUTHORIZATION, OAUTH2),
    ),
    _key(SCOPE, "The scope of oauth2 tokens.", recommender=visible_when(AUTHORIZATION, OAUTH2)),
    _key(
        CLIENT_MODE,
        "How a token request sends the client's id and secret: in a header, or in the form (url).",
        default="header",
        validator=OneOf("header", "url"),
        recommender=visible_when(AUTHORIZATION, OAUTH2),
    ),
    _key(
        HEADERS,
        "Additional headers of each request, as name:value, comma-separated.",
        ConfigType.PASSWORD,
        validator=Check(_headers_fault),
    ),
    _key(
        TIMEOUT_S,
        "How many seconds to wait for a response.",
        ConfigType.INT,
        default=30,
        validator=InRange(1, 600),
    ),
    _key(
        MAX_RETRIES,
        "How often a failed request is retried after no response, or after a status of 408, 425, "
        "429 or 500 and above.",
        ConfigType.INT,
        default=5,
        validator=InRange(0, 100),
    ),
    _key(
        BACKOFF_MS,
        "The first pause before a retry, in milliseconds; it doubles for each retry. The "
        "Retry-After header takes precedence, up to five minutes.",
        ConfigType.INT,
        default=1_000,
        validator=InRange(0, 300_000),
    ),
    _key(
        RATE,
        "The most requests per second of each task; 0 for no limit.",
        ConfigType.DOUBLE,
        default=0.0,
        validator=InRange(0),
    ),
)
