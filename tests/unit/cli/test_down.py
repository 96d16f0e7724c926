"""`drover down` stops clusters, and deletes their data only on request."""

import json
from pathlib import Path

import pytest

from drover.local.state import DirectoryLock
from tests.support.fake_cluster import Run


def test_down_without_a_cluster_says_so(
    drover: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = drover("down")
    assert (code, out) == (0, "nothing to stop: there is no cluster in .drover/up\n")
    assert json.loads(drover("down", "-o", "json")[1]) == {"stopped": [], "removed": []}


def test_down_deletes_data_only_on_request(
    drover: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DirectoryLock(tmp_path / "c1").close()
    (tmp_path / "c1" / "data").mkdir()
    (tmp_path / "c1" / "data" / "topics.db").write_bytes(b"x" * 2**20)
    for options in ((), ("--keep-data",)):
        code, out, _ = drover("down", "--dir", str(tmp_path / "c1"), *options)
        assert code == 0
        assert "`drover down --delete-data` deletes it" in out
    assert (tmp_path / "c1" / "data" / "topics.db").exists()
    monkeypatch.chdir(tmp_path)
    code, out, _ = drover("down", "--dir", "c1", "--delete-data")
    assert code == 0
    assert out.splitlines()[0].startswith("deleting c1: 2 files of 1.0 MiB in all (data, ")
    assert not (tmp_path / "c1").exists()
    assert drover("down", "--delete-data", "--keep-data")[0] == 2


def test_down_leaves_a_directory_alone_that_no_cluster_made(drover: Run, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    assert drover("down", "--dir", str(tmp_path))[0] == 0
    assert (tmp_path / "precious").exists()
