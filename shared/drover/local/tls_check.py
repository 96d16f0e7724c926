"""Finds the TLS problem that prevents a connection to a server which listens."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cryptography import x509

from drover.model.command_lines import drover_command
from drover.security.certificates import TlsFiles, names_of

TIMEOUT_S = 3.0

#: OpenSSL's verification error codes.
_NOT_YET_VALID, _EXPIRED = 9, 10
_OF_ANOTHER_HOST = (62, 64)
_UNKNOWN_AUTHORITY = (2, 7, 18, 19, 20, 21)
_EXPLAINED = (_NOT_YET_VALID, _EXPIRED, *_OF_ANOTHER_HOST, *_UNKNOWN_AUTHORITY)
_GIVE_AUTHORITY = "give the cluster's CA by --tls-ca"
_NAMED_MAX = 8


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a TLS connection fails.

    Attributes:
        why: The cause, as a predicate of the server's name.
        remedy: What the client's user can do.
    """

    why: str
    remedy: str

    def __str__(self) -> str:
        """Cause and remedy, as a predicate of the server's name."""
        return f"{self.why}; {self.remedy}"


_WANTED_CERTIFICATE = Refusal("requires a client certificate", "give --tls-cert and --tls-key")
_REFUSED_CERTIFICATE = "does not accept your certificate"
_OTHER_CERTIFICATE = "give one that the cluster's CA signed"
_MAYBE_FOREIGN = Refusal(
    f"{_REFUSED_CERTIFICATE}: another CA signed it, or it is not valid now", _OTHER_CERTIFICATE
)
#: TLS alerts that servers send, by OpenSSL's names.
_ALERTS = {
    "CERTIFICATE_REQUIRED": _WANTED_CERTIFICATE,
    "CERTIFICATE_EXPIRED": Refusal(
        f"{_REFUSED_CERTIFICATE}: it has expired", "renew it, or correct the server's clock"
    ),
    "CERTIFICATE_UNKNOWN": _MAYBE_FOREIGN,
    "UNKNOWN_CA": Refusal(f"{_REFUSED_CERTIFICATE}: another CA signed it", _OTHER_CERTIFICATE),
    "BAD_CERTIFICATE": Refusal(_REFUSED_CERTIFICATE, _OTHER_CERTIFICATE),
}


def why_refused(address: str, files: TlsFiles | None) -> Refusal | None:
    """Why a TLS handshake fails, on the server's side or on this side.

    None if no server listens at the address, or if TLS is not the cause.

    Args:
        address: host:port.
        files: The client's TLS files, which must be readable; None for plaintext.
    """
    if files is None:
        if shown_certificate(address) is None:
            return None
        return Refusal(
            "requires TLS",
            "give --tls-ca, with --tls-cert and --tls-key or --token, or use a context",
        )
    return _over_tls(address, files)


def shown_certificate(address: str) -> x509.Certificate | None:
    """The certificate that a gRPC server presents, valid or not; None if it does not use TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with _secured(address, context) as connection:
            shown = connection.getpeercert(binary_form=True)
            if shown is None or connection.selected_alpn_protocol() != "h2":
                return None
            return x509.load_der_x509_certificate(shown)
    except (OSError, ValueError):
        return None


@contextmanager
def _secured(address: str, context: ssl.SSLContext) -> Iterator[ssl.SSLSocket]:
    host, port = _split(address)
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection((host, port), timeout=TIMEOUT_S) as connection,
        context.wrap_socket(connection, server_hostname=host) as secured,
    ):
        yield secured


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _over_tls(address: str, files: TlsFiles) -> Refusal | None:
    context = ssl.create_default_context(cafile=files.ca)
    if files.cert:
        context.load_cert_chain(files.cert, files.key)
    try:
        with _secured(address, context) as secured:
            # in TLS 1.3 the server rejects a client certificate after the handshake
            return None if secured.recv(1) else _closed_silently(files)
    except ssl.SSLCertVerificationError as error:
        return _untrusted(address, files, error)
    except ssl.SSLError as error:
        reason = error.reason or ""
        for alert, refusal in _ALERTS.items():
            if reason.endswith(alert):
                return refusal
        return Refusal(
            f"fails the TLS handshake ({reason})", "leave --tls-ca out if the server uses plaintext"
        )
    except (ConnectionResetError, BrokenPipeError):
        return _closed_silently(files)
    except OSError:
        return None


def _closed_silently(files: TlsFiles) -> Refusal:
    """The likely cause when a server closes the connection without an alert."""
    return _MAYBE_FOREIGN if files.cert else _WANTED_CERTIFICATE


def _untrusted(address: str, files: TlsFiles, error: ssl.SSLCertVerificationError) -> Refusal:
    """Why this side does not accept the server's certificate."""
    shown = shown_certificate(address)
    code = error.verify_code
    if shown is None or code not in _EXPLAINED:
        return Refusal(
            f"presents a certificate that is not trusted: {error.verify_message.rstrip('.')}",
            _GIVE_AUTHORITY,
        )
    if code == _EXPIRED:
        return Refusal(
            f"presents a certificate that expired {shown.not_valid_after_utc:%Y-%m-%d %H:%M} UTC",
            "renew it on its machine, or correct the clock of this one",
        )
    if code == _NOT_YET_VALID:
        start = f"{shown.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
        return Refusal(
            f"presents a certificate that is not valid before {start}",
            "correct the clock of this machine, or of the machine that issued it",
        )
    if code in _OF_ANOTHER_HOST:
        names = names_of(shown)
        more = ", …" if len(names) > _NAMED_MAX else ""
        host = _split(address)[0]
        command = drover_command("certs init", "DIR", options=["--renew", "--host", host])
        return Refusal(
            f"presents a certificate for {', '.join(names[:_NAMED_MAX])}{more}, not for {host}",
            "use an address that it covers, or reissue it for this one too, with your own CA or by"
            f" `{command}`",
        )
    issuer = shown.issuer.rfc4514_string() or "unnamed"
    return Refusal(
        f"presents a certificate that no CA in {files.ca} signed; its issuer is {issuer}",
        _GIVE_AUTHORITY,
    )
