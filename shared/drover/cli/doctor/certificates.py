"""Checks certificate files of clients and services, and certificates that servers present."""

import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509

from drover.cli.doctor.finding import Finding, Level
from drover.security.certificates import TlsFiles
from drover.security.development_ca import SERVICE, files_of

RENEW_BEFORE = timedelta(days=14)
_RENEW = "renew it and replace the file"


@dataclass(frozen=True, slots=True)
class Named:
    """TLS files, and the names that findings use for them.

    Attributes:
        files: Paths; empty ones are not checked.
        ca: The setting, option or file name of the CA file.
        cert: The setting, option or file name of the certificate.
        key: The setting, option or file name of its key.
        of_service: Whether the certificate is a service's; the CA file must contain its issuer.
    """

    files: TlsFiles
    ca: str
    cert: str
    key: str
    of_service: bool


def of_command(files: TlsFiles, environ: Mapping[str, str]) -> Named:
    """The files of the running command, named by the setting or the option that gave them.

    Files given by settings alone are taken to be a service's too.
    """
    given = {"ca": files.ca, "cert": files.cert, "key": files.key}
    names = {}
    for what, path in given.items():
        setting = f"DROVER_TLS_{what.upper()}"
        names[what] = setting if environ.get(setting) == path else f"--tls-{what}"
    of_service = bool(files.cert) and not any(each.startswith("--") for each in names.values())
    return Named(files, **names, of_service=of_service)


def of_cluster(directory: Path) -> Named:
    """The service files in a cluster's certificate directory."""
    files = files_of(directory, SERVICE)
    paths = {what: Path(getattr(files, what)).name for what in ("ca", "cert", "key")}
    return Named(files, **paths, of_service=True)


def look_at_certificates(named: Named) -> list[Finding]:
    """Check that the files are readable, valid now, and match each other."""
    read: dict[str, list[x509.Certificate]] = {}
    findings: list[Finding] = []
    for name, path in ((named.cert, named.files.cert), (named.ca, named.files.ca)):
        if not path:
            continue
        try:
            read[name] = x509.load_pem_x509_certificates(Path(path).read_bytes())
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "no certificate in PEM form"
            findings.append(Finding(name, Level.ERROR, f"{path}: {why}", f"correct {name}"))
        else:
            findings += [_validity(name, each) for each in read[name]]
    if named.cert in read:
        findings += _fits(named, read)
    return findings


def ends_soon(certificate: x509.Certificate) -> bool:
    """Whether the certificate expires within ``RENEW_BEFORE``."""
    return certificate.not_valid_after_utc - datetime.now(UTC) < RENEW_BEFORE


def _validity(name: str, certificate: x509.Certificate) -> Finding:
    now = datetime.now(UTC)
    first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    subject = certificate.subject.rfc4514_string() or "without a subject"
    if now < first:
        return Finding(
            name,
            Level.ERROR,
            f"{subject}: not valid before {first:%Y-%m-%d %H:%M} UTC",
            "correct this machine's clock, or wait until then",
        )
    if now > last:
        return Finding(name, Level.ERROR, f"{subject}: expired {last:%Y-%m-%d %H:%M} UTC", _RENEW)
    level = Level.WARNING if ends_soon(certificate) else Level.OK
    return Finding(
        name, level, f"{subject}: valid until {last:%Y-%m-%d}", _RENEW if level != Level.OK else ""
    )


def _fits(named: Named, read: Mapping[str, list[x509.Certificate]]) -> Iterator[Finding]:
    files = named.files
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            files.cert, files.key or None, password=lambda: ""
        )
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", None) or getattr(error, "strerror", None) or "unreadable"
        yield Finding(
            named.key,
            Level.ERROR,
            f"{files.key or 'no key'} does not match the certificate:"
            f" {str(why).replace('_', ' ').lower()}",
            f"{named.key} must name the private key of {named.cert}, without a password",
        )
    chain, authorities = read[named.cert], read.get(named.ca, [])
    if named.of_service and authorities and not any(_issued(chain[-1], by) for by in authorities):
        yield Finding(
            named.ca,
            Level.ERROR,
            f"no CA in the file signed {chain[-1].subject.rfc4514_string()}",
            f"{named.ca} must contain the CA that signed the certificates of services and clients",
        )


def _issued(certificate: x509.Certificate, by: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(by)
    except Exception:  # noqa: BLE001 - names, signatures and key types raise different errors
        return certificate == by
    return True
