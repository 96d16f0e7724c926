"""Reads certificates from files, checks them, and reloads them when the files change."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path

import structlog
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID

from drover.errors import InvalidArgumentError, Reason
from drover.model.command_lines import drover_command
from drover.security.renewed import Renewed

#: Reading a service's certificate logs a warning if it expires within this time.
ENDS_SOON = timedelta(days=7)
#: The maximum number of hosts of a certificate in a message.
_NAMED_MAX = 8

_log = structlog.get_logger("drover.security")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The paths of the PEM files. A client without a certificate has only ``ca``.

    Attributes:
        ca: The certificates of the authorities that sign the peers' certificates.
        cert: The process's own certificate, followed by intermediate certificates, if any.
        key: The private key of ``cert``, without a password.
        client_ca: The certificates of the authorities that sign the certificates of users; empty if
            ``ca`` does.
    """

    ca: str
    cert: str = ""
    key: str = ""
    client_ca: str = ""


@dataclass(frozen=True, slots=True)
class Certificate:
    """The authorities, the own certificate and its key, as PEM.

    Attributes:
        ca_pem: The authorities.
        cert_pem: The own certificate chain; empty if there is none.
        key_pem: The own private key; empty if there is none.
        names: The alternative names and the common name of the own certificate.
        hosts: The host names and addresses for which the own certificate is valid.
        ends: The expiry time of the own certificate; None if there is none.
        client_ca_pem: The authorities of users; empty if ``ca_pem`` has them.
    """

    ca_pem: bytes
    cert_pem: bytes = b""
    key_pem: bytes = b""
    names: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    ends: datetime | None = None
    client_ca_pem: bytes = b""


def read_certificate(
    files: TlsFiles, *, of_cluster: bool = True, advertised: Mapping[str, str] | None = None
) -> Certificate:
    """Read the files and check that TLS can use them.

    Args:
        files: The paths of the files.
        of_cluster: Whether an authority in ``files.ca`` must have signed the own certificate, as
            for a service. A client's certificate may have an authority that only servers trust.
        advertised: The hosts for which the own certificate must be valid, by the name of the
            setting that advertises them.

    Raises:
        InvalidArgumentError: INVALID_CONFIG: a file cannot be read or is not PEM, the key belongs
            to another certificate, the certificate is not valid now, not signed by an authority or
            not valid for an advertised host.
    """
    ca_pem = _read(files.ca)
    authorities = _parse(files.ca, ca_pem)
    client_ca_pem = _read(files.client_ca) if files.client_ca else b""
    if client_ca_pem:
        _check_client_authorities(files, authorities, _parse(files.client_ca, client_ca_pem))
    if not files.cert:
        return Certificate(ca_pem)
    cert_pem, key_pem = _read(files.cert), _read(files.key)
    chain = _parse(files.cert, cert_pem)
    own = chain[0]
    try:
        key = serialization.load_pem_private_key(key_pem, None)
    except (ValueError, TypeError) as error:
        fault = "it is encrypted" if "encrypt" in str(error) else "it has none"
        raise _unusable(
            files.key, f"must have a private key as PEM, without a password, but {fault}"
        ) from None
    if key.public_key() != own.public_key():
        raise _unusable(files.key, f"is not the key of the certificate in {files.cert}")
    now = datetime.now(UTC)
    if now >= own.not_valid_after_utc:
        raise _unusable(files.cert, f"expired on {_day(own.not_valid_after_utc)}: renew it")
    if now < own.not_valid_before_utc:
        begins = _day(own.not_valid_before_utc)
        raise _unusable(files.cert, f"is valid from {begins} only: check this machine's clock")
    if of_cluster and not any(_signed(chain[-1], authority) for authority in authorities):
        raise _unusable(files.cert, f"is not signed by an authority in {files.ca}")
    certificate = Certificate(
        ca_pem,
        cert_pem,
        key_pem,
        names_of(own),
        _hosts_of(own),
        own.not_valid_after_utc,
        client_ca_pem,
    )
    missing = {
        setting: host
        for setting, host in (advertised or {}).items()
        if not is_for(certificate, host)
    }
    if missing:
        raise _unusable(files.cert, _missing_hosts_text(certificate, missing))
    if of_cluster and own.not_valid_after_utc - now < ENDS_SOON:
        _log.warning(
            "a certificate expires soon: renew it",
            file=files.cert,
            ends=_day(own.not_valid_after_utc),
        )
    return certificate


def names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """All alternative names and the common name."""
    names: list[str] = []
    alternative = _alternative_names(certificate)
    if alternative is not None:
        for kind in (x509.DNSName, x509.UniformResourceIdentifier, x509.RFC822Name):
            names += alternative.get_values_for_type(kind)
        names += [str(each) for each in alternative.get_values_for_type(x509.IPAddress)]
    return tuple(dict.fromkeys([*names, *_common_names(certificate)]))


def _hosts_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """The hosts, as gRPC matches them: the common name only if there are no alternative names."""
    alternative = _alternative_names(certificate)
    if alternative is None:
        return tuple(_common_names(certificate))
    addresses = alternative.get_values_for_type(x509.IPAddress)
    return (*alternative.get_values_for_type(x509.DNSName), *(str(each) for each in addresses))


def _alternative_names(certificate: x509.Certificate) -> x509.SubjectAlternativeName | None:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return None
    return extension.value


def _common_names(certificate: x509.Certificate) -> list[str]:
    attributes = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return [str(each.value) for each in attributes]


def renewed_certificate(
    files: TlsFiles, *, advertised: Mapping[str, str] | None = None
) -> Renewed[Certificate]:
    """The certificate in the files, reloaded when they change.

    Raises:
        InvalidArgumentError: As ``read_certificate``.
    """
    paths = [path for path in (files.ca, files.cert, files.key, files.client_ca) if path]
    return Renewed("certificate", paths, lambda: read_certificate(files, advertised=advertised))


@lru_cache(maxsize=10_000)
def is_issued_by(cert_pem: bytes, ca_pem: bytes) -> bool:
    """Whether one of the authorities in ``ca_pem`` has signed the certificate itself."""
    try:
        certificate = x509.load_pem_x509_certificate(cert_pem)
        authorities = x509.load_pem_x509_certificates(ca_pem)
    except ValueError:
        return False
    return any(_signed(certificate, authority) for authority in authorities)


def is_for(certificate: Certificate, host: str) -> bool:
    """Whether clients accept the certificate for a host name or address."""
    hosts = {each.lower() for each in certificate.hosts}
    try:
        return str(ipaddress.ip_address(host)) in hosts
    except ValueError:
        host_name = host.lower()
    return host_name in hosts or f"*.{host_name.partition('.')[2]}" in hosts


def _check_client_authorities(
    files: TlsFiles, authorities: list[x509.Certificate], of_users: list[x509.Certificate]
) -> None:
    """Raise InvalidArgumentError if an authority may sign for users and for services."""
    keys = [each.public_key() for each in authorities]
    if any(each.public_key() in keys for each in of_users):
        raise _unusable(
            files.client_ca,
            f"has an authority that is also in {files.ca}, so its users' certificates would be"
            " accepted as services': use a separate authority for users",
        )


def _missing_hosts_text(certificate: Certificate, missing: Mapping[str, str]) -> str:
    """The error text for a certificate that is not valid for the ``missing`` hosts."""
    named = ", ".join(certificate.hosts[:_NAMED_MAX]) or "no host"
    more = ", …" if len(certificate.hosts) > _NAMED_MAX else ""
    hosts = list(dict.fromkeys(missing.values()))
    options = [word for host in hosts for word in ("--host", host)]
    command = drover_command("certs init", "DIR", options=["--renew", *options])
    return (
        f"is valid for {named}{more}, not for {' and '.join(hosts)}, which this service advertises"
        f" ({', '.join(missing)}): issue a certificate for it too (`{command}`, or by"
        " your authority), or advertise a host of the certificate"
    )


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise _unusable(path, f"cannot be read: {error.strerror}") from None


def _parse(path: str, pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise _unusable(path, "must have certificates as PEM") from None


def _signed(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    if certificate == authority:
        return True
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _unusable(path: str, fault: str) -> InvalidArgumentError:
    return InvalidArgumentError(Reason.INVALID_CONFIG, f"{path} {fault}")


def _day(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M UTC")
