import errno
import multiprocessing
import os
import signal
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from drover.connectors.files.lines import output_file
from drover.connectors.files.lines.output_file import LockTimeoutError, OutputFile, OutputFileError
from drover.errors import FailedPreconditionError, Reason
from drover.model.ids import Term
from tests.support.waiting import wait_until

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload([output_file.__name__])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out"


def owner(path: Path, sequence: int, connector: str = "sink", timeout_s: float = 0.1) -> OutputFile:
    return OutputFile(
        str(path), connector=connector, term=Term(1, sequence), lock_timeout_s=timeout_s
    )


def opened(path: Path, sequence: int, committed: int) -> OutputFile:
    file = owner(path, sequence)
    file.open(committed)
    return file


def append(file: OutputFile, position: int, *contents: bytes) -> int:
    parts = []
    for number, content in enumerate(contents):
        part = file.side_directory / f"part-{number}"
        part.write_bytes(content)
        parts.append(part)
    return file.append(position, parts)


def test_parts_are_written_one_after_the_other_at_their_place(path: Path) -> None:
    file = opened(path, 1, 0)
    end = append(file, 0, b"one\n", b"", b"two\n")
    assert append(file, end, b"three\n") == 14
    assert path.read_bytes() == b"one\ntwo\nthree\n"
    file.close()


def test_the_copy_works_where_the_kernel_has_none(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EXDEV, "another file system")

    monkeypatch.setattr(os, "copy_file_range", refuse)
    monkeypatch.setattr(output_file, "_COPY_BYTES", 1000)
    content = os.urandom(4321)
    file = opened(path, 1, 0)
    assert append(file, 0, content) == 4321
    assert path.read_bytes() == content
    file.close()


def test_a_new_owner_cuts_what_was_not_committed(path: Path) -> None:
    first = opened(path, 1, 0)
    committed = append(first, 0, b"committed\n")
    append(first, committed, b"not committed\n")
    second = opened(path, 2, committed)
    assert path.read_bytes() == b"committed\n"
    append(second, committed, b"next\n")
    assert path.read_bytes() == b"committed\nnext\n"


def test_an_earlier_owner_changes_nothing_any_more(path: Path) -> None:
    first = opened(path, 1, 0)
    append(first, 0, b"a\n")
    second = opened(path, 2, 2)
    append(second, 2, b"b\n")
    for attempt in (lambda: append(first, 0, b"zombie\n"), lambda: opened(path, 1, 0)):
        with pytest.raises(FailedPreconditionError) as caught:
            attempt()
        assert caught.value.reason is Reason.STALE_CLAIM
    assert path.read_bytes() == b"a\nb\n"


def test_an_earlier_owner_cannot_take_an_empty_file_back(path: Path) -> None:
    opened(path, 2, 0)
    with pytest.raises(FailedPreconditionError):
        opened(path, 1, 0)


def test_a_file_shorter_than_what_is_committed_is_told(path: Path) -> None:
    append(opened(path, 1, 0), 0, b"1234")
    os.truncate(path, 3)
    with pytest.raises(OutputFileError, match=f"{path} has 3 bytes, but 4 are committed"):
        opened(path, 2, 4)
    path.unlink()
    with pytest.raises(OutputFileError, match=f"{path} is missing, but 4 bytes"):
        opened(path, 3, 4)


def test_a_file_of_somebody_else_is_left_alone(path: Path) -> None:
    path.write_bytes(b"precious")
    with pytest.raises(OutputFileError, match="did not write"):
        opened(path, 1, 0)
    assert path.read_bytes() == b"precious"


def test_a_file_of_another_connector_is_left_alone(path: Path) -> None:
    append(opened(path, 1, 0), 0, b"theirs")
    other = owner(path, 9, connector="other")
    with pytest.raises(OutputFileError, match="belongs to connector 'sink'"):
        other.open(0)
    assert path.read_bytes() == b"theirs"


def test_a_removed_file_may_begin_anew_under_any_term(path: Path) -> None:
    append(opened(path, 7, 0), 0, b"of an earlier cluster")
    path.unlink()
    append(opened(path, 1, 0), 0, b"new")
    assert path.read_bytes() == b"new"


def test_an_empty_file_may_be_there(path: Path) -> None:
    path.touch()
    append(opened(path, 1, 0), 0, b"x")
    assert path.read_bytes() == b"x"


@pytest.mark.parametrize("what", ["removed", "replaced"])
def test_a_file_that_is_not_the_same_any_more_is_told(path: Path, what: str) -> None:
    file = opened(path, 1, 0)
    append(file, 0, b"a")
    path.rename(path.with_name("moved"))
    if what == "replaced":
        path.write_bytes(b"theirs")
    with pytest.raises(OutputFileError, match="removed or replaced while"):
        append(file, 1, b"b")


def test_a_directory_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(OutputFileError, match="not a regular file"):
        owner(tmp_path, 1).open(0)


def test_a_missing_directory_is_told(tmp_path: Path) -> None:
    with pytest.raises(OutputFileError, match="does not exist: create it"):
        owner(tmp_path / "missing" / "out", 1).open(0)


def test_a_symbolic_link_leads_to_the_file(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(path)
    append(opened(link, 1, 0), 0, b"x")
    assert path.read_bytes() == b"x"
    assert link.is_symlink()


def test_parts_of_earlier_owners_are_removed(path: Path) -> None:
    first = opened(path, 1, 0)
    first.parts_directory.mkdir()
    (first.parts_directory / "left-behind").touch()
    second = opened(path, 2, 0)
    assert not first.parts_directory.exists()
    assert second.parts_directory != first.parts_directory


def test_a_spoilt_lock_file_is_told(path: Path) -> None:
    first = opened(path, 1, 0)
    (first.side_directory / "lock").write_bytes(b"{spoilt")
    with pytest.raises(OutputFileError, match="instead of the file"):
        opened(path, 2, 0)


def test_a_held_lock_stops_a_write_within_bounds(path: Path) -> None:
    file = opened(path, 1, 0)
    with owner(path, 1)._locked(), pytest.raises(LockTimeoutError, match="has been locked"):
        append(file, 0, b"x")
    append(file, 0, b"y")
    assert path.read_bytes() == b"y"


def _write_slowly(path: Path, inside: Event) -> None:
    """Append, and suspend this process between the checks and the write."""
    file = owner(path, 1)
    file.open(0)
    append(file, 0, b"committed\n")
    real = output_file._copy_into

    def stop_first(part: Path, target: int, position: int) -> int:
        inside.set()
        os.kill(os.getpid(), signal.SIGSTOP)
        return real(part, target, position)

    output_file._copy_into = stop_first
    append(file, 10, b"late bytes of a zombie, more than anybody else wrote\n")


@pytest.mark.e2e
def test_a_stopped_owner_neither_blocks_nor_harms_the_next(path: Path) -> None:
    inside = _processes.Event()
    process = _processes.Process(target=_write_slowly, args=(path, inside))
    process.start()
    assert inside.wait(60)
    second = opened(path, 2, 10)
    end = append(second, 10, b"next\n")
    assert process.pid is not None
    os.kill(process.pid, signal.SIGCONT)
    process.join(60)
    assert process.exitcode == 0  # it wrote into the file that the next owner has replaced
    assert path.read_bytes() == b"committed\nnext\n"
    append(second, end, b"and on\n")
    third = opened(path, 3, 15)
    append(third, 15, b"third\n")
    assert path.read_bytes() == b"committed\nnext\nthird\n"


def _take_over_slowly(path: Path, inside: Event) -> None:
    """Open at an old committed length, and suspend this process right before it truncates."""
    file = owner(path, 1)
    real = os.ftruncate

    def stop_first(descriptor: int, length: int) -> None:
        inside.set()
        os.kill(os.getpid(), signal.SIGSTOP)
        real(descriptor, length)

    os.ftruncate = stop_first
    file.open(0)


@pytest.mark.e2e
def test_a_starter_stopped_before_its_truncation_cuts_nothing_later(path: Path) -> None:
    append(opened(path, 1, 0), 0, b"committed\n")
    inside = _processes.Event()
    process = _processes.Process(target=_take_over_slowly, args=(path, inside))
    process.start()
    assert inside.wait(60)
    second = opened(path, 2, 10)
    append(second, 10, b"next\n")
    assert process.pid is not None
    os.kill(process.pid, signal.SIGCONT)
    process.join(60)
    assert path.read_bytes() == b"committed\nnext\n"
    wait_until(lambda: not process.is_alive())


# -- files of another program ----------------------------------------------------------------


def taken_over(path: Path, sequence: int, committed: str = "a") -> tuple[OutputFile, int]:
    file = owner(path, sequence)
    return file, file.open_at_end(committed, cuts_last_line=True)


def test_a_file_of_another_program_goes_on_at_its_end(path: Path) -> None:
    path.write_bytes(b"one\ntwo\n")
    file, length = taken_over(path, 1)
    assert append(file, length, b"three\n") == 14
    assert path.read_bytes() == b"one\ntwo\nthree\n"
    file.close()


@pytest.mark.parametrize(("content", "kept"), [(b"one\ntw", b"one\n"), (b"on", b""), (b"", b"")])
def test_a_line_that_is_not_whole_is_cut_off(path: Path, content: bytes, kept: bytes) -> None:
    path.write_bytes(content)
    file, length = taken_over(path, 1)
    assert (path.read_bytes(), length) == (kept, len(kept))
    file.close()


def test_a_long_last_line_is_whole_as_well(path: Path) -> None:
    content = b"first\n" + b"x" * (3 * output_file._SEARCH_BYTES) + b"\n"
    path.write_bytes(content + b"y" * (2 * output_file._SEARCH_BYTES))
    file, length = taken_over(path, 1)
    assert path.read_bytes() == content
    assert length == len(content)
    file.close()


def test_a_file_that_is_missing_begins_empty(path: Path) -> None:
    file, length = taken_over(path, 1)
    assert length == 0
    assert path.read_bytes() == b""
    file.close()


def test_what_was_written_since_a_take_over_is_cut_as_long_as_nothing_was_committed(
    path: Path,
) -> None:
    path.write_bytes(b"one\n")
    first, length = taken_over(path, 1)
    append(first, length, b"two\n")
    first.close()
    second, length = taken_over(path, 2)
    assert path.read_bytes() == b"one\n"
    append(second, length, b"two\n")
    second.close()
    third, length = taken_over(path, 3, committed="b")  # the other program committed again
    assert length == 8
    third.close()


def test_another_file_in_its_place_is_not_cut(path: Path) -> None:
    path.write_bytes(b"one\n")
    taken_over(path, 1)[0].close()
    path.rename(path.with_suffix(".old"))
    path.write_bytes(b"a file of the same name\n")
    file, _ = taken_over(path, 2)
    assert path.read_bytes() == b"a file of the same name\n"
    file.close()


@pytest.mark.parametrize("content", [b"one\n", b"one\ntw", b"on", b""])
def test_without_committed_offsets_nothing_is_cut(path: Path, content: bytes) -> None:
    first = owner(path, 1)
    first.open_at_end()
    append(first, 0, content)
    first.close()
    for sequence in (2, 3):
        file = owner(path, sequence)
        length = file.open_at_end()
        assert path.read_bytes()[:length] == path.read_bytes()
        append(file, length, b"more\n")
        file.close()
    assert path.read_bytes() == content + b"more\nmore\n"


def test_a_take_over_that_was_committed_is_not_cut_when_the_same_offsets_come_back(
    path: Path,
) -> None:
    path.write_bytes(b"one\n")
    first, length = taken_over(path, 1)
    append(first, length, b"two\n")
    first.forget_take_over()
    second, length = taken_over(path, 2)
    assert (path.read_bytes(), length) == (b"one\ntwo\n", 8)
    third, _ = taken_over(path, 3, committed="b")
    with pytest.raises(FailedPreconditionError):
        second.forget_take_over()  # the note of the next owner stays
    append(third, length, b"three\n")
    fourth, _ = taken_over(path, 4, committed="b")
    assert path.read_bytes() == b"one\ntwo\n"
    fourth.close()


def test_a_file_of_another_connector_is_not_taken_over(path: Path) -> None:
    opened(path, 1, 0).close()
    other = owner(path, 9, connector="other")
    with pytest.raises(OutputFileError, match="belongs to connector 'sink'"):
        other.open_at_end("a")


def test_an_earlier_owner_takes_nothing_over(path: Path) -> None:
    path.write_bytes(b"one\n")
    second, length = taken_over(path, 2)
    append(second, length, b"two\n")
    with pytest.raises(FailedPreconditionError) as caught:
        owner(path, 1).open_at_end("a")
    assert caught.value.reason is Reason.STALE_CLAIM
    assert path.read_bytes() == b"one\ntwo\n"
    second.close()
