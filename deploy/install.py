"""Installs a part of requirements.lock into the environment of this Python.

``python -m deploy.install LOCK [--all] [--project DIRECTORY …] [WHAT …]``, where each WHAT is as
in ``needed.py``; ``--all`` installs the whole lock, and ``--project`` a distribution of Drover in
editable form. Only files whose SHA-256 is in the lock are installed.

uv installs, because it needs a third of pip's time; its version is in the lock, too. pip installs
where uv has no wheel for this machine, fails, or lacks one of the settings of pip. The index,
certificates and proxy are in both cases taken from pip's settings; settings that install elsewhere
than into the environment are ignored.
"""

import argparse
import ast
import csv
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from deploy.needed import entries, needed, requirements

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
#: Settings of pip that would install elsewhere than into the environment, or nothing.
_ELSEWHERE = frozenset({"dry-run", "prefix", "python", "root", "target", "user"})
#: Settings of pip that uv has as variables of the environment.
_VARIABLES = {
    "extra-index-url": ("UV_INDEX",),
    "find-links": ("UV_FIND_LINKS",),
    "index-url": ("UV_DEFAULT_INDEX",),
    "proxy": ("HTTPS_PROXY", "HTTP_PROXY"),
    "retries": ("UV_HTTP_RETRIES",),
    "timeout": ("UV_HTTP_TIMEOUT",),
    "trusted-host": ("UV_INSECURE_HOST",),
}
#: Where pip finds certificates, in this order; uv has its own variables.
_PIP_CERTIFICATES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_UV_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
#: As pip: certificates of the system, files of every index. The digests decide between files.
_UV_DEFAULTS = {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_SYSTEM_CERTS": "1"}
_FLAGS = {"no-cache-dir": "--no-cache", "no-index": "--no-index"}
_FALSE = frozenset({"", "0", "false", "no", "off", "n", "f"})
_SETTING = re.compile(r"(?P<section>[\w-]+|:env:)\.(?P<name>[\w-]+)=(?P<value>.*)")
_PRECEDENCE = ("global", "install", ":env:")
_NO_NETWORK = re.compile(
    r"connection broken by|error sending request|dns error|client error \(Connect\)|timed out"
)
_NO_SOCKS = "Missing dependencies for SOCKS support"
_NO_WHEEL = "No matching distribution found"
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
                # as in pip, an empty value sets nothing
                if value := str(ast.literal_eval(line["value"])):
                    found[name] = value
    return found


def for_uv(settings: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Settings of pip as variables of the environment and flags of uv.

    Raises:
        NotInUvError: uv lacks one of them.
    """
    variables: dict[str, str] = {}
    flags: list[str] = []
    for name, value in settings.items():
        if name in _WITHOUT_EFFECT or name in _ELSEWHERE:
            continue
        if name == "cert":
            variables |= _trusted(value)
        elif name in _FLAGS:
            flags += [] if value.lower() in _FALSE else [_FLAGS[name]]
        elif name in _VARIABLES:
            separator = "," if name == "find-links" else " "
            variables |= dict.fromkeys(_VARIABLES[name], separator.join(value.split()))
        else:
            raise NotInUvError(f"uv does not have pip's setting {name}")
    return variables, flags


def certificates(environ: Mapping[str, str]) -> dict[str, str]:
    """The certificates that pip takes from the environment, as a variable of uv, which has none."""
    if any(environ.get(name) for name in _UV_CERTIFICATES):
        return {}
    given = next((environ[name] for name in _PIP_CERTIFICATES if environ.get(name)), "")
    return _trusted(given) if given else {}


def _trusted(path: str) -> dict[str, str]:
    return {_UV_CERTIFICATES[Path(path).is_dir()]: path}


def pip_environment(settings: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """The environment in which pip has these settings alone, but none that installs elsewhere."""
    kept = {name: value for name, value in environ.items() if not name.startswith("PIP_")}
    given = {
        f"PIP_{name.replace('-', '_').upper()}": value
        for name, value in settings.items()
        if name not in _ELSEWHERE
    }
    return {**kept, **given, "PIP_CONFIG_FILE": os.devnull}


def reason_in(output: str) -> str:
    """One line that names what an installer could not fetch; empty if it failed otherwise."""
    if _NO_SOCKS in output:
        return (
            "pip cannot use a SOCKS proxy without PySocks: install its wheel into .venv, or name an"
            " HTTP proxy in HTTPS_PROXY"
        )
    if not _NO_NETWORK.search(output):
        return ""
    match = _NOT_FETCHED.search(output)
    place = (match["uv"] or match["pip"]) if match is not None else "the package index"
    return (
        f"cannot fetch {_CREDENTIALS.sub('//', place)}: check the network, and the index, proxy and"
        " certificate in pip's settings (`pip config list`)"
    )


def last_error(output: str) -> str:
    """The line in the output of pip or uv that has the error, without credentials."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR: ")] or lines
    return _CREDENTIALS.sub("//", errors[-1]) if errors else "no reason given"


def incomplete(modules: Path) -> list[Path]:
    """The records of packages of which the record or files are missing, in a folder of modules.

    An installation that was killed leaves them, and installers take such packages for installed.
    """
    found = []
    for package in modules.glob("*.dist-info"):
        try:
            with (package / "RECORD").open(newline="", encoding="utf-8") as record:
                files = [row[0] for row in csv.reader(record) if row]
        except FileNotFoundError:
            found.append(package)
            continue
        # bytecode may be removed
        if not all((modules / each).exists() for each in files if not each.endswith(".pyc")):
            found.append(package)
    return found


class Installer:
    """Runs uv, and pip where uv cannot be used.

    Raises:
        InstallError: pip's settings cannot be read.
    """

    def __init__(self, lock: str) -> None:
        self._lock = lock
        self._pip = [sys.executable, "-m", "pip"]
        listed = subprocess.run(
            [*self._pip, "config", "list"], capture_output=True, text=True, check=False
        )
        if listed.returncode != 0:
            raise InstallError(f"pip's settings cannot be read: {' '.join(listed.stderr.split())}")
        self._settings = pip_settings(listed.stdout)
        self._use_pip()

    def _use_pip(self) -> None:
        self._install = [*self._pip, "install", "--quiet"]
        self._environment = pip_environment(self._settings, os.environ)

    def prefer_uv(self) -> None:
        """Install uv, and use it from now on; writes the reason where pip is used instead.

        Raises:
            InstallError: The package index cannot be reached.
        """
        try:
            variables, flags = for_uv(self._settings)
            failure = self._run(["--only-binary", ":all:"], needed(self._lock, ["uv"]))
            if unreachable := reason_in(failure):
                raise InstallError(unreachable)
            if _NO_WHEEL in failure:
                raise NotInUvError("the package index has no wheel of uv for this machine")
            if failure:
                raise NotInUvError(f"uv cannot be installed: {last_error(failure)}")
        except NotInUvError as reason:
            sys.stderr.write(f"pip installs, which takes a few minutes: {reason}\n")
            return
        uv = str(Path(sysconfig.get_path("scripts")) / "uv")
        self._install = [uv, "pip", "install", "--quiet", *flags, "--python", sys.executable]
        self._environment = {**_UV_DEFAULTS, **os.environ, **certificates(os.environ), **variables}

    def forget_incomplete(self) -> None:
        """Let packages whose installation was interrupted be installed again."""
        locked = entries(self._lock)
        for modules in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
            for package in incomplete(Path(modules)):
                name = re.sub(r"[-_.]+", "-", package.name.split("-")[0]).lower()
                if name in locked and name != "pip":  # which installs the others
                    sys.stderr.write(f"{package.name} is incomplete, and is installed again\n")
                    shutil.rmtree(package)

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
                # even without a connection: uv trusts fewer certificates, and other proxies
                sys.stderr.write(f"pip installs, because uv failed: {last_error(failure)}\n")
                self._use_pip()
                failure = self._run(options, text)
            if failure:
                raise InstallError(reason_in(failure) or failure)

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
        """Install from the text of a lock; returns the output if it failed."""
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            done = self._call("--require-hashes", *options, "--requirement", file.name)
        if done.returncode == 0:
            return ""
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
        installer.forget_incomplete()
        installer.prefer_uv()
        installer.install(wanted)
        installer.projects(asked.project)
    except InstallError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
