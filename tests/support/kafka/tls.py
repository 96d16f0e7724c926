"""Certificates for TLS brokers and clients, made with the JDK's keytool."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support.addresses import HOST
from tests.support.kafka.jars import KafkaJars

_PASSWORD = "not-so-secret"
_KEYTOOL_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Certificate:
    """A self-signed certificate: its key in a PKCS #12 file, and its PEM file."""

    keystore: Path
    pem: Path
    password: str = _PASSWORD


@dataclass(frozen=True, slots=True)
class Tls:
    """A broker's certificate, and the certificate of the only client that its TLS listener
    accepts.
    """

    broker: Certificate
    client: Certificate

    def broker_settings(self) -> dict[str, object]:
        """The broker's TLS settings."""
        return {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": self.broker.keystore,
            "ssl.keystore.password": self.broker.password,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.client.pem,
            "ssl.client.auth": "required",
        }

    def client_settings(self) -> dict[str, str]:
        """The client's settings for librdkafka."""
        return {
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.broker.pem),
            "ssl.keystore.location": str(self.client.keystore),
            "ssl.keystore.password": self.client.password,
        }

    def java_client_settings(self) -> dict[str, str]:
        """The client's settings for Java."""
        return {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.broker.pem),
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(self.client.keystore),
            "ssl.keystore.password": self.client.password,
        }


def make_certificate(jars: KafkaJars, directory: Path, name: str) -> Certificate:
    """Make a certificate for the loopback address; its files are named after ``name``."""
    made = Certificate(directory / f"{name}.p12", directory / f"{name}.pem")
    store = ["-alias", name, "-keystore", str(made.keystore), "-storepass", made.password]
    _keytool(
        jars,
        *("-genkeypair", *store, "-storetype", "PKCS12", "-keyalg", "EC", "-groupname"),
        *("secp256r1", "-validity", "2", "-dname", f"CN={name}", "-ext", f"SAN=ip:{HOST}"),
    )
    _keytool(jars, "-exportcert", "-rfc", *store, "-file", str(made.pem))
    return made


def _keytool(jars: KafkaJars, *arguments: str) -> None:
    done = subprocess.run(
        [str(jars.java.with_name("keytool")), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=_KEYTOOL_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"keytool {arguments[0]}: {done.stdout}"
