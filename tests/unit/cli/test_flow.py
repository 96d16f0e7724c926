from pathlib import Path

import pytest

from drover.cli.dataset import Dataset, load_dataset
from drover.cli.flow import Feeder, OutputMeter, difference

LINES = [f"row {number}\n".encode() for number in range(1, 101)]


@pytest.fixture
def rows(tmp_path: Path) -> Dataset:
    path = tmp_path / "rows.csv"
    path.write_bytes(b"".join(LINES))
    return load_dataset(tmp_path, path, use_sample=True)


async def test_the_feeder_writes_every_byte_once(tmp_path: Path, rows: Dataset) -> None:
    feeder = Feeder(rows, tmp_path / "in.csv", duration_s=0.3)
    await feeder.run(lambda: False)
    assert (tmp_path / "in.csv").read_bytes() == rows.path.read_bytes()
    assert (feeder.rows_in, feeder.bytes_in, feeder.share) == (100, rows.size_bytes, 1.0)


def test_the_meter_counts_what_is_new_and_starts_over_after_a_cut(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    meter = OutputMeter(path)
    meter.update()
    assert (meter.bytes_out, meter.rows_out) == (0, 0)
    path.write_bytes(b"a\nb\nc")
    meter.update()
    assert (meter.bytes_out, meter.rows_out) == (5, 2)
    with path.open("ab") as file:
        file.write(b"\nd\n")
    meter.update()
    assert (meter.bytes_out, meter.rows_out) == (8, 4)
    path.write_bytes(b"a\n")
    meter.update()
    assert (meter.bytes_out, meter.rows_out) == (2, 1)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (LINES[:50] + LINES[60:], "line 51 differs: it is line 61 of the input (10 lines lost"),
        (LINES[:50] + LINES[40:], "line 51 differs: it is line 41 of the input again (a dup"),
        ([*LINES[:9], LINES[10], LINES[9], *LINES[11:]], "line 10 differs: it is line 11 of"),
        ([*LINES[:9], b"spoilt\n", *LINES[10:]], "wanted 'row 10\\n', found 'spoilt\\n'"),
        (LINES[:80], "20 lines lost after line 80"),
        (LINES + LINES[90:], "10 duplicated lines after line 100"),
        ([*LINES, b"what\n"], "1 foreign lines after line 100"),
    ],
)
def test_a_difference_names_the_line_and_the_kind(
    tmp_path: Path, rows: Dataset, lines: list[bytes], reason: str
) -> None:
    output = tmp_path / "out.csv"
    output.write_bytes(b"".join(lines))
    assert reason in (difference(rows, output) or "")


def test_equal_files_do_not_differ(tmp_path: Path, rows: Dataset) -> None:
    output = tmp_path / "out.csv"
    output.write_bytes(b"".join(LINES))
    assert difference(rows, output) is None
