"""TLS files, token and addresses of a command: from its options, its context, or `drover up`."""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio

from drover.client.calls import channel
from drover.client.secure import channel_credentials
from drover.local.state import DEFAULT_DIRECTORY, ClusterError, read_state
from drover.security.certificates import TlsFiles, read_certificate
from drover.security.development_ca import files_of


@dataclass(frozen=True, slots=True)
class Access:
    """How a client connects to a cluster.

    Attributes:
        tls: The CA file, and the client's certificate and key, if any; None for plaintext.
        token: The bearer token sent with each call; empty for none.
        address: Comma-separated addresses of workers; empty for the default.
        coordinator: Comma-separated addresses of coordinators; empty for the default.
    """

    tls: TlsFiles | None = None
    token: str = ""
    address: str = ""
    coordinator: str = ""

    def credentials(self) -> grpc.ChannelCredentials | None:
        """Channel credentials; None for plaintext.

        Raises:
            InvalidArgumentError: INVALID_CONFIG: a TLS file is missing or invalid.
        """
        if self.tls is None:
            return None
        return channel_credentials(read_certificate(self.tls, of_cluster=False), self.token)


_present: ContextVar[Callable[[], Access]] = ContextVar("present_access", default=Access)


def use_access(find: Callable[[], Access]) -> None:
    """Register the function that returns the access of the running command.

    ``find`` is called on first use, because not every command connects to a cluster.
    """
    _present.set(find)


def present_access() -> Access:
    """The access of the running command, from its options or its context.

    Raises:
        CliError: The options contradict each other.
        ClusterError: The context does not exist, or the contexts file cannot be read.
    """
    return _present.get()()


def access_to(address: str, directory: Path = DEFAULT_DIRECTORY) -> Access:
    """The access to a server: the running command's, else that of the cluster in ``directory``."""
    access = present_access()
    if access.tls is None:
        try:
            state = read_state(directory)
        except ClusterError:  # another user's: it must not stop calls to a given address
            return access
        if state and state.certificates and address in state.addresses(""):
            return Access(files_of(Path(state.certificates), "admin"))
    return access


def connect(address: str) -> grpc.aio.Channel:
    """Open a channel to a server.

    Raises:
        InvalidArgumentError: INVALID_CONFIG: a TLS file is missing or invalid.
    """
    return channel(address, access_to(address).credentials())
