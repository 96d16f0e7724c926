"""What a server speaks, and who may call what: made of a service's settings."""

from dataclasses import dataclass, field
from typing import Any

import grpc

from drover.rpc.guard import CallGuard
from drover.security.certificates import Certificate
from drover.security.renewed import Renewed


@dataclass(frozen=True)
class Security:
    """How a process is protected.

    Attributes:
        certificate: Its own, for both what it serves and what it calls; None for plaintext.
        guard: Lets calls in.
    """

    certificate: Renewed[Certificate] | None = None
    guard: CallGuard = field(default_factory=CallGuard)

    def server_credentials(self, *, client_certificates: bool) -> grpc.ServerCredentials | None:
        """What a listener shows; a renewed certificate is shown to whoever connects after that.

        None for plaintext.
        """
        certificate = self.certificate
        if certificate is None:
            return None

        shown = certificate.present()

        def fetch() -> Any:
            """A configuration to change to; None for no change.

            Only then: gRPC's core changes it while other connections may be using the one before,
            so changing it for each of them crashes a process that many connect to.
            """
            nonlocal shown
            present = certificate.present()
            if present is shown:
                return None
            shown = present
            return _configuration(present)

        return grpc.dynamic_ssl_server_credentials(
            _configuration(shown), fetch, require_client_authentication=client_certificates
        )


def _configuration(certificate: Certificate) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(certificate.key_pem, certificate.cert_pem)], root_certificates=certificate.ca_pem
    )


#: No TLS, and everybody may do everything: on loopback, and in tests.
PLAINTEXT = Security()
