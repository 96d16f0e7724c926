"""A certificate authority for development, and its certificates.

Its key is stored unencrypted beside the certificates: with it, anyone can issue a certificate.
"""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from drover.errors import AlreadyExistsError, InvalidArgumentError, Reason
from drover.security.certificates import TlsFiles, is_for, read_certificate
from drover.security.files import replace_file

CA_FILE = "ca.pem"
CA_KEY_FILE = "ca-key.pem"
ACCESS_FILE = "access.yaml"
#: The name of the services' certificate. ``ROLES`` has the role of each certificate by its name.
SERVICE = "service"
ROLES: Mapping[str, str] = {
    SERVICE: "internal",
    "admin": "admin",
    "operator": "operator",
    "viewer": "viewer",
}
#: The name of the gateways' certificate, which has no role: a gateway's calls have the credentials
#: of its callers.
GATEWAY = "gateway"
#: The names of all certificates.
NAMES = (*ROLES, GATEWAY)
#: The names of the certificates of servers.
_SERVERS = (SERVICE, GATEWAY)
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
CA_DAYS = 3650
#: ``keep_certificates`` renews certificates that expire within this time.
RENEWED_BEFORE = timedelta(days=30)
#: New certificates are valid from this time ago, since clocks of machines may differ.
_BACKDATED = timedelta(minutes=5)

_Key = ec.EllipticCurvePrivateKey


class Authority:
    """Signs certificates."""

    def __init__(self, key: _Key, certificate: x509.Certificate) -> None:
        self._key = key
        self.certificate = certificate

    @classmethod
    def make(cls, days: int = CA_DAYS) -> "Authority":
        """Create an authority with a new key."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _subject("Drover development CA")
        now = datetime.now(UTC)
        certificate = (
            _builder(name, name, key, now - _BACKDATED, now + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            # TLS distinguishes authorities of the same name by it
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .sign(key, hashes.SHA256())
        )
        return cls(key, certificate)

    @classmethod
    def read(cls, directory: Path) -> "Authority":
        """Read the authority in a directory.

        Raises:
            InvalidArgumentError: INVALID_CONFIG: the authority is missing or cannot be used.
        """
        try:
            key = serialization.load_pem_private_key((directory / CA_KEY_FILE).read_bytes(), None)
            certificate = x509.load_pem_x509_certificate((directory / CA_FILE).read_bytes())
        except (OSError, ValueError, TypeError):
            raise _unusable(directory) from None
        if not isinstance(key, _Key) or key.public_key() != certificate.public_key():
            raise _unusable(directory)
        return cls(key, certificate)

    def issue(
        self, name: str, *, hosts: Iterable[str], begins: datetime, ends: datetime
    ) -> tuple[bytes, bytes]:
        """Issue a certificate for servers and clients; returns it and its key, both as PEM.

        Args:
            name: The common name, also added as an alternative name.
            hosts: The names and addresses of servers with this certificate.
            begins: The start of validity.
            ends: The end of validity.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        both = x509.ExtendedKeyUsage(
            [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        )
        certificate = (
            _builder(_subject(name), self.certificate.subject, key, begins, ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(both, critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .add_extension(
                x509.SubjectAlternativeName([_alternative(each) for each in (name, *hosts)]),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key)

    def key_pem(self) -> bytes:
        """The authority's private key as PEM."""
        return _key_pem(self._key)


def init_certificates(
    directory: Path, *, hosts: Sequence[str] = (), days: int = 365, renew: bool = False
) -> None:
    """Create an authority, its certificates (``NAMES``), and an access file.

    Args:
        directory: The directory; created if missing.
        hosts: Names and addresses of the cluster's machines, in addition to loopback; ``*.domain``
            for all names directly below a domain.
        days: The validity of the certificates in days.
        renew: Keep the existing authority and access file, and issue new certificates.

    Raises:
        AlreadyExistsError: The directory has certificates, and ``renew`` is false.
        InvalidArgumentError: INVALID_CONFIG: the directory has no authority to renew with.
        OSError: The directory cannot be written.
    """
    if not renew and (directory / CA_FILE).exists():
        raise AlreadyExistsError(
            Reason.INVALID_CONFIG,
            f"{directory} has certificates already: use --renew to issue new ones by the same"
            " authority, or --keep to keep them",
        )
    authority = Authority.read(directory) if renew else Authority.make()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not renew:
        replace_file(directory / CA_KEY_FILE, authority.key_pem(), mode=0o600)
        replace_file(directory / CA_FILE, _pem(authority.certificate), mode=0o644)
    begins = datetime.now(UTC) - _BACKDATED
    for name in NAMES:
        cert, key = authority.issue(
            f"drover-{name}",
            hosts=(*LOOPBACK_HOSTS, *hosts) if name in _SERVERS else (),
            begins=begins,
            ends=begins + _BACKDATED + timedelta(days=days),
        )
        replace_file(directory / f"{name}-key.pem", key, mode=0o600)
        replace_file(directory / f"{name}.pem", cert, mode=0o644)
    if not (renew and (directory / ACCESS_FILE).exists()):
        replace_file(directory / ACCESS_FILE, _access_file().encode(), mode=0o600)


def keep_certificates(directory: Path, *, hosts: Sequence[str] = (), days: int = 365) -> str:
    """Keep the certificates of a directory if they are usable; otherwise issue new ones.

    New certificates are issued by the existing authority, if any. They are issued if a certificate
    is missing, cannot be used, expires within ``RENEWED_BEFORE`` or is not valid for ``hosts``.

    Returns:
        The reason why new certificates were issued; empty if the existing ones were kept.

    Raises:
        InvalidArgumentError: INVALID_CONFIG: the existing authority cannot be used.
        OSError: The directory cannot be written.
    """
    exists = (directory / CA_FILE).exists()
    reason = _renewal_reason(directory, hosts) if exists else "there were none"
    if reason:
        init_certificates(directory, hosts=hosts, days=days, renew=exists)
    return reason


def _renewal_reason(directory: Path, hosts: Sequence[str]) -> str:
    if not (directory / ACCESS_FILE).exists():
        return f"{ACCESS_FILE} was missing"
    soon = datetime.now(UTC) + RENEWED_BEFORE
    for name in NAMES:
        try:
            certificate = read_certificate(files_of(directory, name))
        except InvalidArgumentError as error:
            return error.message
        if certificate.ends is None or certificate.ends < soon:
            return f"{name}.pem was about to expire"
        if name in _SERVERS and not all(is_for(certificate, host) for host in hosts):
            return f"{name}.pem was not valid for all hosts"
    return ""


def files_of(directory: Path, name: str) -> TlsFiles:
    """The files of a certificate in a directory of ``init_certificates``."""
    return TlsFiles(
        ca=str(directory / CA_FILE),
        cert=str(directory / f"{name}.pem"),
        key=str(directory / f"{name}-key.pem"),
    )


def _access_file() -> str:
    lines = [
        "# The roles of certificates, tokens and users. Services reload this file when it changes.",
        "# See docs/security.md",
        "grants:",
    ]
    for name, role in ROLES.items():
        lines += [f"  - certificate: drover-{name}", f"    role: {role}"]
    return "\n".join(lines) + "\n"


def _builder(
    subject: x509.Name, issuer: x509.Name, key: _Key, begins: datetime, ends: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: _Key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _unusable(directory: Path) -> InvalidArgumentError:
    return InvalidArgumentError(
        Reason.INVALID_CONFIG,
        f"{directory} has no usable authority to renew certificates ({CA_FILE}, {CA_KEY_FILE}):"
        " restore these files, or create new certificates in another directory",
    )
