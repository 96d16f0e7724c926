"""Certificates made in a test, valid ones and others."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization

from drover.security.certificates import TlsFiles, read_certificate
from drover.security.development_ca import (
    ACCESS_FILE,
    SERVICE,
    Authority,
    files_of,
    init_certificates,
)

__all__ = ["Authority", "files_of", "init_certificates", "issue", "tls_settings"]

LOOPBACK = ("localhost", "127.0.0.1", "::1")
DAY = timedelta(days=1)


def issue(
    directory: Path,
    authority: Authority,
    *,
    name: str = "drover-admin",
    hosts: tuple[str, ...] = LOOPBACK,
    begins: timedelta = -DAY,
    ends: timedelta = 60 * DAY,
    trusted: Authority | None = None,
) -> TlsFiles:
    """Write a certificate's files; ``begins`` and ``ends`` count from now.

    ``trusted`` is the authority in its CA file, by default its own.
    """
    now = datetime.now(UTC)
    cert, key = authority.issue(name, hosts=hosts, begins=now + begins, ends=now + ends)
    directory.mkdir(parents=True, exist_ok=True)
    ca_pem = (trusted or authority).certificate.public_bytes(serialization.Encoding.PEM)
    files = TlsFiles(*(str(directory / f"{each}.pem") for each in ("ca", "cert", "key")))
    for path, data in ((files.ca, ca_pem), (files.cert, cert), (files.key, key)):
        Path(path).write_bytes(data)
    return files


def tls_settings(directory: Path) -> Mapping[str, Any]:
    """A service's settings for the certificates that ``init_certificates`` made."""
    files = files_of(directory, SERVICE)
    read_certificate(files)
    return {
        "tls_cert": files.cert,
        "tls_key": files.key,
        "tls_ca": files.ca,
        "access_file": str(directory / ACCESS_FILE),
    }
