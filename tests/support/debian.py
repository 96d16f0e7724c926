"""Programs and libraries of Debian's packages that tests need, without installing anything."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

#: Where CI keeps what it has taken out of packages.
_KEPT = Path(tempfile.gettempdir()) / "drover-debian"


def program(name: str, package: str) -> Path:
    """Where a program is; CI takes it out of its package where it is missing.

    A package that is installed would start its service where there is a service manager.
    """
    found = shutil.which(
        name, path=os.pathsep.join((os.environ.get("PATH", ""), str(_bin(package))))
    )
    if found is None and _can_unpack():
        _keep(package)
        found = shutil.which(name, path=str(_bin(package)))
    assert found is not None, f"install {name} ({package} of Debian or Ubuntu)"
    return Path(found)


def library(name: str, package: str) -> Path:
    """Where a library is that is in a folder of its own; as ``program``."""

    def found() -> list[Path]:
        roots = (Path("/"), _KEPT / package)
        return [each for root in roots for each in root.glob(f"usr/lib/*/*/{name}")]

    if not found() and _can_unpack():
        _keep(package)
    assert found(), f"install {name} ({package} of Debian or Ubuntu)"
    return found()[0]


def _can_unpack() -> bool:
    return bool(os.environ.get("CI")) and shutil.which("apt-get") is not None


def _keep(package: str) -> None:
    _KEPT.mkdir(exist_ok=True)
    with (_KEPT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (_KEPT / package).exists():
            _unpack(package)


def _bin(package: str) -> Path:
    return _KEPT / package / "usr" / "bin"


def _unpack(package: str) -> None:
    directory = Path(tempfile.mkdtemp(dir=_KEPT))
    try:
        if os.geteuid() == 0:
            _run("apt-get", "-qq", "-o", "Acquire::Retries=3", "update", cwd=directory)
        _run("apt-get", "-qq", "-o", "Acquire::Retries=3", "download", package, cwd=directory)
        (archive,) = directory.glob("*.deb")
        _run("dpkg-deb", "--extract", str(archive), str(directory / "files"), cwd=directory)
        (directory / "files").rename(_KEPT / package)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


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
