"""Certificates from files: read, checked, and read again when they change."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import structlog
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID

from drover.errors import InvalidArgumentError, Reason
from drover.security.renewed import Renewed

#: A service's certificate that ends sooner is warned of whenever it is read.
ENDS_SOON = timedelta(days=7)
#: How many of a certificate's names a message has.
_NAMED_MAX = 8

_log = structlog.get_logger("drover.security")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where the PEM files are. A client may have a CA only: it shows no certificate.

    Attributes:
        ca: The certificates of the authorities that the other side's must be signed by.
        cert: The own certificate, followed by those between it and the authority, if any.
        key: Its private key, without a password.
    """

    ca: str
    cert: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class Certificate:
    """What TLS needs, as PEM.

    Attributes:
        ca_pem: The authorities.
        cert_pem: The own chain; empty without one.
        key_pem: The own key; empty without one.
        names: Of the own certificate: alternative names, and the common name.
        hosts: The host names and addresses that the own certificate is for.
        ends: When the own certificate ends; None without one.
    """

    ca_pem: bytes
    cert_pem: bytes = b""
    key_pem: bytes = b""
    names: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    ends: datetime | None = None


def read_certificate(
    files: TlsFiles, *, of_cluster: bool = True, advertised: Mapping[str, str] | None = None
) -> Certificate:
    """Read the files and check that TLS can work with them.

    Args:
        files: Where they are.
        of_cluster: Whether the own certificate must be signed by those authorities, as a service's
            that shows it to others; a client's may be signed by one that only servers know.
        advertised: Hosts that the own certificate must be for, as others reach the service there,
            by the setting that says so.

    Raises:
        InvalidArgumentError: INVALID_CONFIG: a file cannot be read or is no PEM, the key belongs to
            another certificate, the certificate is not valid now, not signed by the authority or
            not for an advertised host.
    """
    ca_pem = _read(files.ca)
    authorities = _parse(files.ca, ca_pem)
    if not files.cert:
        return Certificate(ca_pem)
    cert_pem, key_pem = _read(files.cert), _read(files.key)
    chain = _parse(files.cert, cert_pem)
    own = chain[0]
    try:
        key = serialization.load_pem_private_key(key_pem, None)
    except (ValueError, TypeError) as error:
        text = "needs a password, which cannot be given" if "encrypt" in str(error) else "is none"
        raise _unusable(files.key, f"must hold a private key as PEM; it {text}") from None
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
    found = Certificate(
        ca_pem, cert_pem, key_pem, names_of(own), _hosts_of(own), own.not_valid_after_utc
    )
    missing = {by: host for by, host in (advertised or {}).items() if not is_for(found, host)}
    if missing:
        raise _unusable(files.cert, _for_others(found, missing))
    if of_cluster and own.not_valid_after_utc - now < ENDS_SOON:
        _log.warning("a certificate ends soon", file=files.cert, ends=_day(own.not_valid_after_utc))
    return found


def names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """Alternative names of every kind, and the common name."""
    names: list[str] = []
    alternative = _alternative_names(certificate)
    if alternative is not None:
        for kind in (x509.DNSName, x509.UniformResourceIdentifier, x509.RFC822Name):
            names += alternative.get_values_for_type(kind)
        names += [str(each) for each in alternative.get_values_for_type(x509.IPAddress)]
    return tuple(dict.fromkeys([*names, *_common_names(certificate)]))


def _hosts_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """As gRPC sees it: the common name counts only where there are no alternative names."""
    alternative = _alternative_names(certificate)
    if alternative is None:
        return tuple(_common_names(certificate))
    addresses = alternative.get_values_for_type(x509.IPAddress)
    return (*alternative.get_values_for_type(x509.DNSName), *(str(each) for each in addresses))


def _alternative_names(certificate: x509.Certificate) -> x509.SubjectAlternativeName | None:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return None
    return found.value


def _common_names(certificate: x509.Certificate) -> list[str]:
    found = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return [str(each.value) for each in found]


def renewed_certificate(
    files: TlsFiles, *, advertised: Mapping[str, str] | None = None
) -> Renewed[Certificate]:
    """The certificate in files that may change at any time.

    Raises:
        InvalidArgumentError: As ``read_certificate``.
    """
    paths = [path for path in (files.ca, files.cert, files.key) if path]
    return Renewed("certificate", paths, lambda: read_certificate(files, advertised=advertised))


def is_for(certificate: Certificate, host: str) -> bool:
    """Whether clients take a certificate for that of a host name or address."""
    hosts = {each.lower() for each in certificate.hosts}
    try:
        return str(ipaddress.ip_address(host)) in hosts
    except ValueError:
        wanted = host.lower()
    return wanted in hosts or f"*.{wanted.partition('.')[2]}" in hosts


def _for_others(certificate: Certificate, missing: Mapping[str, str]) -> str:
    """What is wrong with one that is not for these hosts, and what to do."""
    named = ", ".join(certificate.hosts[:_NAMED_MAX]) or "no host"
    more = ", …" if len(certificate.hosts) > _NAMED_MAX else ""
    hosts = list(dict.fromkeys(missing.values()))
    options = " ".join(f"--host {host}" for host in hosts)
    return (
        f"is for {named}{more}, not for {' and '.join(hosts)}, where others reach this service"
        f" ({', '.join(missing)}): have it issued for that too (`drover certs init DIR --renew"
        f" {options}`, or what your authority has), or advertise a host that it is for"
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
        raise _unusable(path, "must hold certificates as PEM") from None


def _signed(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    if certificate == authority:
        return True
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _unusable(path: str, what: str) -> InvalidArgumentError:
    return InvalidArgumentError(Reason.INVALID_CONFIG, f"{path} {what}")


def _day(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M UTC")
