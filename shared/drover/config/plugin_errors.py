"""Texts of errors that plugin code raises; plugin code implements ``str()`` of them as well."""

import re
from dataclasses import dataclass
from importlib.metadata import EntryPoint

_SHOWN_MAX_CHARS = 300
#: Their texts are about names, not about data.
_ABOUT_NAMES = (ImportError, SyntaxError, AttributeError, TypeError, NameError)
_FOLDERS = re.compile(
    # in brackets or quotes a folder may have spaces
    r"""(?<=[('"])(?:[A-Za-z]:)?[\\/][^()'"]*[\\/]"""
    r"""|(?<![\w.])(?:[A-Za-z]:)?[\\/](?:[^\s'"<>|:()\\/]+[\\/])+"""
)
_LOGIN = re.compile(r"://[^\s/@]*@")


@dataclass(frozen=True, slots=True)
class PluginProblem:
    """A plugin that does not load, and the reason.

    Attributes:
        entry_point: The name and the target of its entry point, or its class.
        message: The error, for administrators of configs.
        package: The package with the entry point, and its version; empty if unknown.
        shown: The error for every caller that may list plugins, see ``shown_error``.
    """

    entry_point: str
    message: str
    package: str = ""
    shown: str = ""

    @classmethod
    def of(cls, point: EntryPoint, error: BaseException) -> "PluginProblem":
        """The problem of an entry point that did not load."""
        name = f"{point.name} = {point.value}"
        return cls(name, describe_error(error), package_of(point), shown_error(error))


def package_of(point: EntryPoint) -> str:
    """The name and the version of the package with an entry point; empty if unknown."""
    found = point.dist
    return "" if found is None else f"{found.name} {found.version}"


def shown_error(error: BaseException) -> str:
    """An error in one line, without folders and logins.

    The text of an error that may have data in it, such as a password, is left out.
    """
    if not isinstance(error, _ABOUT_NAMES):
        return f"{type(error).__name__}: its text is in the worker's log"
    text = _LOGIN.sub("://", _FOLDERS.sub("", describe_error(error)))
    return text if len(text) <= _SHOWN_MAX_CHARS else f"{text[: _SHOWN_MAX_CHARS - 1]}…"


def error_text(error: BaseException) -> str:
    """``str(error)``; plugin code implements it, so it may raise."""
    try:
        return str(error)
    except Exception as fault:  # noqa: BLE001 - plugin code
        return f"<no text: str() raised {type(fault).__name__}>"


def describe_error(error: BaseException) -> str:
    """The kind and the text of an error, in one line."""
    text = " ".join(error_text(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
