"""Settings from environment variables ``DROVER_<FIELD>``, validated when a process starts."""

import json
import socket
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar

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
from drover.model.times import DAY_MS
from drover.rpc.logs import LogFormat, LogLevel
from drover.security.hosts import is_loopback_host

if TYPE_CHECKING:
    from drover.rpc.security import Security

ENV_PREFIX = "DROVER_"
#: Placeholder in an advertised address for the name of this machine or container.
HOSTNAME = "{hostname}"

_NOT_JSON = "not_json"

SettingsT = TypeVar("SettingsT", bound="ProcessSettings")


def split_address(address: str) -> tuple[str, int]:
    """Split ``host:port`` or ``[ipv6]:port``.

    Raises:
        ValueError: The address is invalid; the message has the violation.
    """
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
    """Whether only processes on this machine can reach a host:port."""
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
        raise ValueError("the port must not be 0, since clients connect to it")
    return value


def split_addresses(addresses: str) -> list[str]:
    """The addresses of a comma-separated list, without duplicates."""
    return list(dict.fromkeys(part.strip() for part in addresses.split(",") if part.strip()))


def _target_addresses(value: str) -> str:
    if value and not split_addresses(value):
        raise ValueError("must be host:port, or a comma-separated list of them")
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
        # a separate error type, since the message must not repeat a value that may have secrets
        raise PydanticCustomError(
            _NOT_JSON, "must be a JSON object: {why}", {"why": str(error)}
        ) from None


def _joined(value: object) -> object:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ",".join(value)
    return value


def _not_0(value: int) -> int:
    if value == 0:
        raise ValueError("must be at least 1, or -1 for the brokers' default")
    return value


#: The host:port on which a server listens; port 0 selects a free port.
ListenAddress = Annotated[str, AfterValidator(_listen_address)]
#: The host:port to which a client connects.
TargetAddress = Annotated[str, AfterValidator(_target_address)]
#: The host:port at which clients reach this service; ``HOSTNAME`` is replaced in it.
AdvertisedAddress = Annotated[str, AfterValidator(_advertised_address)]
#: A comma-separated list of target addresses; see ``split_addresses``.
TargetAddresses = Annotated[str, AfterValidator(_target_addresses)]
RequiredAddresses = Annotated[TargetAddresses, Field(min_length=1)]
#: A time span in milliseconds, from 1 ms to a day.
PositiveMs = Annotated[int, Field(ge=1, le=DAY_MS)]
#: A JSON object with strings as values.
JsonTexts = Annotated[dict[str, str], BeforeValidator(_parsed)]
#: A JSON object with objects as values, which have strings as values; a list of strings is joined
#: with commas.
JsonObjects = Annotated[
    dict[str, dict[str, Annotated[str, BeforeValidator(_joined)]]], BeforeValidator(_parsed)
]
#: The name of a Kafka topic.
TopicName = Annotated[str, Field(pattern=f"^{TOPIC_NAME.pattern}$")]
PartitionCount = Annotated[int, Field(ge=1, le=10_000)]


class ProcessSettings(BaseSettings):
    """The settings of every process: logs, metrics and certificates.

    An empty variable is treated as unset.

    Attributes:
        log_level: DEBUG, INFO, WARNING or ERROR.
        log_format: ``json`` or ``text``.
        metrics_listen: host:port of the Prometheus endpoint, over HTTP and without authentication;
            empty for none.
        tls_cert: The service's certificate, a PEM file, as a server and as a client. If set, all
            listeners use TLS. The file may be replaced at any time.
        tls_key: The certificate's private key, a PEM file.
        tls_ca: The authorities that sign the certificates of clients and services, a PEM file.
        allow_plaintext: Whether to allow listeners without TLS on addresses that other machines
            can reach, and a standalone Spark cluster without a secret.
    """

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        extra="forbid",
        frozen=True,
        env_ignore_empty=True,
        # ``JsonTexts`` decodes: pydantic would stop at the first invalid JSON without its variable
        enable_decoding=False,
    )

    log_level: LogLevel = "INFO"
    log_format: LogFormat = "json"
    metrics_listen: Annotated[str, AfterValidator(_optional_listen_address)] = ""
    tls_cert: str = ""
    tls_key: str = ""
    tls_ca: str = ""
    allow_plaintext: bool = False

    @model_validator(mode="after")
    def _plaintext_is_local(self) -> Self:
        if self.tls_cert or self.allow_plaintext:
            return self
        for name, value in self:
            serves = name.endswith("_listen") and name != "metrics_listen" and value
            if serves and not is_loopback(value):
                raise ValueError(
                    f"DROVER_{name.upper()}={value} can be reached from other machines: set"
                    " DROVER_TLS_CERT (`drover certs init` creates certificates), or allow"
                    " plaintext with DROVER_ALLOW_PLAINTEXT=true"
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


class ServiceSettings(ProcessSettings):
    """The settings of every service of a cluster; each service adds its own fields.

    Attributes:
        storage_url: ``sqlite:///absolute/path`` or ``kafka://host:port,host:port``.
        group_id: The cluster's name, the same for all its services and workers. It is Kafka
            Connect's group.id.
        kafka_config: Further settings of Kafka clients, as a JSON object.
        config_storage_topic: The topic of connector and task configs.
        offset_storage_topic: The topic of source offsets.
        status_storage_topic: The topic of statuses.
        control_storage_topic: The topic of groups, claims and leases, which Kafka Connect does not
            have.
        offset_storage_partitions: The number of partitions of a new offset topic.
        status_storage_partitions: The number of partitions of a new status topic.
        storage_replication_factor: The replication factor of new topics; -1 for the brokers'
            default.
        storage_create_topics: Whether to create missing topics of the cluster; otherwise an
            operator has to create them, connectors' own offset topics included.
        tls_client_ca: The authorities that sign the certificates of users, a PEM file. They have no
            role internal. If empty, the authorities in ``tls_ca`` sign them.
        access_file: The roles of certificates, tokens and users; required with TLS.
        jwks: The keys that verify JSON Web Tokens, a file or an https URL; if empty, no such tokens
            are accepted.
        jwt_audience: The required audience of tokens.
        jwt_issuer: The required issuer of tokens; empty to accept all issuers.
        jwt_groups_claim: The claim of a token that lists the user's groups.
        audit_log: The audit log of changes, reads of records, validations and rejected calls: a
            file, or ``stdout``. The default is ``stdout`` with an access file, otherwise no audit
            log.
        audit_required: Whether to reject calls whose line in the audit log cannot be written.
    """

    storage_url: str = "sqlite:///var/drover"
    # the Kafka client drops white space at the start, and ends the process if nothing is left
    group_id: Annotated[str, Field(min_length=1, max_length=255, pattern=r"^\S")] = "drover"
    kafka_config: JsonTexts = Field(default_factory=dict)
    config_storage_topic: TopicName = "drover-configs"
    offset_storage_topic: TopicName = "drover-offsets"
    status_storage_topic: TopicName = "drover-status"
    control_storage_topic: TopicName = "drover-control"
    offset_storage_partitions: PartitionCount = 25
    status_storage_partitions: PartitionCount = 5
    storage_replication_factor: Annotated[int, Field(ge=-1, le=32_767), AfterValidator(_not_0)] = -1
    storage_create_topics: bool = True
    tls_client_ca: str = ""
    access_file: str = ""
    jwks: str = ""
    jwt_audience: str = ""
    jwt_issuer: str = ""
    jwt_groups_claim: str = "groups"
    audit_log: str = ""
    audit_required: bool = False

    @model_validator(mode="after")
    def _tls_is_complete(self) -> Self:
        are_set = [bool(each) for each in (self.tls_cert, self.tls_key, self.tls_ca)]
        if any(are_set) and not all(are_set):
            raise ValueError(
                "DROVER_TLS_CERT, DROVER_TLS_KEY and DROVER_TLS_CA must be set together: set all"
                " three"
            )
        if self.tls_client_ca and not self.tls_ca:
            raise ValueError("DROVER_TLS_CLIENT_CA needs DROVER_TLS_CERT and DROVER_TLS_CA")
        if bool(self.tls_cert) != bool(self.access_file):
            raise ValueError(
                "DROVER_ACCESS_FILE and DROVER_TLS_CERT must be set together, since TLS needs the"
                " file's roles: create both with `drover certs init`"
            )
        if self.jwks and not (self.access_file and self.jwt_audience):
            raise ValueError("DROVER_JWKS needs DROVER_ACCESS_FILE and DROVER_JWT_AUDIENCE")
        if self.audit_required and not (self.access_file or self.audit_log):
            raise ValueError("DROVER_AUDIT_REQUIRED needs DROVER_AUDIT_LOG: set it to a file")
        return self

    def storage(self) -> Storage:
        """The cluster's storage.

        Raises:
            InvalidArgumentError: INVALID_CONFIG, ``storage_url`` is invalid.
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
                create=self.storage_create_topics,
            ),
            client_config=self.kafka_config,
        )

    def advertised(self) -> Mapping[str, str]:
        """The advertised addresses, host:port by the name of the setting.

        The certificate must be valid for these hosts. Empty for a service that clients know only
        from their own settings.
        """
        return {}

    def open_security(self) -> "Security":
        """Read the certificate and the access file, and open the audit log.

        Raises:
            InvalidArgumentError: INVALID_CONFIG: a file cannot be used; the message names it.
        """
        # imported here: a process without listeners for gRPC does not need these 11 MiB
        from drover.rpc.audit import STDOUT, AuditLog
        from drover.rpc.callers import Callers
        from drover.rpc.guard import CallGuard
        from drover.rpc.security import Security
        from drover.security.certificates import TlsFiles, renewed_certificate
        from drover.security.grants import renewed_grants
        from drover.security.tokens import TokenRules, TokenVerifier, key_source

        place = self.audit_log or (STDOUT if self.access_file else "")
        audit = AuditLog(place, required=self.audit_required) if place else None
        if not self.tls_cert:
            return Security(guard=CallGuard(audit=audit))
        certificate = renewed_certificate(
            TlsFiles(self.tls_ca, self.tls_cert, self.tls_key, self.tls_client_ca),
            advertised={
                setting: split_address(address)[0] for setting, address in self.advertised().items()
            },
        )
        verifier = None
        if self.jwks:
            rules = TokenRules(self.jwt_audience, self.jwt_issuer, self.jwt_groups_claim)
            verifier = TokenVerifier(key_source(self.jwks), rules)
        callers = Callers(renewed_grants(self.access_file), verifier, certificate)
        return Security(certificate, CallGuard(callers, audit))


def load_settings(settings_type: type[SettingsT], **overrides: Any) -> SettingsT:
    """Read settings from the environment; ``overrides`` take precedence.

    Raises:
        InvalidArgumentError: INVALID_CONFIG with one violation for each invalid variable.
    """
    try:
        return settings_type(**overrides)
    except ValidationError as error:
        secrets = {name for name, field in settings_type.model_fields.items() if not field.repr}
        violations = [_violation(each, secrets) for each in error.errors(include_url=False)]
    raise InvalidArgumentError.listing(violations, reason=Reason.INVALID_CONFIG)


def _violation(fault: Any, secrets: Collection[str]) -> Violation:
    """The violation with the variable's name, and the key if the fault is inside a JSON object; the
    values of ``secrets`` are not shown.
    """
    variable, *keys = (str(part) for part in fault["loc"] or ("",))
    text = _one_line(str(fault["msg"])).removeprefix("Value error, ")
    if keys:
        text = f"{'.'.join(keys)}: {text}"
    elif variable in secrets:
        pass
    elif variable and isinstance(fault.get("input"), str) and fault["type"] != _NOT_JSON:
        text += f" (got {fault['input'][:100]!r})"
    return Violation((ENV_PREFIX + variable.upper()).rstrip("_"), text)


def _one_line(text: str) -> str:
    return " ".join(text.split())
