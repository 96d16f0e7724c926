"""The settings of client libraries that connectors may set. Standard library only.

Client libraries can do more than a connector needs: load plug-ins, run commands, read any file, use
the worker's own identity. Connectors therefore pass listed settings only. A worker's administrator
sets the policy, as in Kafka Connect (KIP-458, KIP-1188); it never allows code or commands.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from drover.policy.client_setting_lists import RULES, Allowed, Danger, Kind, Library
from drover.policy.egress import AllowedHosts, plain_host_of
from drover.policy.files import root_fault

#: The environment variable of engine and executors with the policy.
POLICY_VARIABLE = "DROVER_CLIENT_OVERRIDE_POLICY"


class OverridePolicy(StrEnum):
    """Which settings of client libraries a connector config may set.

    NONE: addresses, logins and TLS only. ALLOWLIST: the listed ones. ALL: also unlisted ones,
    unless they name code, commands, identities, servers or forbidden files.
    """

    NONE = "none"
    ALLOWLIST = "allowlist"
    ALL = "all"

    @classmethod
    def of_worker(cls, environment: Mapping[str, str] = os.environ) -> "OverridePolicy":
        """The policy in the worker's environment.

        Raises:
            ValueError: It is unknown.
        """
        return cls(environment.get(POLICY_VARIABLE, cls.ALLOWLIST))


#: Words in names of unlisted settings that are rejected under every policy.
_WORDS: tuple[tuple[Danger, re.Pattern[str]], ...] = (
    (
        Danger.CODE,
        re.compile(
            r"impl|plugin|engine|provider|opaque|callback|interceptor|class|hook|factory|module"
            r"|python|librar|extension|function|_cb$|\.cb$|^py[-_.]|kwargs|strategy|converter|loader"
        ),
    ),
    (Danger.COMMAND, re.compile(r"cmd|command|exec|script|shell|\binit\b|statement|sql_mode")),
    (
        Danger.IDENTITY,
        re.compile(
            r"kerberos|keytab|principal|gss|profile|role|imds|metadata\.auth|identity|passfile"
            r"|^service|transactional|group\.id|instance\.id|auth"
        ),
    ),
    (
        Danger.SERVER,
        re.compile(
            r"ur[il]\b|url|uri|endpoint|host|server|proxy|address|authority|broker|socket|domain"
            r"|gateway|issuer|jwks"
        ),
    ),
)
_FILE_WORDS = re.compile(r"location|path|file|dir\b|directory|store\b|cabundle|cert|crl")
_PLAIN = re.compile(r"-?\d+(\.\d+)?|true|false", re.IGNORECASE)
#: A host without a URL; other text, such as a connection string, may contain secrets.
_HOST_AND_PORT = re.compile(r"(\[[0-9a-fA-F:.%]+\]|[\w.-]+)(:\d+)?")
_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^\s\"',;]+", re.IGNORECASE)
_PORTS = {"http": 80, "https": 443}
_OF_HTTP = ("http://", "https://")
_SHOWN_MAX_CHARS = 200
_WHOEVER = (
    f"connectors must not set it, whatever the worker's administrator sets {POLICY_VARIABLE} to"
)


def client_setting_faults(
    library: Library, settings: Mapping[str, object], policy: OverridePolicy | None = None
) -> list[tuple[str, str]]:
    """The settings that must not reach a library, as names and ends of sentences.

    ``settings`` has the library's names and values; no message contains a value, except for paths
    and hosts. ``policy`` is by default that of the worker. Files and hosts are checked by the
    worker's policies.
    """
    chosen = OverridePolicy.of_worker() if policy is None else policy
    found = ((name, _fault(library, name, str(settings[name]), chosen)) for name in settings)
    return [(name, fault) for name, fault in found if fault is not None]


def client_setting_fault(library: Library, name: str, value: str) -> str | None:
    """As ``client_setting_faults`` for one setting, by the worker's policy."""
    return _fault(library, name, value, OverridePolicy.of_worker())


def danger_of(library: Library, name: str) -> Danger | None:
    """Why a setting is rejected under every policy because of its name; None for other ones."""
    lowered = name.lower()
    for danger, patterns in RULES[library].rejected:
        if any(fnmatchcase(lowered, each) for each in patterns):
            return danger
    if _allowed(library, name) is not None:
        return None
    return next((danger for danger, words in _WORDS if words.search(lowered)), None)


def is_listed(library: Library, name: str) -> bool:
    """Whether the allow-list has a setting, whose value may still be rejected."""
    return danger_of(library, name) is None and _allowed(library, name) is not None


def urls_in(text: str) -> list[str]:
    """The URLs in a value; JSON may have them in escaped form."""
    try:
        found = " ".join(_texts(json.loads(text))) if text.lstrip().startswith("{") else text
    except (ValueError, RecursionError):
        found = text
    return _URL.findall(found)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        parts: Iterable[object] = value.values() if isinstance(value, dict) else value
        for each in parts:
            yield from _texts(each)


def servers_in(text: str) -> Iterator[tuple[str, int]]:
    """The hosts and ports in a value: in its URLs, or in a list of ``host:port``."""
    urls = urls_in(text)
    listed = [] if urls else [each.strip() for each in text.split(",")]
    for each in (*urls, *(f"//{each}" for each in listed if _HOST_AND_PORT.fullmatch(each))):
        try:
            parts = urlsplit(each)
            host, port = parts.hostname, parts.port
        except ValueError:
            continue
        if host:
            yield host, port or _PORTS.get(parts.scheme.lower(), 0)


def _fault(library: Library, name: str, value: str, policy: OverridePolicy) -> str | None:
    danger = danger_of(library, name)
    if danger is Danger.RESERVED:
        return "is set by the connector: remove it"
    if danger is not None:
        return f"{danger}: {_WHOEVER}"
    allowed = _allowed(library, name)
    if allowed is None:
        if policy is not OverridePolicy.ALL:
            return (
                f"is not among the settings of {library} that connectors may set: remove it; the "
                f"worker's administrator can allow it with {POLICY_VARIABLE}=all"
            )
        return _unlisted_fault(name, value)
    if policy is OverridePolicy.NONE and not allowed.essential:
        return (
            f"must be removed: the worker's administrator allows no optional settings of {library} "
            f"({POLICY_VARIABLE}=none)"
        )
    if allowed.kind is Kind.FILE:
        return _file_fault(value)
    return _server_fault(value) if allowed.kind is Kind.SERVER else None


def _unlisted_fault(name: str, value: str) -> str | None:
    """The fault of a value that the policy ``all`` would pass: a server, or a forbidden file."""
    if _URL.search(value) and not value.lower().startswith("file:"):
        return f"{Danger.SERVER}: {_WHOEVER}"
    is_path = value.startswith(("/", "~", ".", "file:")) or "/" in value
    names_file = _FILE_WORDS.search(name.lower()) and not _PLAIN.fullmatch(value)
    return _file_fault(value) if is_path or names_file else None


def _file_fault(path: str) -> str | None:
    """The fault of a file: libpq loads an OpenSSL engine for a key that is not a path."""
    if not path or path == "system":  # libpq's name of the system's authorities
        return None
    if "\0" in path or not path.startswith("/"):
        return f"must be an absolute path, not {path[:_SHOWN_MAX_CHARS]!r}"
    fault = root_fault(path)
    return None if fault is None else f"names a file that {fault}"


def _server_fault(value: str) -> str | None:
    if value.strip().lower().startswith("file:"):
        return "must be the address of a server, not a file"
    hosts = AllowedHosts.of_worker()
    for url in urls_in(value):
        if url.lower().startswith(_OF_HTTP):
            try:
                # a password has a rule that names the setting for it
                if not urlsplit(url).password:
                    plain_host_of(url)
            except ValueError as error:
                return str(error)
    for host, port in servers_in(value):
        fault = hosts.fault(host, port)
        if fault is not None:
            return f"names a server that must not be used: {fault}"
    return None


def _allowed(library: Library, name: str) -> Allowed | None:
    for each in RULES[library].allowed:
        if any(fnmatchcase(name, pattern) for pattern in each.names):
            return each
    return None
