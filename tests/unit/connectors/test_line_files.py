import itertools
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from drover.connectors.files.lines import tailed_files as line_files
from drover.connectors.files.lines.line_reader import read_lines, split_lines
from drover.connectors.files.lines.tailed_files import ByteRange, TailedFile
from drover.connectors.files.storage.file_identity import FileError, FileVanishedError

NOBODY = 65_534


def lines(ranges: list[ByteRange]) -> list[bytes]:
    return [line for each in ranges for line in read_lines(each).to_pylist()]


def plan(
    file: TailedFile, max_bytes: int = 1 << 20, max_lines: int = 1 << 30, range_bytes: int = 1 << 16
) -> list[ByteRange]:
    return file.plan(max_bytes=max_bytes, max_lines=max_lines, range_bytes=range_bytes)


def read_all(file: TailedFile, looks: int = 6) -> list[bytes]:
    return [line for _ in range(looks) for line in lines(plan(file))]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.log"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"a\n\nb\r\n", [b"a", b"", b"b\r"]),
        (b"\n\n", [b"", b""]),
        (b"\xff\x00\n\xc3\x28\n", [b"\xff\x00", b"\xc3("]),
        (b"a\x0bb\x85c\xe2\x80\xa8d\n", [b"a\x0bb\x85c\xe2\x80\xa8d"]),
    ],
)
def test_lines_end_at_newlines_only(data: bytes, expected: list[bytes]) -> None:
    assert split_lines(data).to_pylist() == expected


def test_a_file_that_is_not_there_yet_is_waited_for(path: Path) -> None:
    file = TailedFile(str(path))
    assert plan(file) == []
    path.write_bytes(b"here\n")
    assert read_all(file) == [b"here"]


def test_the_last_line_waits_for_its_newline(path: Path) -> None:
    path.write_bytes(b"a\nb")
    file = TailedFile(str(path))
    assert read_all(file) == [b"a"]
    with path.open("ab") as stream:
        stream.write(b"c")
    assert read_all(file) == []
    with path.open("ab") as stream:
        stream.write(b"\n")
    assert read_all(file) == [b"bc"]


def test_ranges_are_whole_lines_without_gaps(path: Path) -> None:
    content = b"".join(b"%d\n" % (n**3) for n in range(5000))
    path.write_bytes(content)
    ranges = plan(TailedFile(str(path)), range_bytes=1000)
    assert len(ranges) > 20
    assert ranges[0].start == 0
    assert ranges[-1].end == len(content)
    for before, after in itertools.pairwise(ranges):
        assert before.end == after.start
        assert content[before.end - 1 : before.end] == b"\n"
    assert b"".join(line + b"\n" for line in lines(ranges)) == content


@pytest.mark.parametrize("max_bytes", [1, 10, 37, 1000])
def test_a_batch_takes_no_more_than_its_limit_but_always_a_line(path: Path, max_bytes: int) -> None:
    content = b"".join(b"%d\n" % (n**7) for n in range(200))
    path.write_bytes(content)
    file = TailedFile(str(path))
    found: list[bytes] = []
    for _ in range(300):
        ranges = plan(file, max_bytes=max_bytes)
        if not ranges:
            break
        size = sum(each.size_bytes for each in ranges)
        batch = lines(ranges)
        assert size <= max_bytes or len(batch) == 1
        found += batch
    assert b"".join(line + b"\n" for line in found) == content


def test_a_batch_takes_about_as_many_lines_as_asked(path: Path) -> None:
    path.write_bytes(b"0123456789\n" * 10_000)
    file = TailedFile(str(path))
    assert 900 <= len(lines(plan(file, max_lines=1000))) <= 1100
    assert len(read_all(file)) > 8000


def test_what_is_left_of_an_unterminated_line_is_not_scanned_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_bytes(b"x" * 3_000_000)
    file = TailedFile(str(path))
    assert plan(file) == []
    read = 0
    real = os.pread

    def counting(descriptor: int, count: int, offset: int) -> bytes:
        nonlocal read
        data = real(descriptor, count, offset)
        read += len(data)
        return data

    monkeypatch.setattr(os, "pread", counting)
    assert plan(file) == []
    assert read == 0
    with path.open("ab") as stream:
        stream.write(b"y" * 10)
    assert plan(file) == []
    assert read < 200_000
    with path.open("ab") as stream:
        stream.write(b"\nz")
    (line,) = lines(plan(file))
    assert line == b"x" * 3_000_000 + b"y" * 10


def test_a_line_beyond_the_limit_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_files, "LINE_MAX_BYTES", 1000)
    path.write_bytes(b"short\n" + b"x" * 5000)
    file = TailedFile(str(path))
    assert lines(plan(file, max_bytes=100)) == [b"short"]
    with pytest.raises(FileError, match="a line of more than 1000 bytes at byte 6"):
        plan(file, max_bytes=100)


def test_a_file_without_lines_is_not_searched_to_its_end(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_files, "LINE_MAX_BYTES", 1000)
    path.write_bytes(b"x" * 3_000_000)
    read = 0
    pread = os.pread

    def counting(descriptor: int, length: int, position: int) -> bytes:
        nonlocal read
        block = pread(descriptor, length, position)
        read += len(block)
        return block

    monkeypatch.setattr(os, "pread", counting)
    with pytest.raises(FileError, match="a line of more than 1000 bytes at byte 0"):
        plan(TailedFile(str(path)), max_bytes=100)
    assert read < 100_000


def test_a_committed_offset_is_taken_up(path: Path) -> None:
    path.write_bytes(b"a\nb\n")
    first = TailedFile(str(path))
    read_all(first)
    offset = first.offset()
    assert offset["position"] == 4
    with path.open("ab") as stream:
        stream.write(b"c\n")
    assert read_all(TailedFile(str(path), offset)) == [b"c"]


# -- rotation --------------------------------------------------------------------------------


@pytest.mark.parametrize("restart", [False, True])
def test_a_renamed_file_is_read_to_its_end_before_its_successor(path: Path, restart: bool) -> None:
    path.write_bytes(b"1\n")
    file = TailedFile(str(path))
    assert read_all(file) == [b"1"]
    with path.open("ab") as stream:
        stream.write(b"2\n3\n")
    path.rename(path.with_suffix(".1"))
    path.write_bytes(b"4\n")
    if restart:
        file = TailedFile(str(path), file.offset())
    assert read_all(file) == [b"2", b"3", b"4"]


def test_a_writer_that_still_has_the_old_file_is_waited_for(path: Path) -> None:
    path.write_bytes(b"1\n")
    file = TailedFile(str(path))
    read_all(file)
    with path.open("ab") as writer:
        path.rename(path.with_suffix(".1"))
        assert read_all(file) == []
        writer.write(b"2\n")
        writer.flush()
        assert read_all(file) == [b"2"]
        path.touch()  # the new file exists and is empty
        assert read_all(file) == []
        writer.write(b"3\n")
        writer.flush()
        assert read_all(file) == [b"3"]
    path.write_bytes(b"4\n")
    assert read_all(file) == [b"4"]


def test_an_old_file_without_a_last_newline_gives_its_last_line(path: Path) -> None:
    path.write_bytes(b"1\n2")
    file = TailedFile(str(path))
    assert read_all(file) == [b"1"]
    path.rename(path.with_suffix(".1"))
    assert read_all(file) == []
    path.write_bytes(b"3\n")
    assert read_all(file) == [b"2", b"3"]


def test_a_replaced_file_is_read_from_its_start(path: Path, tmp_path: Path) -> None:
    path.write_bytes(b"1\n")
    file = TailedFile(str(path))
    read_all(file)
    other = tmp_path / "other"
    other.write_bytes(b"a\nb\n")
    other.rename(path)
    assert read_all(file) == [b"a", b"b"]


def test_a_new_file_with_the_old_inode_is_another_file(path: Path) -> None:
    path.write_bytes(b"1\n2\n")
    file = TailedFile(str(path))
    read_all(file)
    with path.open("r+b") as stream:  # truncated and rewritten: same inode, longer than before
        stream.truncate(0)
        stream.write(b"a\nb\nc\n")
    assert read_all(file) == [b"a", b"b", b"c"]


def test_a_truncated_file_is_read_from_its_start(path: Path) -> None:
    path.write_bytes(b"1\n2\n3\n")
    file = TailedFile(str(path))
    read_all(file)
    path.write_bytes(b"")
    assert read_all(file) == []
    path.write_bytes(b"1\n")
    assert read_all(file) == [b"1"]


@pytest.mark.parametrize("restart", [False, True])
def test_a_file_that_vanished_is_told(path: Path, restart: bool) -> None:
    path.write_bytes(b"1\n")
    file = TailedFile(str(path))
    read_all(file)
    path.unlink()
    if restart:
        file = TailedFile(str(path), file.offset())
    with pytest.raises(FileVanishedError, match=f"{path} has vanished"):
        plan(file)


def test_an_executor_reads_a_file_that_was_renamed_meanwhile(path: Path) -> None:
    path.write_bytes(b"1\n2\n")
    ranges = plan(TailedFile(str(path)))
    path.rename(path.with_suffix(".1"))
    path.write_bytes(b"another\n")
    assert lines(ranges) == [b"1", b"2"]


@pytest.mark.parametrize("what", ["replaced", "truncated", "removed"])
def test_an_executor_reads_no_other_file(path: Path, what: str) -> None:
    path.write_bytes(b"1\n2\n")
    ranges = plan(TailedFile(str(path)))
    if what == "truncated":
        os.truncate(path, 2)
    else:
        path.unlink()
    if what == "replaced":
        path.write_bytes(b"a\nb\n")
    with pytest.raises(FileError, match=str(path)):
        lines(ranges)


# -- files that cannot be read ---------------------------------------------------------------


def test_a_directory_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="is a directory"):
        plan(TailedFile(str(tmp_path)))


def test_a_pipe_is_refused_and_not_waited_on(path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(FileError, match="not a regular file"):
        plan(TailedFile(str(path)))


def test_an_unreadable_path_is_told(path: Path) -> None:
    path.symlink_to(path)
    with pytest.raises(FileError, match=f"{path} cannot be read"):
        plan(TailedFile(str(path)))


def test_a_file_without_permission_is_told() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder, "in.txt")
        path.write_bytes(b"1\n")
        path.chmod(0)
        with as_ordinary_user(), pytest.raises(FileError, match=f"{path} cannot be read"):
            plan(TailedFile(str(path)))


@contextmanager
def as_ordinary_user() -> Iterator[None]:
    """Run as an ordinary user, because root may read every file."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)
