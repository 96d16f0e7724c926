"""A certificate authority for a trial, and certificates of it.

Its key lies beside the certificates, in the clear: whoever reads it can be anybody.
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
#: The services', and one for each role of people. The names are also those of the grants.
SERVICE = "service"
ROLES: Mapping[str, str] = {
    SERVICE: "internal",
    "admin": "admin",
    "operator": "operator",
    "viewer": "viewer",
}
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
CA_DAYS = 3650
#: Certificates that are kept are issued anew when there is less left.
RENEWED_BEFORE = timedelta(days=30)
#: Clocks may be apart.
_BACKDATED = timedelta(minutes=5)

_Key = ec.EllipticCurvePrivateKey


class Authority:
    """Signs certificates."""

    def __init__(self, key: _Key, certificate: x509.Certificate) -> None:
        self._key = key
        self.certificate = certificate

    @classmethod
    def make(cls, days: int = CA_DAYS) -> "Authority":
        """One with a key of its own."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _subject("Drover development CA")
        now = datetime.now(UTC)
        certificate = (
            _begun(name, name, key, now - _BACKDATED, now + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(key, certificate)

    @classmethod
    def read(cls, directory: Path) -> "Authority":
        """The one in a directory.

        Raises:
            InvalidArgumentError: INVALID_CONFIG: there is none that can be used.
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
        """A certificate for servers and clients, and its key, both as PEM.

        Args:
            name: Its common name, and one of its alternative names.
            hosts: Names and addresses that servers with it are reached by.
            begins: From when it is valid.
            ends: Until when.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        both = x509.ExtendedKeyUsage(
            [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        )
        certificate = (
            _begun(_subject(name), self.certificate.subject, key, begins, ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(both, critical=False)
            .add_extension(
                x509.SubjectAlternativeName([_alternative(each) for each in (name, *hosts)]),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key)

    def key_pem(self) -> bytes:
        """Its key."""
        return _key_pem(self._key)


def init_certificates(
    directory: Path, *, hosts: Sequence[str] = (), days: int = 365, renew: bool = False
) -> None:
    """Make an authority, a certificate for the services and one for each role, and an access file.

    Args:
        directory: Made if need be.
        hosts: Names and addresses of this cluster's machines, beside those of loopback;
            ``*.domain`` for every name right below one.
        days: How long the certificates are valid.
        renew: Keep the authority and the access file that are there, and issue the others anew.

    Raises:
        AlreadyExistsError: There are certificates, and they are not to be renewed.
        InvalidArgumentError: INVALID_CONFIG: there are none to renew.
        OSError: The directory cannot be written.
    """
    if not renew and (directory / CA_FILE).exists():
        raise AlreadyExistsError(
            Reason.INVALID_CONFIG,
            f"{directory} has certificates: --renew issues them anew, by the same authority, and"
            " --keep leaves them as they are",
        )
    authority = Authority.read(directory) if renew else Authority.make()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not renew:
        replace_file(directory / CA_KEY_FILE, authority.key_pem(), mode=0o600)
        replace_file(directory / CA_FILE, _pem(authority.certificate), mode=0o644)
    begins = datetime.now(UTC) - _BACKDATED
    for name in ROLES:
        cert, key = authority.issue(
            f"drover-{name}",
            hosts=(*LOOPBACK_HOSTS, *hosts) if name == SERVICE else (),
            begins=begins,
            ends=begins + _BACKDATED + timedelta(days=days),
        )
        replace_file(directory / f"{name}-key.pem", key, mode=0o600)
        replace_file(directory / f"{name}.pem", cert, mode=0o644)
    if not (renew and (directory / ACCESS_FILE).exists()):
        replace_file(directory / ACCESS_FILE, _access_file().encode(), mode=0o600)


def keep_certificates(directory: Path, *, hosts: Sequence[str] = (), days: int = 365) -> str:
    """See to it that a directory has certificates that will do, as for a cluster that starts.

    They are issued by the authority that is there, if any, and only when one is missing, cannot be
    used, has less than ``RENEWED_BEFORE`` left or is not for ``hosts``.

    Returns:
        Why they were issued; empty when they were kept.

    Raises:
        InvalidArgumentError: INVALID_CONFIG: there is an authority that cannot be used.
        OSError: The directory cannot be written.
    """
    there = (directory / CA_FILE).exists()
    reason = _lacking(directory, hosts) if there else "there were none"
    if reason:
        init_certificates(directory, hosts=hosts, days=days, renew=there)
    return reason


def _lacking(directory: Path, hosts: Sequence[str]) -> str:
    if not (directory / ACCESS_FILE).exists():
        return f"{ACCESS_FILE} was missing"
    soon = datetime.now(UTC) + RENEWED_BEFORE
    for name in ROLES:
        try:
            found = read_certificate(files_of(directory, name))
        except InvalidArgumentError as error:
            return error.message
        if found.ends is None or found.ends < soon:
            return f"{name}.pem ended soon"
        if name == SERVICE and not all(is_for(found, host) for host in hosts):
            return f"{name}.pem was for other hosts"
    return ""


def files_of(directory: Path, name: str) -> TlsFiles:
    """The certificate of this name in a directory that ``init_certificates`` made."""
    return TlsFiles(
        ca=str(directory / CA_FILE),
        cert=str(directory / f"{name}.pem"),
        key=str(directory / f"{name}-key.pem"),
    )


def _access_file() -> str:
    lines = [
        "# Who may do what; services read it again when it changes.",
        "# How: docs/security.md",
        "grants:",
    ]
    for name, role in ROLES.items():
        lines += [f"  - certificate: drover-{name}", f"    role: {role}"]
    return "\n".join(lines) + "\n"


def _begun(
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
        f"{directory} has no authority to renew certificates by ({CA_FILE}, {CA_KEY_FILE})",
    )
