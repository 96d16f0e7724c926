"""Programs and libraries of Debian packages, most of them used without installing the packages."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

#: CI's folder for unpacked packages.
_KEPT = Path(tempfile.gettempdir()) / "drover-debian"
_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


def program(name: str, package: str) -> Path:
    """The path of a program; CI unpacks its package if it is missing.

    Installing the package would start its service where there is a service manager.
    """
    found = shutil.which(
        name, path=os.pathsep.join((os.environ.get("PATH", ""), str(_bin(package))))
    )
    if found is None and _can_unpack():
        _keep(package, partial(_download, package))
        found = shutil.which(name, path=str(_bin(package)))
    assert found is not None, f"install {name} ({package} of Debian or Ubuntu)"
    return Path(found)


def library(name: str, package: str) -> Path:
    """The path of a library that is in a separate folder; see ``program``."""

    def found() -> list[Path]:
        roots = (Path("/"), _KEPT / package)
        return [each for root in roots for each in root.glob(f"usr/lib/*/*/{name}")]

    if not found() and _can_unpack():
        _keep(package, partial(_download, package))
    assert found(), f"install {name} ({package} of Debian or Ubuntu)"
    return found()[0]


def root_of(package: str, suite: str) -> Path:
    """A folder with a package of another suite and all its dependencies; its programs run with the
    folder's own loader.
    """
    name = f"{package}-{suite}"
    assert (_KEPT / name).exists() or shutil.which("apt-get"), (
        f"install {package} of Debian or Ubuntu"
    )
    _keep(name, partial(_download_all, package, suite))
    return _KEPT / name


def install(package: str) -> None:
    """Install a package with its dependencies, if that is possible; needs root."""
    for arguments in (["update"], ["install", "--yes", "--no-install-recommends", package]):
        subprocess.run(
            [
                *("apt-get", "-qq", "-o", "DPkg::Lock::Timeout=120"),
                *("-o", "Acquire::Retries=3", *arguments),
            ],
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=240,
            check=False,
        )


def _can_unpack() -> bool:
    return bool(os.environ.get("CI")) and shutil.which("apt-get") is not None


def _keep(name: str, download: Callable[[Path], None]) -> None:
    """Create the named folder from the archives that ``download`` fetches."""
    _KEPT.mkdir(exist_ok=True)
    with (_KEPT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (_KEPT / name).exists():
            return
        directory = Path(tempfile.mkdtemp(dir=_KEPT))
        try:
            download(directory)
            for archive in sorted(directory.rglob("*.deb")):
                _run("dpkg-deb", "--extract", str(archive), "files", cwd=directory)
            (directory / "files").rename(_KEPT / name)
        finally:
            shutil.rmtree(directory, ignore_errors=True)


def _bin(package: str) -> Path:
    return _KEPT / package / "usr" / "bin"


def _download(package: str, directory: Path) -> None:
    if os.geteuid() == 0:
        _run("apt-get", "-qq", "-o", "Acquire::Retries=3", "update", cwd=directory)
    _run("apt-get", "-qq", "-o", "Acquire::Retries=3", "download", package, cwd=directory)


def _download_all(package: str, suite: str, directory: Path) -> None:
    """Download with a separate apt state: no package is installed, and the suite is the only
    source.
    """
    for each in ("state/lists/partial", "cache/archives/partial"):
        (directory / each).mkdir(parents=True)
    (directory / "status").touch()
    (directory / "sources").write_text(f"deb [signed-by={_KEYS}] {_archive()} {suite} main\n")
    options = {
        "Dir::Etc::SourceList": directory / "sources",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State": directory / "state",
        "Dir::State::Status": directory / "status",
        "Dir::Cache": directory / "cache",
        "Debug::NoLocking": "true",
        "Acquire::Retries": "3",
    }
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in options.items())]
    _run(*apt, "update", cwd=directory)
    chosen = ("--yes", "--download-only", "--no-install-recommends", package)
    _run(*apt, "install", *chosen, cwd=directory)


def _archive() -> str:
    """The Debian mirror of this machine."""
    asked = ("apt-get", "indextargets", "--format", "$(REPO_URI)", "Label: Debian")
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.stdout, f"no source of Debian's packages is set here: {done.stderr.strip()}"
    return done.stdout.split()[0]


def _run(*command: str, cwd: Path) -> None:
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-2_000:]}"
