"""The settings of converters with a schema registry, as Confluent's have them."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from drover.config.config_def import (
    REQUIRED,
    ConfigDef,
    ConfigKey,
    ConfigType,
    Importance,
    SettingError,
)
from drover.config.validators import Check, InRange, OneOf
from drover.convert.registered.registry import Access, in_order, missing_modules
from drover.policy.egress import url_fault
from drover.policy.files import existing_file_fault

TOPIC_NAME, RECORD_NAME = "TopicNameStrategy", "RecordNameStrategy"
_TOPIC_RECORD_NAME = "TopicRecordNameStrategy"
_STRATEGIES = (TOPIC_NAME, RECORD_NAME, _TOPIC_RECORD_NAME)
_PACKAGE = "io.confluent.kafka.serializers.subject."
_URL = "schema.registry.url"
_BASIC, _BEARER = "basic.auth.credentials.source", "bearer.auth.credentials.source"
_TRUSTSTORE, _KEYSTORE = "schema.registry.ssl.truststore", "schema.registry.ssl.keystore"
_USER_INFO = "basic.auth.user.info"
_SECRETS = ("bearer.auth.token", "bearer.auth.client.secret")
_OAUTH = (
    "bearer.auth.issuer.endpoint.url",
    "bearer.auth.client.id",
    "bearer.auth.client.secret",
    "bearer.auth.scope",
)


def access_of(config: Mapping[str, Any]) -> Access:
    """How the parsed settings reach the registry.

    Raises:
        SettingError: one is missing that another one needs.
    """

    def secret(name: str) -> str | None:
        found = config[name]
        return None if found is None else str(found.value)

    settings: dict[str, Any] = {
        "timeout": config["http.read.timeout.ms"] / 1000,
        "max.retries": config["max.retries"],
        "retries.wait.ms": config["retries.wait.ms"],
        "retries.max.wait.ms": config["retries.max.wait.ms"],
        "cache.latest.ttl.sec": config["latest.cache.ttl.sec"],
        "ssl.ca.location": config[f"{_TRUSTSTORE}.location"],
        "ssl.certificate.location": config[f"{_KEYSTORE}.location"],
        "ssl.key.password": secret("schema.registry.ssl.key.password"),
    }
    source = config[_BEARER]
    if config[_BASIC] == "USER_INFO":
        found = secret(_USER_INFO) or secret(f"schema.registry.{_USER_INFO}")
        if found is None:
            raise SettingError(_USER_INFO, f"is needed where {_BASIC} is USER_INFO")
        settings[_USER_INFO] = found
    elif source is None and config[_USER_INFO] is not None:
        raise SettingError(_BASIC, f"must be USER_INFO for {_USER_INFO} to count")
    if settings["ssl.key.password"] and not settings["ssl.certificate.location"]:
        raise SettingError(f"{_KEYSTORE}.location", "is needed where a key has a password")
    if source is not None:
        settings |= {
            _BEARER: source,
            # sent with the token; registries that have no such clusters do not look at it
            "bearer.auth.logical.cluster": config["bearer.auth.logical.cluster"] or "",
            "bearer.auth.identity.pool.id": config["bearer.auth.identity.pool.id"],
        }
        for name in ("bearer.auth.token",) if source == "STATIC_TOKEN" else _OAUTH:
            if config[name] is None:
                raise SettingError(name, f"is needed where {_BEARER} is {source}")
            settings[name] = secret(name) if name in _SECRETS else config[name]
    return Access(tuple(config[_URL]), config["schemas.cache.size"], in_order(settings))


def _urls_fault(urls: list[str]) -> str | None:
    for each in urls:
        try:
            parts = urlsplit(each)
            is_url = parts.scheme in ("http", "https") and bool(parts.hostname)
            parts.port  # noqa: B018 - raises when it is none
        except ValueError:
            is_url = False
        if not is_url:
            return "must be URLs like http://host:8081, with commas between them"
        if parts.username or parts.password:
            return "must not have a name or password in it: set basic.auth.user.info"
        fault = url_fault(each)
        if fault is not None:
            return fault
    return None if urls else "must have at least one item"


def _strategy_fault(name: str) -> str | None:
    if name.removeprefix(_PACKAGE) in _STRATEGIES:
        return None
    return f"must be one of {', '.join(_STRATEGIES)}, not {name[:80]!r}"


def _user_info_fault(info: Any) -> str | None:
    return None if ":" in info.value else "must be like name:password"


def _strategy(side: str) -> ConfigKey:
    return ConfigKey(
        f"{side}.subject.name.strategy",
        ConfigType.STRING,
        default=TOPIC_NAME,
        validator=Check(_strategy_fault),
        documentation=f"What the subject of a {side}'s schema is called after: {TOPIC_NAME} (the "
        f"topic), {RECORD_NAME} (the record's name), {_TOPIC_RECORD_NAME} (both).",
    )


def flag(name: str, default: bool, documentation: str) -> ConfigKey:
    """A setting that is true or false."""
    return ConfigKey(name, ConfigType.BOOLEAN, default=default, documentation=documentation)


def _number(name: str, default: int, documentation: str, *, least: int = 0) -> ConfigKey:
    return ConfigKey(
        name,
        ConfigType.INT,
        default=default,
        validator=InRange(least),
        importance=Importance.LOW,
        documentation=documentation,
    )


def _text(name: str, documentation: str, *, choices: tuple[str, ...] = ()) -> ConfigKey:
    return ConfigKey(
        name,
        ConfigType.STRING,
        default=None,
        validator=OneOf(*choices) if choices else None,
        documentation=documentation,
    )


def _file(name: str, documentation: str) -> ConfigKey:
    return ConfigKey(
        name,
        ConfigType.STRING,
        default=None,
        validator=Check(existing_file_fault),
        documentation=documentation,
    )


def _secret(name: str, documentation: str, *, of_two_parts: bool = False) -> ConfigKey:
    return ConfigKey(
        name,
        ConfigType.PASSWORD,
        default=None,
        validator=Check(_user_info_fault) if of_two_parts else None,
        documentation=documentation,
    )


_REGISTRY = ConfigDef(
    _number(
        "http.read.timeout.ms", 30_000, "How long the registry may be silent at a time.", least=1
    ),
    _number("max.retries", 3, "How often a request that got no answer is made again."),
    _number("retries.wait.ms", 1_000, "How long the first pause before that is at most."),
    _number("retries.max.wait.ms", 20_000, "How long the later ones are at most."),
    _number("schemas.cache.size", 1_000, "So many schemas are remembered.", least=1),
    _number(
        "latest.cache.ttl.sec", 60, "How long the latest version of a subject is believed.", least=1
    ),
    ConfigKey(
        _BASIC,
        ConfigType.STRING,
        default="URL",
        validator=OneOf("URL", "USER_INFO"),
        documentation="USER_INFO for basic authentication by basic.auth.user.info; URL for none.",
    ),
    _secret("basic.auth.user.info", "Name and password with a colon between.", of_two_parts=True),
    _secret(
        "schema.registry.basic.auth.user.info",
        "The same by its older name.",
        of_two_parts=True,
    ),
    _text(
        _BEARER,
        "STATIC_TOKEN for bearer.auth.token, OAUTHBEARER for a token by client credentials.",
        choices=("STATIC_TOKEN", "OAUTHBEARER"),
    ),
    _secret("bearer.auth.token", "The token of STATIC_TOKEN."),
    ConfigKey(
        "bearer.auth.issuer.endpoint.url",
        ConfigType.STRING,
        default=None,
        validator=Check(url_fault),
        documentation="Where OAUTHBEARER gets its tokens.",
    ),
    _text("bearer.auth.client.id", "The client's id for OAUTHBEARER."),
    _secret("bearer.auth.client.secret", "The client's secret for OAUTHBEARER."),
    _text("bearer.auth.scope", "The scope for OAUTHBEARER."),
    _text("bearer.auth.logical.cluster", "Confluent Cloud's id of the registry."),
    _text("bearer.auth.identity.pool.id", "Confluent Cloud's id of the identity pool."),
    _file(f"{_TRUSTSTORE}.location", "A file of PEM with the registry's authority."),
    _text(f"{_TRUSTSTORE}.type", "PEM, the only one.", choices=("PEM",)),
    _file(f"{_KEYSTORE}.location", "A file of PEM with this client's certificate and key."),
    _text(f"{_KEYSTORE}.type", "PEM, the only one.", choices=("PEM",)),
    _secret("schema.registry.ssl.key.password", "The password of that key."),
)

_SUBJECTS = ConfigDef(
    _strategy("key"),
    _strategy("value"),
    flag("auto.register.schemas", True, "Whether schemas are registered that are new."),
    flag(
        "use.latest.version",
        False,
        "Whether values are written with the latest schema of their subject, where "
        "auto.register.schemas is false.",
    ),
    flag(
        "latest.compatibility.strict",
        True,
        "Whether fields are an error that the latest schema does not have; else they are left out.",
    ),
    flag("normalize.schemas", False, "Whether the registry compares schemas in normal form."),
)


def registry_settings(extra: str, *modules: str) -> ConfigDef:
    """What all converters with a registry have; the libraries of ``extra``, with these modules,
    have to be installed.
    """

    def fault(urls: list[str]) -> str | None:
        return _urls_fault(urls) or missing_modules(extra, *modules)

    url = ConfigKey(
        _URL,
        ConfigType.LIST,
        default=REQUIRED,
        validator=Check(fault),
        importance=Importance.HIGH,
        documentation="The registry's URLs; one that does not answer is followed by the next.",
    )
    return ConfigDef(url) | _REGISTRY | _SUBJECTS
