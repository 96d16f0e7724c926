"""Installs a part of requirements.lock into the environment of this Python.

``python -m deploy.install LOCK [--all] [--project DIRECTORY …] [WHAT …]``, where each WHAT is as
in ``needed.py``; ``--all`` installs the whole lock, and ``--project`` a distribution of Drover in
editable form. Only files whose SHA-256 is in the lock are installed.

uv installs, because it needs a third of pip's time; its version is in the lock, too. pip installs
where uv has no wheel for this machine, or where pip's settings have one that uv does not have. The
index, certificates and proxy are in both cases taken from pip's settings.
"""

import argparse
import ast
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from deploy.needed import needed, requirements

#: What builds the packages that have no wheel, and Drover's own.
BUILD_TOOLS = ("editables", "hatchling", "setuptools")

#: Settings of pip that change neither which files are installed nor where they come from.
_WITHOUT_EFFECT = frozenset(
    {
        "break-system-packages", "cache-dir", "config-file", "disable-pip-version-check", "log",
        "no-color", "no-input", "no-warn-script-location", "prefer-binary", "progress-bar", "quiet",
        "require-virtualenv", "root-user-action", "verbose",
    }
)  # fmt: skip
#: Settings of pip that uv has as variables of the environment.
_VARIABLES = {
    "cert": ("SSL_CERT_FILE",),
    "extra-index-url": ("UV_INDEX",),
    "find-links": ("UV_FIND_LINKS",),
    "index-url": ("UV_DEFAULT_INDEX",),
    "proxy": ("HTTPS_PROXY", "HTTP_PROXY"),
    "retries": ("UV_HTTP_RETRIES",),
    "timeout": ("UV_HTTP_TIMEOUT",),
    "trusted-host": ("UV_INSECURE_HOST",),
}
#: As pip: certificates of the system, files of every index. The digests decide between files.
_UV_DEFAULTS = {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_SYSTEM_CERTS": "1"}
_FLAGS = {"no-cache-dir": "--no-cache", "no-index": "--no-index"}
_FALSE = frozenset({"", "0", "false", "no", "off", "n", "f"})
_SETTING = re.compile(r"(?P<section>[\w-]+|:env:)\.(?P<name>[\w-]+)=(?P<value>.*)")
_PRECEDENCE = ("global", "install", ":env:")
_NO_NETWORK = re.compile(
    r"connection broken by|error sending request|dns error|client error \(Connect\)|timed out"
)
_CREDENTIALS = re.compile(r"//[^/@]*@")
_NOT_FETCHED = re.compile(r"Failed to fetch: (?P<uv>\S+)|connection broken by .*: (?P<pip>/\S+)")


class InstallError(Exception):
    """Nothing can be installed; the message has the remedy."""


class NotInUvError(Exception):
    """uv has no equivalent of a setting of pip."""


def pip_settings(listed: str) -> dict[str, str]:
    """The settings in the output of ``pip config list`` that apply to ``pip install``."""
    found: dict[str, str] = {}
    lines = [match for each in listed.splitlines() if (match := _SETTING.fullmatch(each.strip()))]
    for section in _PRECEDENCE:
        for line in lines:
            if line["section"] == section:
                name = line["name"].replace("_", "-").removeprefix("default-")
                found[name] = str(ast.literal_eval(line["value"]))
    return found


def for_uv(settings: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Settings of pip as variables of the environment and flags of uv.

    Raises:
        NotInUvError: uv lacks one of them.
    """
    variables: dict[str, str] = {}
    flags: list[str] = []
    for name, value in settings.items():
        if name in _WITHOUT_EFFECT:
            continue
        if name in _FLAGS:
            flags += [] if value.lower() in _FALSE else [_FLAGS[name]]
        elif name in _VARIABLES:
            separator = "," if name == "find-links" else " "
            variables |= dict.fromkeys(_VARIABLES[name], separator.join(value.split()))
        else:
            raise NotInUvError(f"uv does not have pip's setting {name}")
    return variables, flags


def reason_in(output: str) -> str:
    """One line that names what an installer could not fetch; empty if it failed otherwise."""
    if not _NO_NETWORK.search(output):
        return ""
    match = _NOT_FETCHED.search(output)
    place = (match["uv"] or match["pip"]) if match is not None else "the package index"
    return (
        f"cannot fetch {_CREDENTIALS.sub('//', place)}: check the network, and the index, proxy and"
        " certificate in pip's settings (`pip config list`)"
    )


class Installer:
    """Runs uv, and pip where uv cannot be used."""

    def __init__(self, lock: str) -> None:
        self._lock = lock
        self._pip = [sys.executable, "-m", "pip"]
        self._use_pip()

    def _use_pip(self) -> None:
        self._install = [*self._pip, "install", "--quiet"]
        self._environment = dict(os.environ)

    def prefer_uv(self) -> None:
        """Install uv, and use it from now on; writes the reason where pip is used instead.

        Raises:
            InstallError: The package index cannot be reached.
        """
        listed = subprocess.run(
            [*self._pip, "config", "list"], capture_output=True, text=True, check=False
        )
        try:
            variables, flags = for_uv(pip_settings(listed.stdout))
            if self._run(["--only-binary", ":all:"], needed(self._lock, ["uv"])):
                raise NotInUvError("the package index has no wheel of uv for this machine")
        except NotInUvError as reason:
            sys.stderr.write(f"pip installs, which takes a few minutes: {reason}\n")
            return
        uv = str(Path(sysconfig.get_path("scripts")) / "uv")
        self._install = [uv, "pip", "install", "--quiet", *flags, "--python", sys.executable]
        self._environment = {**_UV_DEFAULTS, **os.environ, **variables}

    def install(self, wanted: Iterable[str] | None) -> None:
        """Install packages and their dependencies; None for the whole lock.

        Raises:
            InstallError: It failed, with pip too.
        """
        tools = needed(self._lock, BUILD_TOOLS)
        packages = self._lock if wanted is None else needed(self._lock, wanted)
        for options, text in (
            (["--only-binary", ":all:"], tools),
            (["--no-build-isolation"], packages),
        ):
            failure = self._run(options, text)
            if failure and self._install[0] != sys.executable:
                sys.stderr.write(f"pip installs, because uv failed: {failure.splitlines()[-1]}\n")
                self._use_pip()
                failure = self._run(options, text)
            if failure:
                raise InstallError(failure)

    def projects(self, paths: Sequence[str]) -> None:
        """Install Drover's own distributions in editable form.

        Raises:
            InstallError: It failed.
        """
        if not paths:
            return
        editable = [each for path in paths for each in ("--editable", path)]
        done = self._call("--no-index", "--no-deps", "--no-build-isolation", *editable)
        if done.returncode != 0:
            raise InstallError(done.stderr.strip())

    def _call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*self._install, *arguments]
        return subprocess.run(
            command, env=self._environment, capture_output=True, text=True, check=False
        )

    def _run(self, options: Sequence[str], text: str) -> str:
        """Install from the text of a lock; returns the output if it failed.

        Raises:
            InstallError: The package index cannot be reached.
        """
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            done = self._call("--require-hashes", *options, "--requirement", file.name)
        if done.returncode == 0:
            return ""
        if reason := reason_in(done.stderr):
            raise InstallError(reason)
        return done.stderr.strip() or f"{self._install[0]} ended with {done.returncode}"


def main() -> int:
    """Install; returns the exit code."""
    parser = argparse.ArgumentParser(description="Installs a part of requirements.lock.")
    parser.add_argument("lock", type=Path)
    parser.add_argument("what", nargs="*", help="as in needed.py")
    parser.add_argument("--all", action="store_true", help="the whole lock")
    parser.add_argument("--project", action="append", default=[], metavar="DIRECTORY")
    asked = parser.parse_args()
    wanted = None if asked.all else [each for name in asked.what for each in requirements(name)]
    try:
        installer = Installer(asked.lock.read_text(encoding="utf-8"))
        installer.prefer_uv()
        installer.install(wanted)
        installer.projects(asked.project)
    except InstallError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
