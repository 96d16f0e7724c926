"""Clusters by name, in a file of the user's own."""

import os
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from drover.cli.access import Access
from drover.local.state import ClusterError
from drover.security.certificates import TlsFiles
from drover.security.files import replace_file

_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,64}$")]


class Context(BaseModel):
    """How one cluster is reached. Paths are absolute."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    address: str = ""
    coordinator: str = ""
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    token: str = ""

    def access(self) -> Access:
        """The way in."""
        tls = TlsFiles(self.tls_ca, self.tls_cert, self.tls_key) if self.tls_ca else None
        return Access(tls, self.token, self.address, self.coordinator)


class Contexts(BaseModel):
    """Every context, and which one is in use."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    current: str = ""
    contexts: dict[_Name, Context] = {}


def contexts_file() -> Path:
    """Where contexts are kept."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "drover" / "contexts.yaml"


def read_contexts() -> Contexts:
    """What the file holds; nothing when there is none.

    Raises:
        ClusterError: It cannot be read.
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
        raise ClusterError(f"{path} is not YAML: mend it, or remove it") from None


def write_contexts(contexts: Contexts) -> None:
    """Replace the file in one step; nobody but the user can read it, for it may hold tokens.

    Raises:
        ClusterError: It cannot be written.
    """
    path = contexts_file()
    text = yaml.safe_dump(contexts.model_dump(exclude_defaults=True), sort_keys=False)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(path, text.encode(), mode=0o600)
    except OSError as error:
        raise ClusterError(f"{path} cannot be written: {error.strerror}") from None


def find_context(name: str) -> Context | None:
    """The context of this name, or the one in use for an empty name; None if none is.

    Raises:
        ClusterError: There is none of this name.
    """
    known = read_contexts()
    wanted = name or known.current
    if not wanted:
        return None
    if wanted not in known.contexts:
        raise unknown_context(wanted, known)
    return known.contexts[wanted]


def unknown_context(name: str, known: Contexts) -> ClusterError:
    """What is said of a context that is not there."""
    names = ", ".join(sorted(known.contexts)) or "none"
    return ClusterError(
        f"there is no context {name!r}: `drover context add` makes one; known: {names}"
    )
