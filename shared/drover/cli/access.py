"""TLS files, token and addresses of a command: from its options, its context, or `drover up`."""

import os
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from drover.client.calls import channel
from drover.local.found_clusters import cluster_in, clusters_of_folder
from drover.local.state import ClusterError

if TYPE_CHECKING:  # only commands over TLS load the modules of certificates
    from drover.security.certificates import TlsFiles


@dataclass(frozen=True, slots=True)
class Access:
    """How a client connects to a cluster.

    Attributes:
        tls: The CA file, and the client's certificate and key, if any; None for plaintext.
        token: The bearer token sent with each call; empty for none.
        address: Comma-separated addresses of workers; empty for the default.
        coordinator: Comma-separated addresses of coordinators; empty for the default.
        origin: A description of the context that is used without being named; else empty.
    """

    tls: "TlsFiles | None" = None
    token: str = ""
    address: str = ""
    coordinator: str = ""
    origin: str = ""

    def credentials(self) -> grpc.ChannelCredentials | None:
        """Channel credentials; None for plaintext.

        Raises:
            InvalidArgumentError: INVALID_CONFIG: a TLS file is missing or invalid.
        """
        if self.tls is None:
            return None
        from drover.client.secure import channel_credentials
        from drover.security.certificates import read_certificate

        return channel_credentials(read_certificate(self.tls, of_cluster=False), self.token)


def contexts_file() -> Path:
    """The path of the contexts file, by the XDG rules."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "drover" / "contexts.yaml"


def has_contexts() -> bool:
    """Whether there is a contexts file, or whether that cannot be determined."""
    try:
        return contexts_file().exists()
    except OSError:
        return True


_present: ContextVar[Callable[[], Access]] = ContextVar("present_access", default=Access)


#: The directory of the option --dir.
_directory: ContextVar[Path | None] = ContextVar("cluster_directory", default=None)


def use_directory(directory: Path | None) -> None:
    """Record the value of --dir of the running command; None for no option."""
    _directory.set(directory)


def present_directory() -> Path | None:
    """The value of --dir of the running command."""
    return _directory.get()


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


def access_to(address: str, directory: Path | None = None) -> Access:
    """The access to a server: the running command's, else that of the cluster in ``directory`` (by
    default the one of --dir, or of the present folder).
    """
    access = present_access()
    if access.tls is None:
        directory = directory or _directory.get()
        try:
            found = [cluster_in(directory)] if directory else clusters_of_folder(Path.cwd())
        except ClusterError:  # another user's: it must not stop calls to a given address
            return access
        for each in found:
            if each and each.state.certificates and address in each.state.addresses(""):
                from drover.security.development_ca import files_of

                return Access(files_of(Path(each.state.certificates), "admin"))
    return access


def connect(address: str) -> grpc.aio.Channel:
    """Open a channel to a server.

    Raises:
        InvalidArgumentError: INVALID_CONFIG: a TLS file is missing or invalid.
    """
    return channel(address, access_to(address).credentials())
