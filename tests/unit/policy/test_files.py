"""Files outside of the worker's roots: refused in settings and when they are opened."""

import os
from pathlib import Path

import pytest

from drover.connector.settings import parse_config
from drover.connectors.files.lines.file_stream_sink import FileStreamSink
from drover.connectors.files.lines.file_stream_source import FileStreamSource
from drover.connectors.files.lines.output_file import OutputFile
from drover.connectors.files.lines.tailed_files import TailedFile
from drover.connectors.files.storage.file_identity import FileError, open_file
from drover.model.ids import Term
from drover.policy.files import (
    ROOTS_VARIABLE,
    ForbiddenPathError,
    check_opened,
    directory_fault,
    path_fault,
    root_fault,
)


@pytest.fixture(autouse=True)
def roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret").write_text("secret\n")
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "up").symlink_to(tmp_path)
    monkeypatch.setenv(ROOTS_VARIABLE, f"{root}, /no/such/root")
    return root


def test_paths_below_a_root_are_allowed(roots: Path) -> None:
    for path in (roots / "a.csv", roots / "x" / "*.csv", roots / "up" / "root" / "a"):
        assert path_fault(str(path)) is None
    assert directory_fault(str(roots)) is None
    assert path_fault("/no/such/root/a") is None


@pytest.mark.parametrize("path", ["../secret", "../*", "link", "up/secret", "up/*", "../root2/a"])
def test_a_path_that_leads_out_of_the_roots_is_refused(roots: Path, path: str) -> None:
    assert "must be below" in (path_fault(f"{roots}/{path}") or "")
    assert "must be below" in (directory_fault(f"{roots}/{path}") or "")


def test_a_worker_without_roots_refuses_every_path(roots: Path) -> None:
    assert "DROVER_FILE_ROOTS" in (root_fault(str(roots), {ROOTS_VARIABLE: " "}) or "")
    assert root_fault("/etc/passwd", {ROOTS_VARIABLE: "/"}) is None
    assert root_fault("/etc/passwd", {}) is None


def test_the_connectors_refuse_such_a_path(roots: Path) -> None:
    raw = {"name": "a", "connector.class": "x", "topic": "t", "topics": "t"}
    for plugin in (FileStreamSource, FileStreamSink):
        violations = parse_config(plugin, raw | {"file": f"{roots}/link"}).violations
        assert [each.field for each in violations] == ["file"]


def test_a_link_that_is_made_later_is_refused_when_it_is_read(roots: Path) -> None:
    file = TailedFile(str(roots / "link"))
    with pytest.raises(FileError, match="must be below"):
        file.plan(max_bytes=100, max_lines=10, range_bytes=100)


def test_a_file_that_is_replaced_by_a_link_while_it_is_read_is_refused(roots: Path) -> None:
    (roots / "a").write_text("a\n")
    file = TailedFile(str(roots / "a"))
    (planned,) = file.plan(max_bytes=100, max_lines=10, range_bytes=100)
    (roots / "a").rename(roots.parent / "a")
    (roots / "a").symlink_to(roots.parent / "a")
    with pytest.raises(FileError, match="must be below"):
        open_file(planned.path, planned.identity)


def test_what_was_opened_counts(roots: Path) -> None:
    descriptor = os.open(roots / "link", os.O_RDONLY)
    try:
        with pytest.raises(ForbiddenPathError, match="must be below"):
            check_opened(descriptor, str(roots / "a"))
    finally:
        os.close(descriptor)


def test_a_file_is_not_written_through_a_link(roots: Path) -> None:
    (roots / "out").symlink_to(roots.parent / "out")
    with pytest.raises(ForbiddenPathError, match="must be below"):
        OutputFile(str(roots / "out"), connector="c", term=Term(1, 1)).open(0)
    assert not (roots.parent / "out").exists()
