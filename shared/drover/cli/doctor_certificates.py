"""Looks at the certificates that the environment names."""

import ssl
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509

from drover.cli.doctor_finding import Finding, Level

CERTIFICATE, KEY, AUTHORITIES = "DROVER_TLS_CERT", "DROVER_TLS_KEY", "DROVER_TLS_CA"
RENEW_BEFORE = timedelta(days=14)
_RENEW = "renew it and put it at the same place"


def look_at_certificates(environ: Mapping[str, str]) -> list[Finding]:
    """Whether those that are configured can be read, hold now, and fit each other."""
    named = {name: environ[name] for name in (CERTIFICATE, AUTHORITIES) if environ.get(name)}
    read: dict[str, list[x509.Certificate]] = {}
    findings: list[Finding] = []
    for name, path in named.items():
        try:
            read[name] = x509.load_pem_x509_certificates(Path(path).read_bytes())
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "no certificate in PEM form"
            findings.append(Finding(name, Level.ERROR, f"{path}: {why}", f"correct {name}"))
        else:
            findings += [_validity(name, each) for each in read[name]]
    if CERTIFICATE in read:
        findings += _fits(environ, read)
    return findings


def _validity(name: str, certificate: x509.Certificate) -> Finding:
    now = datetime.now(UTC)
    first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    subject = certificate.subject.rfc4514_string() or "without a subject"
    if now < first:
        return Finding(
            name,
            Level.ERROR,
            f"{subject}: not valid before {first:%Y-%m-%d %H:%M} UTC",
            "wait, or correct this machine's clock",
        )
    if now > last:
        return Finding(name, Level.ERROR, f"{subject}: expired {last:%Y-%m-%d %H:%M} UTC", _RENEW)
    level = Level.WARNING if last - now < RENEW_BEFORE else Level.OK
    return Finding(
        name, level, f"{subject}: valid until {last:%Y-%m-%d}", _RENEW if level != Level.OK else ""
    )


def _fits(
    environ: Mapping[str, str], read: Mapping[str, list[x509.Certificate]]
) -> Iterator[Finding]:
    key = environ.get(KEY, "")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            environ[CERTIFICATE], key or None, password=lambda: ""
        )
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", None) or getattr(error, "strerror", None) or "unreadable"
        yield Finding(
            KEY,
            Level.ERROR,
            f"{key or 'no key'} does not fit the certificate: {str(why).replace('_', ' ').lower()}",
            f"{KEY} must name the private key of {CERTIFICATE}, without a password",
        )
    chain, authorities = read[CERTIFICATE], read.get(AUTHORITIES, [])
    if authorities and not any(_issued(chain[-1], by) for by in authorities):
        yield Finding(
            AUTHORITIES,
            Level.ERROR,
            f"none of them has signed {chain[-1].subject.rfc4514_string()}",
            f"{AUTHORITIES} must hold who signed the certificates of services and clients",
        )


def _issued(certificate: x509.Certificate, by: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(by)
    except Exception:  # noqa: BLE001 - names, signatures and kinds of keys each have their own
        return certificate == by
    return True
