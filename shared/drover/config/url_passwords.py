"""Finds passwords in URLs: they belong into settings of type PASSWORD, whose values are masked."""

import re
from collections.abc import Iterable, Iterator

from drover.config.config_def import ConfigKey, ConfigType

#: The start of the violation of a URL with a password.
URL_PASSWORD_FAULT = "must not contain a password"
#: A placeholder may contain the characters that end parts of a URL. One without an end is matched
#: to the end of the text, so that no character is read twice.
_PLACEHOLDER = re.compile(r"\$\{[^}]*+\}?")
_AUTHORITY = re.compile(r"://([^\s/?#,]*)")
#: ``password=…`` among the parameters of a URL.
_PARAMETER = re.compile(r"[?&;][\w.-]*(?:password|passwd|pwd)=[^\s&;]", re.IGNORECASE)


def has_url_password(text: str) -> bool:
    """Whether a text has a URL with a password in its user info or parameters.

    Takes time proportional to the text's length.
    """
    plain = _PLACEHOLDER.sub("x", text)
    if "://" not in plain and not plain.lstrip().lower().startswith("jdbc:"):
        return False
    if any(_is_login(match[1]) for match in _AUTHORITY.finditer(plain)):
        return True
    urls = (each for each in plain.split() if "://" in each or each.lower().startswith("jdbc:"))
    return any(_PARAMETER.search(each) for each in urls)


def _is_login(authority: str) -> bool:
    user_info, at, _ = authority.rpartition("@")
    return bool(at and user_info.partition(":")[2])


def url_password_fault(name: str, keys: Iterable[ConfigKey]) -> str | None:
    """The fault of a setting that has a URL with a password, which names the setting for it; None
    if ``keys`` define none.
    """
    secrets = [key.name for key in keys if key.type is ConfigType.PASSWORD]
    if not secrets or name in secrets:
        return None
    best = max(secrets, key=lambda each: (_shared_length(name, each), *_rank(each)))
    return f"{URL_PASSWORD_FAULT}: set it as {best}"


def _shared_length(name: str, other: str) -> int:
    """How many parts of two names are equal from the start."""
    pairs = zip(name.split("."), other.split("."), strict=False)
    return len(list(_equal_start(pairs)))


def _equal_start(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    for one, other in pairs:
        if one != other:
            return
        yield one


def _rank(name: str) -> tuple[bool, bool]:
    return "ssl" not in name, "password" in name
