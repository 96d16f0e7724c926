"""Settings from the environment: ``DROVER_<FIELD>``, checked before anything starts."""

import json
import socket
from collections.abc import Mapping
from typing import Annotated, Any, Self, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict

from drover.errors import InvalidArgumentError, Reason, Violation
from drover.log.storage import KafkaTopics, Storage, parse_storage
from drover.model.names import TOPIC_NAME
from drover.rpc.audit import STDOUT, AuditLog
from drover.rpc.callers import Callers
from drover.rpc.guard import CallGuard
from drover.rpc.logs import LogFormat, LogLevel
from drover.rpc.security import Security
from drover.security.certificates import TlsFiles, renewed_certificate
from drover.security.grants import renewed_grants
from drover.security.hosts import is_loopback_host
from drover.security.tokens import TokenRules, TokenVerifier, key_source

ENV_PREFIX = "DROVER_"
#: Stands for this machine's or container's own name in an advertised address.
HOSTNAME = "{hostname}"

_NOT_JSON = "not_json"

SettingsT = TypeVar("SettingsT", bound="ServiceSettings")


def split_address(address: str) -> tuple[str, int]:
    """Host and port of ``host:port`` or ``[ipv6]:port``; raises ValueError with what is wrong."""
    host, colon, port = address.rpartition(":")
    if not colon or not host:
        raise ValueError("must be host:port, such as 127.0.0.1:7401")
    if any(char.isspace() for char in address) or "/" in address:
        raise ValueError("must be host:port, without spaces, scheme or path")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ValueError("an IPv6 address needs brackets, such as [::1]:7401")
    if not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(f"the port must be a number up to 65535, not {port!r}")
    return host.strip("[]"), int(port)


def is_loopback(address: str) -> bool:
    """Whether only processes on this machine reach a host:port."""
    host, _ = split_address(address)
    return is_loopback_host(host)


def _listen_address(value: str) -> str:
    split_address(value)
    return value


def _optional_listen_address(value: str) -> str:
    return _listen_address(value) if value else ""


def _advertised_address(value: str) -> str:
    return _target_address(value.replace(HOSTNAME, socket.gethostname()))


def _target_address(value: str) -> str:
    if split_address(value)[1] == 0:
        raise ValueError("port 0 cannot be connected to")
    return value


def split_addresses(addresses: str) -> list[str]:
    """The addresses of a list with commas, each once."""
    return list(dict.fromkeys(part.strip() for part in addresses.split(",") if part.strip()))


def _target_addresses(value: str) -> str:
    if value and not split_addresses(value):
        raise ValueError("must be host:port, or several with commas between")
    for address in split_addresses(value):
        try:
            _target_address(address)
        except ValueError as error:
            raise ValueError(f"{address}: {error}") from None
    return value


def _parsed(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        # a type of its own: the text is not repeated, since settings of this kind hold secrets
        raise PydanticCustomError(
            _NOT_JSON, "must be a JSON object: {why}", {"why": str(error)}
        ) from None


def _not_0(value: int) -> int:
    if value == 0:
        raise ValueError("must be at least 1, or -1 for the brokers' default")
    return value


#: Where a server listens; port 0 takes a free one.
ListenAddress = Annotated[str, AfterValidator(_listen_address)]
#: Where a client connects to.
TargetAddress = Annotated[str, AfterValidator(_target_address)]
#: Where others connect to the service itself; ``HOSTNAME`` in it stands for the machine's own name.
AdvertisedAddress = Annotated[str, AfterValidator(_advertised_address)]
#: Several of them, with commas between; see ``split_addresses``.
TargetAddresses = Annotated[str, AfterValidator(_target_addresses)]
RequiredAddresses = Annotated[TargetAddresses, Field(min_length=1)]
#: A time span in milliseconds, from 1 ms to a day.
PositiveMs = Annotated[int, Field(ge=1, le=86_400_000)]
#: A JSON object whose values are texts.
JsonTexts = Annotated[dict[str, str], BeforeValidator(_parsed)]
#: A JSON object whose values are objects whose values are texts.
JsonObjects = Annotated[dict[str, dict[str, str]], BeforeValidator(_parsed)]
#: A topic of Kafka.
TopicName = Annotated[str, Field(pattern=f"^{TOPIC_NAME.pattern}$")]
PartitionCount = Annotated[int, Field(ge=1, le=10_000)]


class ServiceSettings(BaseSettings):
    """What every service can be told; a service adds its own fields.

    An empty variable counts as not set.

    Attributes:
        storage_url: ``sqlite:///absolute/path`` or ``kafka://host:port,host:port``.
        group_id: Names the cluster: all services and workers of one have the same. It is Kafka
            Connect's group.id.
        kafka_config: Further settings of Kafka's clients, as a JSON object.
        config_storage_topic: The topic of connectors' and tasks' configs.
        offset_storage_topic: The topic of source offsets.
        status_storage_topic: The topic of statuses.
        control_storage_topic: The topic of what only Drover knows: groups, claims, leases.
        offset_storage_partitions: For a topic that is made here.
        status_storage_partitions: For a topic that is made here.
        storage_replication_factor: For topics that are made here; -1 for the brokers' default.
        log_level: DEBUG, INFO, WARNING or ERROR.
        log_format: ``json`` or ``text``.
        metrics_listen: Where Prometheus gets the metrics, over HTTP and by whoever asks; empty for
            nowhere.
        tls_cert: The service's own certificate, a PEM file: it shows it to clients and to the other
            services. With it every listener speaks TLS. It may be replaced at any time.
        tls_key: The certificate's private key, a PEM file.
        tls_ca: The authorities that the certificates of clients and services must be signed by.
        allow_plaintext: Listen without TLS where other machines can connect.
        access_file: Which certificates, tokens and users may do what; needed with TLS.
        jwks: The keys that JSON Web Tokens are checked by, a file or an https URL; without it none
            are accepted.
        jwt_audience: What tokens must have as their audience.
        jwt_issuer: What tokens must have as their issuer; any by default.
        jwt_groups_claim: The claim of a token that lists the user's groups.
        audit_log: Where each call that changes something is told of: a file, or ``stdout``. By
            default stdout with an access file, else nowhere.
    """

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        extra="forbid",
        frozen=True,
        env_ignore_empty=True,
        # it would stop at the first JSON that is broken and not name the variable: ``JsonTexts``
        enable_decoding=False,
    )

    storage_url: str = "sqlite:///var/drover"
    group_id: Annotated[str, Field(min_length=1, max_length=255)] = "drover"
    kafka_config: JsonTexts = Field(default_factory=dict)
    config_storage_topic: TopicName = "drover-configs"
    offset_storage_topic: TopicName = "drover-offsets"
    status_storage_topic: TopicName = "drover-status"
    control_storage_topic: TopicName = "drover-control"
    offset_storage_partitions: PartitionCount = 25
    status_storage_partitions: PartitionCount = 5
    storage_replication_factor: Annotated[int, Field(ge=-1, le=32_767), AfterValidator(_not_0)] = -1
    log_level: LogLevel = "INFO"
    log_format: LogFormat = "json"
    metrics_listen: Annotated[str, AfterValidator(_optional_listen_address)] = ""
    tls_cert: str = ""
    tls_key: str = ""
    tls_ca: str = ""
    allow_plaintext: bool = False
    access_file: str = ""
    jwks: str = ""
    jwt_audience: str = ""
    jwt_issuer: str = ""
    jwt_groups_claim: str = "groups"
    audit_log: str = ""

    @model_validator(mode="after")
    def _tls_is_whole(self) -> Self:
        given = [bool(each) for each in (self.tls_cert, self.tls_key, self.tls_ca)]
        if any(given) and not all(given):
            raise ValueError(
                "DROVER_TLS_CERT, DROVER_TLS_KEY and DROVER_TLS_CA go together: give all three"
            )
        if bool(self.tls_cert) != bool(self.access_file):
            raise ValueError(
                "DROVER_ACCESS_FILE and DROVER_TLS_CERT go together: over TLS the file says who"
                " may do what; `drover certs init` makes both"
            )
        if self.jwks and not (self.access_file and self.jwt_audience):
            raise ValueError("DROVER_JWKS needs DROVER_ACCESS_FILE and DROVER_JWT_AUDIENCE")
        return self

    @model_validator(mode="after")
    def _plaintext_stays_here(self) -> Self:
        if self.tls_cert or self.allow_plaintext:
            return self
        for name, value in self:
            asks = name.endswith("_listen") and name != "metrics_listen"
            if asks and not is_loopback(value):
                raise ValueError(
                    f"DROVER_{name.upper()}={value} can be reached from other machines: give"
                    " DROVER_TLS_CERT (`drover certs init` makes certificates), or allow it"
                    " unprotected by DROVER_ALLOW_PLAINTEXT=true"
                )
        return self

    @field_validator("log_level", mode="before")
    @classmethod
    def _upper(cls, value: Any) -> Any:
        return value.upper() if isinstance(value, str) else value

    @field_validator("log_format", mode="before")
    @classmethod
    def _lower(cls, value: Any) -> Any:
        return value.lower() if isinstance(value, str) else value

    def storage(self) -> Storage:
        """Where the cluster keeps everything.

        Raises:
            InvalidArgumentError: INVALID_CONFIG, ``storage_url`` is not one.
        """
        return parse_storage(
            self.storage_url,
            group_id=self.group_id,
            topics=KafkaTopics(
                config=self.config_storage_topic,
                offset=self.offset_storage_topic,
                status=self.status_storage_topic,
                control=self.control_storage_topic,
                offset_partitions=self.offset_storage_partitions,
                status_partitions=self.status_storage_partitions,
                replication_factor=self.storage_replication_factor,
            ),
            client_config=self.kafka_config,
        )

    def advertised(self) -> Mapping[str, str]:
        """Where others look for the service: host:port by the setting that says so.

        Its certificate must be for these hosts. Empty for a service that only its clients' own
        settings tell of.
        """
        return {}

    def open_security(self) -> Security:
        """Read what protects the service.

        Raises:
            InvalidArgumentError: INVALID_CONFIG: a file cannot be used; the message says which.
        """
        place = self.audit_log or (STDOUT if self.access_file else "")
        audit = AuditLog(place) if place else None
        if not self.tls_cert:
            return Security(guard=CallGuard(audit=audit))
        certificate = renewed_certificate(
            TlsFiles(self.tls_ca, self.tls_cert, self.tls_key),
            advertised={by: split_address(at)[0] for by, at in self.advertised().items()},
        )
        verifier = None
        if self.jwks:
            rules = TokenRules(self.jwt_audience, self.jwt_issuer, self.jwt_groups_claim)
            verifier = TokenVerifier(key_source(self.jwks), rules)
        callers = Callers(renewed_grants(self.access_file), verifier)
        return Security(certificate, CallGuard(callers, audit))


def load_settings(settings_type: type[SettingsT], **overrides: Any) -> SettingsT:
    """Read settings from the environment; ``overrides`` win over it.

    Raises:
        InvalidArgumentError: INVALID_CONFIG with one violation for each wrong variable.
    """
    try:
        return settings_type(**overrides)
    except ValidationError as error:
        violations = [_violation(fault) for fault in error.errors(include_url=False)]
    raise InvalidArgumentError.listing(violations, reason=Reason.INVALID_CONFIG)


def _violation(fault: Any) -> Violation:
    """Names the variable; a fault inside a JSON object also says under which key."""
    variable, *keys = (str(part) for part in fault["loc"] or ("",))
    text = _one_line(str(fault["msg"])).removeprefix("Value error, ")
    if keys:
        text = f"{'.'.join(keys)}: {text}"
    elif variable and isinstance(fault.get("input"), str) and fault["type"] != _NOT_JSON:
        text += f" (got {fault['input'][:100]!r})"
    return Violation((ENV_PREFIX + variable.upper()).rstrip("_"), text)


def _one_line(text: str) -> str:
    return " ".join(text.split())
