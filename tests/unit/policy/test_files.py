"""Files outside of the worker's roots: refused in settings and when they are opened."""

import json
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
from drover.policy import files as policy_files
from drover.policy.files import (
    DENIED_VARIABLE,
    ROOTS_VARIABLE,
    ForbiddenPathError,
    check_opened,
    directory_fault,
    existing_file_fault,
    in_allowed_directories,
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
    for environment in ({ROOTS_VARIABLE: " "}, {ROOTS_VARIABLE: "/no/such/root"}):
        fault = root_fault(str(roots), environment) or ""
        assert "DROVER_FILE_ROOTS" in fault
        assert "drover up --file-roots" in fault
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


@pytest.mark.parametrize("path", ["/proc/self/environ", "/proc", "/sys/kernel", "/dev/mem"])
def test_files_of_the_kernel_are_refused_whatever_the_roots(path: str) -> None:
    assert "never access" in (root_fault(path, {ROOTS_VARIABLE: "/"}) or "")
    assert root_fault("/dev/null", {ROOTS_VARIABLE: "/"}) is None
    assert root_fault("/procedures", {ROOTS_VARIABLE: "/"}) is None


def test_files_of_the_worker_are_refused_whatever_the_roots(roots: Path) -> None:
    (roots / "data").mkdir()
    (roots / "key.pem").write_text("key")
    (roots / "alias").symlink_to(roots / "data")
    denied = json.dumps([str(roots / "alias"), str(roots / "key.pem")])
    environment = {ROOTS_VARIABLE: str(roots), DENIED_VARIABLE: denied}
    for path in ("data", "data/config.db", "alias/config.db", "key.pem", "x/../key.pem"):
        assert "belongs to the worker" in (root_fault(f"{roots}/{path}", environment) or "")
    for path in ("data2", "key.pem.old", "key"):
        assert root_fault(f"{roots}/{path}", environment) is None


def test_a_hard_link_to_a_file_of_the_worker_is_refused(
    roots: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = roots.parent / "data"
    (data / "engine").mkdir(parents=True)
    files = [data / "config.db", data / "engine" / "part", roots.parent / "key.pem"]
    for each in files:
        each.write_text("key")
        (roots / f"{each.name}.link").hardlink_to(each)
    (roots / "own").write_text("x")
    (roots / "second name").hardlink_to(roots / "own")
    monkeypatch.setenv(DENIED_VARIABLE, json.dumps([str(data), str(files[2])]))
    for each in files:
        link = roots / f"{each.name}.link"
        assert "belongs to the worker" in (root_fault(str(link)) or "")
        with link.open() as file, pytest.raises(ForbiddenPathError, match="belongs to the worker"):
            check_opened(file.fileno(), str(roots / "own"))
        with pytest.raises(FileError, match="belongs to the worker"):
            TailedFile(str(link)).plan(max_bytes=100, max_lines=10, range_bytes=100)
        with pytest.raises(ForbiddenPathError, match="belongs to the worker"):
            OutputFile(str(link), connector="c", term=Term(1, 1)).open(0)
        assert each.read_text() == "key"
    assert root_fault(str(roots / "second name")) is None
    monkeypatch.setattr(policy_files, "_LINKS_MAX", 1)
    assert "copy the file" in (root_fault(str(roots / "second name")) or "")
    assert root_fault(str(roots / "link.csv")) is None


def test_a_message_does_not_tell_whether_a_file_outside_exists(roots: Path) -> None:
    outside = roots.parent / "outside"
    (roots.parent / "target").write_text("x")
    before = [root_fault(str(outside)), existing_file_fault(str(outside))]
    through = [root_fault(f"{roots}/up/outside"), existing_file_fault(f"{roots}/up/outside")]
    outside.symlink_to(roots.parent / "target")
    assert [root_fault(str(outside)), existing_file_fault(str(outside))] == before
    assert [
        root_fault(f"{roots}/up/outside"),
        existing_file_fault(f"{roots}/up/outside"),
    ] == through
    assert "leads out of the allowed directories" in (through[0] or "")
    assert "target" not in "".join(each or "" for each in through)
    assert existing_file_fault(f"{roots}/missing") == "is no file on this worker"


def test_paths_through_links_that_lead_outside_are_left_out(roots: Path) -> None:
    paths = [f"{roots}/a", f"{roots}/up/secret", f"{roots}/up/root/b"]
    assert in_allowed_directories(paths) == [f"{roots}/a", f"{roots}/up/root/b"]
