"""TLS and authorization of a process, created from its settings."""

from dataclasses import dataclass, field
from typing import Any

import grpc

from drover.rpc.guard import CallGuard
from drover.security.certificates import Certificate
from drover.security.renewed import Renewed


@dataclass(frozen=True)
class Security:
    """TLS and authorization of a process.

    Attributes:
        certificate: The process's own certificate, as a server and as a client; None for plaintext.
        guard: Authenticates and authorizes calls.
    """

    certificate: Renewed[Certificate] | None = None
    guard: CallGuard = field(default_factory=CallGuard)

    def server_credentials(self, *, client_certificates: bool) -> grpc.ServerCredentials | None:
        """The credentials of a listener; None for plaintext.

        New connections get a renewed certificate.
        """
        certificate = self.certificate
        if certificate is None:
            return None

        served = certificate.present()

        def fetch() -> Any:
            """The configuration of a renewed certificate; None if it is unchanged.

            gRPC's core replaces a configuration while other connections may use it. So replacing
            it for each connection crashes a process with many connections.
            """
            nonlocal served
            present = certificate.present()
            if present is served:
                return None
            served = present
            return _configuration(present)

        return grpc.dynamic_ssl_server_credentials(
            _configuration(served), fetch, require_client_authentication=client_certificates
        )


def _configuration(certificate: Certificate) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(certificate.key_pem, certificate.cert_pem)],
        root_certificates=certificate.ca_pem + b"\n" + certificate.client_ca_pem,
    )


#: No TLS and no authorization: on loopback, and in tests.
PLAINTEXT = Security()
