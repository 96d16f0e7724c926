"""Finds out why nobody answers at an address where somebody listens."""

import socket
import ssl

from drover.security.certificates import TlsFiles

TIMEOUT_S = 3.0

_WANTED_CERTIFICATE = "asks for a certificate of yours: give --tls-cert and --tls-key"
_REFUSED_CERTIFICATE = "does not accept your certificate"
#: What servers send in their alerts, by OpenSSL's names.
_ALERTS = {
    "CERTIFICATE_REQUIRED": _WANTED_CERTIFICATE,
    "CERTIFICATE_EXPIRED": f"{_REFUSED_CERTIFICATE}: it has expired",
    "CERTIFICATE_UNKNOWN": f"{_REFUSED_CERTIFICATE}: it is of another authority, or not valid now",
    "UNKNOWN_CA": f"{_REFUSED_CERTIFICATE}: it is of another authority",
    "BAD_CERTIFICATE": _REFUSED_CERTIFICATE,
}


def why_refused(address: str, files: TlsFiles | None) -> str:
    """What a server has against this way to call it, or this side against the server.

    Empty when nobody listens there, or TLS is not the reason.

    Args:
        address: host:port.
        files: What is used over TLS; None for plaintext.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        connection = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
    except OSError:
        return ""
    with connection:
        return _in_plaintext(connection) if files is None else _over_tls(connection, host, files)


def _in_plaintext(connection: socket.socket) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        context.wrap_socket(connection).close()
    except OSError:
        return ""
    return "speaks TLS: give --tls-ca, with --tls-cert and --tls-key or --token, or use a context"


def _over_tls(connection: socket.socket, host: str, files: TlsFiles) -> str:
    context = ssl.create_default_context(cafile=files.ca)
    context.set_alpn_protocols(["h2"])
    if files.cert:
        context.load_cert_chain(files.cert, files.key)
    try:
        with context.wrap_socket(connection, server_hostname=host) as secured:
            # what the server thinks of the client's certificate comes after the handshake
            return "" if secured.recv(1) else _refusal(files)
    except ssl.SSLCertVerificationError as error:
        return f"shows a certificate that is not trusted: {error.verify_message.rstrip('.')}"
    except ssl.SSLError as error:
        reason = error.reason or ""
        for alert, text in _ALERTS.items():
            if reason.endswith(alert):
                return text
        return f"does not speak TLS as it should ({reason}): without --tls-ca it is plaintext"
    except ConnectionError:
        return _refusal(files)
    except OSError:
        return ""


def _refusal(files: TlsFiles) -> str:
    """What a server means that ends the connection without a word."""
    if not files.cert:
        return _WANTED_CERTIFICATE
    return f"{_REFUSED_CERTIFICATE}: it is of another authority, or not valid now"
