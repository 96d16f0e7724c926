"""Certificates as PEM files."""

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.addresses import HOST


@dataclass(frozen=True, slots=True)
class Pem:
    """A self-signed certificate with its password-protected key."""

    certificate: Path
    both: Path
    password: str = "not-so-secret"

    def server_context(self, client: "Pem") -> ssl.SSLContext:
        """A TLS context for a server with this certificate that accepts only ``client``."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.both, password=self.password)
        context.load_verify_locations(client.certificate)
        context.verify_mode = ssl.CERT_REQUIRED
        return context


def make_pem(directory: Path, name: str) -> Pem:
    """Make a certificate for the loopback address; its files are named after ``name``."""
    made = Pem(directory / f"{name}.pem", directory / f"{name}-both.pem")
    key = ec.generate_private_key(ec.SECP256R1())
    who = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    place = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(who)
        .issuer_name(who)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(place, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    shown = certificate.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(made.password.encode()),
    )
    made.certificate.write_bytes(shown)
    made.both.write_bytes(secret + shown)
    return made
