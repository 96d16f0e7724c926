from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from examples.flights.dataset import Dataset, load_dataset
from examples.flights.flow import (
    BAD_LINES,
    Feeder,
    MonthTotals,
    OutputMeter,
    checksum,
    difference,
    totals_of_input,
    totals_of_output,
    unmasked_count,
    with_bad_lines,
)

FLIGHTS = Path(__file__).parents[2] / "data" / "flights_sample.csv"
LINES = [f"row {number}\n".encode() for number in range(1, 101)]
MAY = MonthTotals(flights=10, distance=100, air_time=50, fingerprint=7)


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


def test_the_bad_lines_are_among_the_rows_and_none_of_these_is_lost(
    tmp_path: Path, rows: Dataset
) -> None:
    fed = with_bad_lines(rows, tmp_path / "fed.csv")
    lines = fed.path.read_bytes().splitlines(keepends=True)
    assert fed.row_count == len(lines) == 100 + len(BAD_LINES)
    assert [each for each in lines if each not in BAD_LINES] == LINES
    assert lines[0] not in BAD_LINES
    assert lines[-1] not in BAD_LINES


def test_the_meter_counts_files_that_come_and_go(tmp_path: Path) -> None:
    meter = OutputMeter(tmp_path / "out")
    meter.update(at_once=True)
    assert (meter.rows_out, meter.file_count) == (0, 0)
    folder = tmp_path / "out" / "month=2013-01"
    folder.mkdir(parents=True)
    for name, count in (("a", 2), ("b", 3), (".c", 9)):
        pq.write_table(pa.table({"n": list(range(count))}), folder / f"{name}.parquet")
    (folder / "d.parquet").write_bytes(b"not yet whole")
    meter.update(at_once=True)
    assert (meter.rows_out, meter.file_count) == (5, 2)
    (folder / "a.parquet").unlink()
    meter.update(at_once=True)
    assert (meter.rows_out, meter.file_count) == (3, 1)


def test_equal_tables_do_not_differ_and_have_one_checksum() -> None:
    assert difference({"2013-05": MAY}, {"2013-05": MAY}) is None
    assert checksum({"a": MAY, "b": MAY}) == checksum({"b": MAY, "a": MAY})
    assert checksum({"a": MAY}) != checksum({"b": MAY})


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ({}, "2013-05 is only in the input"),
        ({"2013-05": MAY, "2013-06": MAY}, "2013-06 is only in the output"),
        ({"2013-05": replace(MAY, flights=8)}, "2013-05: 2 of 10 rows lost"),
        ({"2013-05": replace(MAY, flights=13)}, "2013-05: 3 of 10 rows duplicated"),
        ({"2013-05": replace(MAY, fingerprint=8)}, "same row count, but different rows"),
    ],
)
def test_a_difference_names_the_month_and_the_kind(
    found: dict[str, MonthTotals], reason: str
) -> None:
    assert reason in (difference({"2013-05": MAY}, found) or "")


def test_one_changed_value_of_the_output_is_seen(tmp_path: Path) -> None:
    dataset = load_dataset(tmp_path, FLIGHTS, use_sample=True)
    wanted = totals_of_input(dataset)
    frame = _departed(dataset)
    pq.write_table(frame, tmp_path / "whole.parquet")
    assert difference(wanted, totals_of_output(tmp_path)) is None
    assert unmasked_count(tmp_path) == 0
    carriers = frame.column("carrier").to_pylist()
    index = frame.schema.get_field_index("carrier")
    changed = frame.set_column(index, "carrier", pa.array(["XX", *carriers[1:]]))
    pq.write_table(changed, tmp_path / "whole.parquet")
    assert "different rows" in (difference(wanted, totals_of_output(tmp_path)) or "")


def _departed(dataset: Dataset) -> pa.Table:
    """The departed flights in the sink's format."""
    import pandas as pd

    from examples.flights.flow import COLUMNS

    frame = pd.read_csv(dataset.path, names=list(COLUMNS))
    frame = frame[frame["dep_time"].notna()].assign(tailnum="")
    frame["time_hour"] = pd.to_datetime(frame["time_hour"], utc=True)
    return pa.Table.from_pandas(frame, preserve_index=False)
