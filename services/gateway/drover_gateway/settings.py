"""Settings of the gateway."""

import ipaddress
import re
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from drover.client.secure import Connect, connect_by
from drover.errors import InvalidArgumentError, Reason
from drover.rpc.settings import (
    ListenAddress,
    ProcessSettings,
    RequiredAddresses,
    is_loopback,
    split_address,
    split_addresses,
)
from drover.security.renewed import Renewed
from drover_gateway.identity.issuer_http import url_fault
from drover_gateway.identity.origin import LOOPBACK_HOSTS, OriginRules
from drover_gateway.mcp.plans import PlanSeal
from drover_gateway.rest.cors import parse_header_rules

if TYPE_CHECKING:
    from drover.security.certificates import Certificate, TlsFiles

#: The version of Kafka Connect whose REST API this is.
KAFKA_CONNECT_VERSION = "4.4.0"
_ORIGIN = re.compile(r"https?://[^/\s,]+")
_METHOD = re.compile(r"[A-Z]+")
_CLIENT_ID = re.compile(r"[ -~]{0,500}")
#: RFC 6749, 3.3.
_SCOPE = re.compile(r"[!#-\[\]-~]+")
_SECRET_MAX_BYTES = 4_096


def _origins(value: str) -> str:
    for each in split_addresses(value):
        if each != "*" and not _ORIGIN.fullmatch(each):
            raise ValueError(f"{each!r} must be an origin such as https://console.example, or *")
    return value


def _methods(value: str) -> str:
    for each in split_addresses(value):
        if not _METHOD.fullmatch(each):
            raise ValueError(f"{each!r} must be an HTTP method in upper case, such as GET")
    return value


def _response_headers(value: str) -> str:
    parse_header_rules(value)
    return value


def _networks(value: str) -> str:
    for each in split_addresses(value):
        ipaddress.ip_network(each, strict=False)
    return value


def _session_keys(value: str) -> str:
    PlanSeal.from_setting(value)
    return value


def _optional_listen(value: str) -> str:
    if value:
        split_address(value)
    return value


def _optional_origin(value: str) -> str:
    if value and not _ORIGIN.fullmatch(value.removesuffix("/")):
        raise ValueError("must be a scheme and a host, such as https://drover.example.com")
    return value.removesuffix("/")


def _optional_issuer(value: str) -> str:
    fault = url_fault(value) if value else ""
    if not fault and "?" in value:
        fault = "must have no query"
    if fault:
        raise ValueError(fault)
    return value


def _client_id(value: str) -> str:
    if not _CLIENT_ID.fullmatch(value):
        raise ValueError("must have printable ASCII characters only, at most 500")
    return value


def _secret_file(value: str) -> str:
    if value:
        read_client_secret(value)
    return value


def read_client_secret(path: str) -> str:
    """The secret in a file, without the end of its line.

    Raises:
        ValueError: There is none; the message has the reason, and no part of the file.
    """
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - paths are strings here
            data = file.read(_SECRET_MAX_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    try:
        secret = data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8") from None
    if not secret or len(data) > _SECRET_MAX_BYTES or not secret.isprintable():
        raise ValueError(f"{path} must have one line with the client's secret")
    return secret


def _scopes(value: str) -> str:
    scopes = value.split()
    if "openid" not in scopes:
        raise ValueError("must have the scope openid: without it the issuer returns no ID token")
    if not all(_SCOPE.fullmatch(each) for each in scopes):
        raise ValueError("must be scopes separated by spaces, such as 'openid profile groups'")
    return " ".join(scopes)


def _authorities_file(value: str) -> str:
    if value:
        try:
            ssl.create_default_context(cafile=value)
        except (OSError, ssl.SSLError) as error:
            why = error.strerror if isinstance(error, FileNotFoundError) else "it is no PEM file"
            raise ValueError(f"{value} cannot be used: {why}") from None
    return value


class GatewaySettings(ProcessSettings):
    """From the environment: DROVER_GATEWAY_… and the settings of every process.

    ``tls_ca`` has the authorities of the workers, ``tls_cert`` and ``tls_key`` the certificate that
    the gateway shows to them. It needs no grant: every call has the credential of its caller.

    Attributes:
        gateway_listen: host:port for HTTP clients.
        gateway_workers: host:port of the workers, comma-separated.
        gateway_tls_cert: The certificate for HTTPS, a PEM file; by default ``tls_cert``. The file
            may be replaced at any time.
        gateway_tls_key: Its private key, a PEM file.
        gateway_hosts: The values of the Host header that are accepted, comma-separated, with or
            without a port, or * for all. By default the listen address, this machine's names, the
            hosts of the certificate, and loopback.
        gateway_allow_origins: The origins of web pages that may read responses, comma-separated, or
            *; as Kafka Connect's ``access.control.allow.origin``. Empty for none.
        gateway_allow_methods: The methods that these pages may use, comma-separated; as
            ``access.control.allow.methods``. Empty for GET, POST and HEAD.
        gateway_response_headers: Headers of every response; as ``response.http.headers.config``.
        gateway_trusted_proxies: Addresses or networks of proxies whose X-Forwarded-For header is
            believed, comma-separated.
        gateway_topics: ``on``; ``read``, without resets; or ``off``: the paths with the topics of
            connectors, as ``topic.tracking.enable`` and ``topic.tracking.allow.reset``.
        gateway_admin: ``on``, or ``off``: whether ``/admin/loggers`` is served.
        gateway_admin_listen: host:port of ``/admin/loggers``; empty for the address of all other
            paths, as ``admin.listeners``.
        gateway_health: ``open``, or ``authenticated``: whether ``/health`` needs a credential.
        gateway_secrets: ``masked``, or ``admin``: whether callers with the role ADMIN for a
            connector read its secrets as Kafka Connect shows them; each read is in the audit log.
        gateway_mcp: ``off``; ``read``, tools for agents at ``/mcp``; or ``write``, with the tool
            that carries out planned changes. The tools need ``drover-gateway[mcp]``.
        gateway_console: ``on``, or ``off``: whether the console is served at ``/ui/``.
        gateway_session_keys: The keys that seal plans and the console's sessions, comma-separated,
            of at least 32 characters: the first one seals, all are accepted. All copies of the
            gateway need the same ones. Empty for a key that the process makes at its start:
            sessions then end with the process.
        gateway_url: The URL under which browsers reach the gateway, such as
            https://drover.example.com. Empty for the scheme and the Host header of each request,
            which suits unless a proxy changes them. The issuer sends users to
            /ui/sign-in/callback below it.
        gateway_oidc_issuer: The issuer that users of the console may sign in with (OpenID Connect),
            an https URL as in its claim ``iss``. Empty for tokens alone.
        gateway_oidc_client_id: The id of the gateway as a client of the issuer.
        gateway_oidc_client_secret_file: A file with the client's secret, reloaded when it changes;
            empty for a public client.
        gateway_oidc_scopes: The scopes to ask for, separated by spaces; ``openid`` is one of them.
        gateway_oidc_token: ``id``, or ``access``: the token that the workers get.
        gateway_oidc_ca: The authorities of the issuer's certificate, a PEM file; empty for the
            authorities of the system.
        gateway_kafka_connect_version: The version that ``GET /`` returns, for clients that compare
            it.
    """

    gateway_listen: ListenAddress = "127.0.0.1:8083"
    gateway_workers: RequiredAddresses = "127.0.0.1:7411"
    gateway_tls_cert: str = ""
    gateway_tls_key: str = ""
    gateway_hosts: str = ""
    gateway_allow_origins: Annotated[str, AfterValidator(_origins)] = ""
    gateway_allow_methods: Annotated[str, AfterValidator(_methods)] = ""
    gateway_response_headers: Annotated[str, AfterValidator(_response_headers)] = ""
    gateway_trusted_proxies: Annotated[str, AfterValidator(_networks)] = ""
    gateway_topics: Literal["on", "read", "off"] = "on"
    gateway_admin: Literal["on", "off"] = "on"
    gateway_admin_listen: Annotated[str, AfterValidator(_optional_listen)] = ""
    gateway_health: Literal["open", "authenticated"] = "open"
    gateway_secrets: Literal["masked", "admin"] = "masked"
    gateway_mcp: Literal["off", "read", "write"] = "off"
    gateway_console: Literal["on", "off"] = "on"
    gateway_session_keys: Annotated[str, AfterValidator(_session_keys)] = Field(
        default="", repr=False
    )
    gateway_url: Annotated[str, AfterValidator(_optional_origin)] = ""
    gateway_oidc_issuer: Annotated[str, AfterValidator(_optional_issuer)] = ""
    gateway_oidc_client_id: Annotated[str, AfterValidator(_client_id)] = ""
    gateway_oidc_client_secret_file: Annotated[str, AfterValidator(_secret_file)] = ""
    gateway_oidc_scopes: Annotated[str, AfterValidator(_scopes)] = "openid"
    gateway_oidc_token: Literal["id", "access"] = "id"
    gateway_oidc_ca: Annotated[str, AfterValidator(_authorities_file)] = ""
    gateway_kafka_connect_version: Annotated[str, Field(min_length=1)] = KAFKA_CONNECT_VERSION

    @field_validator("gateway_mcp")
    @classmethod
    def _tools_are_installed(cls, value: str) -> str:
        if value != "off" and find_spec("mcp") is None:
            raise ValueError("the tools are not installed: pip install 'drover-gateway[mcp]'")
        return value

    @model_validator(mode="after")
    def _certificates_are_complete(self) -> Self:
        if bool(self.tls_cert) != bool(self.tls_key):
            raise ValueError("DROVER_TLS_CERT and DROVER_TLS_KEY must be set together")
        if self.tls_cert and not self.tls_ca:
            raise ValueError("DROVER_TLS_CERT needs DROVER_TLS_CA, the authorities of the workers")
        if bool(self.gateway_tls_cert) != bool(self.gateway_tls_key):
            raise ValueError(
                "DROVER_GATEWAY_TLS_CERT and DROVER_GATEWAY_TLS_KEY must be set together"
            )
        if self.gateway_admin_listen == self.gateway_listen:
            raise ValueError(
                "DROVER_GATEWAY_ADMIN_LISTEN must be another address than DROVER_GATEWAY_LISTEN;"
                " leave it empty to serve /admin/loggers beside the other paths"
            )
        if not (self.tls_ca or self.allow_plaintext):
            remote = [each for each in self.workers if not is_loopback(each)]
            if remote:
                raise ValueError(
                    f"DROVER_GATEWAY_WORKERS={','.join(remote)}: tokens would be sent over a"
                    " network in plain text. Set DROVER_TLS_CA, or allow it with"
                    " DROVER_ALLOW_PLAINTEXT=true"
                )
        return self

    @model_validator(mode="after")
    def _sign_in_is_complete(self) -> Self:
        if not self.gateway_oidc_issuer:
            extra = [
                f"DROVER_{name.upper()}"
                for name in sorted(self.model_fields_set)
                if name.startswith("gateway_oidc_") and getattr(self, name)
            ]
            if extra:
                raise ValueError(f"{', '.join(extra)}: set DROVER_GATEWAY_OIDC_ISSUER too")
            return self
        if not self.gateway_oidc_client_id:
            raise ValueError("DROVER_GATEWAY_OIDC_ISSUER needs DROVER_GATEWAY_OIDC_CLIENT_ID")
        if self.gateway_console == "off":
            raise ValueError("DROVER_GATEWAY_OIDC_ISSUER needs DROVER_GATEWAY_CONSOLE=on")
        return self

    @property
    def workers(self) -> Sequence[str]:
        """The addresses of the workers."""
        return split_addresses(self.gateway_workers)

    @property
    def https_files(self) -> "TlsFiles | None":
        """The certificate for HTTPS; None for HTTP."""
        if self.gateway_tls_cert:
            return _tls_files(self.gateway_tls_cert, self.gateway_tls_cert, self.gateway_tls_key)
        if self.tls_cert:
            return _tls_files(self.tls_ca, self.tls_cert, self.tls_key)
        return None

    def https_certificate(self) -> "Renewed[Certificate] | None":
        """The certificate for HTTPS, reloaded when its files change; None for HTTP.

        Raises:
            InvalidArgumentError: INVALID_CONFIG: a file cannot be used.
        """
        files = self.https_files
        if files is None:
            return None
        return _renewed("certificate for HTTPS", files, [files.cert, files.key])

    def connect(self) -> Connect:
        """Opens channels to workers.

        Raises:
            InvalidArgumentError: INVALID_CONFIG: a file cannot be used.
        """
        if not self.tls_ca:
            return connect_by(None)
        files = _tls_files(self.tls_ca, self.tls_cert, self.tls_key)
        paths = [each for each in (files.ca, files.cert, files.key) if each]
        return connect_by(_renewed("certificate", files, paths))

    def client_secret(self) -> Callable[[], str]:
        """Returns the secret of the gateway as a client of the issuer; empty if it has none."""
        path = self.gateway_oidc_client_secret_file
        if not path:
            return lambda: ""

        def read() -> str:
            try:
                return read_client_secret(path)
            except ValueError as error:
                raise InvalidArgumentError(Reason.INVALID_CONFIG, str(error)) from None

        return Renewed("client secret", [path], read).present

    def origin_rules(self, certificate: "Certificate | None") -> OriginRules:
        """Which Host and Origin headers are accepted; ``certificate`` is the one for HTTPS."""
        return OriginRules(
            hosts=frozenset(self._hosts(certificate)),
            origins=tuple(split_addresses(self.gateway_allow_origins)),
        )

    def _hosts(self, certificate: "Certificate | None") -> Sequence[str]:
        if self.gateway_hosts:
            return [each.lower() for each in split_addresses(self.gateway_hosts)]
        names = [split_address(self.gateway_listen)[0], socket.gethostname(), socket.getfqdn()]
        if self.gateway_admin_listen:
            names.append(split_address(self.gateway_admin_listen)[0])
        names += [] if certificate is None else certificate.hosts
        return [*LOOPBACK_HOSTS, *(each.lower() for each in names)]


def _tls_files(ca: str, cert: str, key: str) -> "TlsFiles":
    # imported here: it loads cryptography, 8 MiB that a gateway without TLS does not need
    from drover.security.certificates import TlsFiles

    return TlsFiles(ca, cert, key)


def _renewed(name: str, files: "TlsFiles", paths: Sequence[str]) -> "Renewed[Certificate]":
    from drover.security.certificates import read_certificate

    return Renewed(name, paths, partial(read_certificate, files, of_cluster=False))
