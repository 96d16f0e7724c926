"""Named connections to clusters ("contexts"), stored in a file in the user's home."""

from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from drover.cli.access import Access, contexts_file
from drover.local.state import ClusterError
from drover.security.certificates import TlsFiles
from drover.security.files import replace_file

_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,64}$")]


class Context(BaseModel):
    """Addresses and credentials of one cluster. Paths are absolute."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    address: str = ""
    coordinator: str = ""
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    token: str = ""

    def access(self) -> Access:
        """The context as ``Access``."""
        tls = TlsFiles(self.tls_ca, self.tls_cert, self.tls_key) if self.tls_ca else None
        return Access(tls, self.token, self.address, self.coordinator)


class Contexts(BaseModel):
    """All contexts, and the name of the current one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    current: str = ""
    contexts: dict[_Name, Context] = {}


def read_contexts() -> Contexts:
    """Read the contexts file; no contexts if it does not exist.

    Raises:
        ClusterError: The file cannot be read or is malformed.
    """
    path = contexts_file()
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        return Contexts.model_validate(document)
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise ClusterError(f"{path} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in fault["loc"])
        raise ClusterError(f"{path}: {where}: {fault['msg']}") from None
    except (ValueError, yaml.YAMLError):
        raise ClusterError(f"{path} is not valid YAML: correct or remove it") from None


def write_contexts(contexts: Contexts) -> None:
    """Replace the contexts file atomically, with mode 0600 because it may hold tokens.

    Raises:
        ClusterError: The file cannot be written.
    """
    path = contexts_file()
    text = yaml.safe_dump(contexts.model_dump(exclude_defaults=True), sort_keys=False)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(path, text.encode(), mode=0o600)
    except OSError as error:
        raise ClusterError(f"{path} cannot be written: {error.strerror}") from None


def find_context(name: str) -> Context | None:
    """The context with this name, or the current one for an empty name; None if none is set.

    Raises:
        ClusterError: No context has this name.
    """
    known = read_contexts()
    name = name or known.current
    if not name:
        return None
    if name not in known.contexts:
        raise unknown_context(name, known)
    return known.contexts[name]


def unknown_context(name: str, known: Contexts) -> ClusterError:
    """The error for a context that does not exist."""
    names = ", ".join(sorted(known.contexts)) or "none"
    return ClusterError(
        f"there is no context {name!r}: `drover context add` makes one; known: {names}"
    )
