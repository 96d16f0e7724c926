"""How commands get into a cluster: TLS files and tokens, given, of a context, or of `drover up`."""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio

from drover.client.calls import channel
from drover.client.secure import channel_credentials
from drover.local.state import DEFAULT_DIRECTORY, read_state
from drover.security.certificates import TlsFiles, read_certificate
from drover.security.development_ca import files_of


@dataclass(frozen=True, slots=True)
class Access:
    """A way into a cluster.

    Attributes:
        tls: The authority of the servers' certificates, and the own certificate, if any; None for
            plaintext.
        token: Sent with each call; empty for none.
        address: Where workers are, with commas between; empty for the usual places.
        coordinator: Where coordinators are; likewise.
    """

    tls: TlsFiles | None = None
    token: str = ""
    address: str = ""
    coordinator: str = ""

    def credentials(self) -> grpc.ChannelCredentials | None:
        """What a channel needs; None for plaintext.

        Raises:
            InvalidArgumentError: INVALID_CONFIG: a file cannot be used.
        """
        if self.tls is None:
            return None
        return channel_credentials(read_certificate(self.tls, of_cluster=False), self.token)


_present: ContextVar[Callable[[], Access]] = ContextVar("present_access", default=Access)


def use_access(find: Callable[[], Access]) -> None:
    """Have the present command go the way that ``find`` finds, once it needs one."""
    _present.set(find)


def present_access() -> Access:
    """The present command's way, as it was given or as its context says.

    Raises:
        CliError: What was given does not go together.
        ClusterError: There is no such context, or contexts cannot be read.
    """
    return _present.get()()


def access_to(address: str, directory: Path = DEFAULT_DIRECTORY) -> Access:
    """The way to a server: the present command's, else that of the cluster in ``directory``."""
    access = present_access()
    if access.tls is None:
        state = read_state(directory)
        if state and state.certificates and address in state.addresses(""):
            return Access(files_of(Path(state.certificates), "admin"))
    return access


def connect(address: str) -> grpc.aio.Channel:
    """A channel to a server.

    Raises:
        InvalidArgumentError: INVALID_CONFIG: a file cannot be used.
    """
    return channel(address, access_to(address).credentials())
