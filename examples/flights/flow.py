"""Feeds the input file, counts the rows of the Parquet output, and compares both."""

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from examples.flights.dataset import Dataset

if TYPE_CHECKING:
    import pandas as pd

_TICK_S = 0.1
#: The share of its speed at which the feeder writes while held back, so the flow never stops.
_HELD_BACK_SPEED = 0.1
_UPDATE_INTERVAL_S = 0.25

#: The flights' columns, in the form of FilesSource's setting "schema".
SCHEMA = (
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, "
    "sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string, "
    "origin string, dest string, air_time int, distance int, hour int, minute int, "
    "time_hour string"
)
COLUMNS = tuple(each.split()[0] for each in SCHEMA.split(", "))
#: Malformed lines, inserted between the flights at even distances.
BAD_LINES = (
    b"2013,2,30,half past five,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,"
    b"2013-02-28T10:00:00Z\n",
    b"2013,3,1,517,515\n",
    b"this line is no flight\n",
    b"2013,5,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,far,1400,5,15,2013-05-01T10:00:00Z\n",
    b'2013,6,1,517,515,2,830,819,11,"UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-06-01T10:00:00Z\n',
)


def with_bad_lines(dataset: Dataset, path: Path) -> Dataset:
    """Write the data set with BAD_LINES inserted to ``path``."""
    lines = dataset.path.read_bytes().splitlines(keepends=True)
    step = max(1, len(lines) // (len(BAD_LINES) + 1))
    for number, bad in enumerate(BAD_LINES, start=1):
        lines.insert(min(number * step + number - 1, len(lines)), bad)
    data = b"".join(lines)
    path.write_bytes(data)
    return Dataset(
        path, len(lines), len(data), hashlib.sha256(data).hexdigest(), dataset.description
    )


class Feeder:
    """Appends a data set to a file at a constant speed, in chunks that may end within a line."""

    def __init__(self, dataset: Dataset, target: Path, *, duration_s: float) -> None:
        self._dataset = dataset
        self._target = target
        self._bytes_per_s = dataset.size_bytes / max(duration_s, _TICK_S)
        self.bytes_in = 0
        self.rows_in = 0

    @property
    def share(self) -> float:
        """The written fraction of the data set, 0 to 1."""
        return self.bytes_in / max(1, self._dataset.size_bytes)

    async def run(self, hold_back: Callable[[], bool]) -> None:
        """Write the whole data set, slower while ``hold_back()`` is true."""
        data = self._dataset.path.read_bytes()
        last_s = time.monotonic()
        allowance = 0.0
        with self._target.open("ab", buffering=0) as file:
            while self.bytes_in < len(data):
                await asyncio.sleep(_TICK_S)
                now_s = time.monotonic()
                speed = self._bytes_per_s * (_HELD_BACK_SPEED if hold_back() else 1.0)
                allowance += (now_s - last_s) * speed
                last_s = now_s
                chunk = data[self.bytes_in : self.bytes_in + int(allowance)]
                written = file.write(chunk)
                allowance -= written
                self.bytes_in += written
                self.rows_in += chunk[:written].count(b"\n")


class OutputMeter:
    """Counts the rows of the Parquet files in a directory, reading each file once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._rows: dict[Path, int] = {}
        self._next_update_s = 0.0
        self.rows_out = 0
        self.last_growth_s = time.monotonic()

    @property
    def file_count(self) -> int:
        """The number of files."""
        return len(self._rows)

    def update(self, *, at_once: bool = False) -> None:
        """Read the directory, at most a few times a second; a missing one counts as empty.

        The count may decrease: a starting sink deletes its uncommitted files.
        """
        from pyarrow import ArrowInvalid
        from pyarrow.parquet import read_metadata

        now_s = time.monotonic()
        if now_s < self._next_update_s and not at_once:
            return
        self._next_update_s = now_s + _UPDATE_INTERVAL_S
        files = {each for each in self._directory.rglob("*.parquet") if each.name[0] not in "._"}
        rows = {path: count for path, count in self._rows.items() if path in files}
        for path in files - rows.keys():
            try:
                rows[path] = read_metadata(path).num_rows
            except (OSError, ArrowInvalid):  # deleted since, or incomplete
                continue
        count = sum(rows.values())
        if count != self.rows_out:
            self.last_growth_s = now_s
        self._rows, self.rows_out = rows, count


class RateMeter:
    """A rate over the last few seconds."""

    def __init__(self, window_s: float = 3.0) -> None:
        self._window_s = window_s
        self._samples: list[tuple[float, int]] = []

    def rate(self, count: int) -> float:
        """Record the present count and return its growth per second."""
        now_s = time.monotonic()
        self._samples.append((now_s, count))
        while len(self._samples) > 2 and now_s - self._samples[0][0] > self._window_s:
            del self._samples[0]
        first_s, first = self._samples[0]
        return max(0.0, (count - first) / (now_s - first_s)) if now_s > first_s else 0.0


@dataclass(frozen=True, slots=True)
class MonthTotals:
    """Sums over a month's flights that departed.

    ``fingerprint`` is the sum of the hashes of whole rows, so it does not depend on their order.
    """

    flights: int
    distance: int
    air_time: int
    fingerprint: int


Totals = Mapping[str, MonthTotals]


def totals_of_input(dataset: Dataset) -> Totals:
    """The totals by month of the input without cancelled flights, computed by pandas."""
    import pandas as pd

    frame = pd.read_csv(dataset.path, names=list(COLUMNS), keep_default_na=True, na_values=["NA"])
    departed = frame[frame["dep_time"].notna()]
    return _totals(departed, departed["time_hour"].str.slice(0, 7))


def totals_of_output(directory: Path) -> Totals:
    """The totals by month of the Parquet output, computed by pandas."""
    from pyarrow import dataset

    frame = dataset.dataset(directory, format="parquet").to_table().to_pandas()
    months = frame["time_hour"].dt.strftime("%Y-%m")
    frame["time_hour"] = frame["time_hour"].dt.strftime("%Y-%m-%dT%H:%M:%SZ")
    return _totals(frame, months)


def unmasked_count(directory: Path) -> int:
    """How many rows of the output still have a tail number."""
    from pyarrow import dataset

    table = dataset.dataset(directory, format="parquet").to_table(columns=["tailnum"])
    return sum(bool(each) for each in table.column("tailnum").to_pylist())


def checksum(totals: Totals) -> str:
    """The SHA-256 of a table of totals."""
    text = "".join(
        f"{month},{each.flights},{each.distance},{each.air_time},{each.fingerprint}\n"
        for month, each in sorted(totals.items())
    )
    return hashlib.sha256(text.encode()).hexdigest()


def difference(wanted: Totals, found: Totals) -> str | None:
    """The first month that differs, and how; None if both are equal."""
    for month in sorted(wanted.keys() | found.keys()):
        want, have = wanted.get(month), found.get(month)
        if want == have:
            continue
        if want is None or have is None:
            return f"{month} is only in the {'output' if want is None else 'input'}"
        if want.flights != have.flights:
            kind = "lost" if have.flights < want.flights else "duplicated"
            return f"{month}: {abs(want.flights - have.flights):,} of {want.flights:,} rows {kind}"
        return f"{month}: same row count, but different rows: expected {want}, found {have}"
    return None


def _totals(frame: "pd.DataFrame", months: "pd.Series[Any]") -> Totals:
    import pandas as pd

    # gives both sides the same types, without the tail number, which a transform masks
    plain = frame[[name for name in COLUMNS if name != "tailnum"]].copy()
    for name in plain.columns:
        if pd.api.types.is_numeric_dtype(plain[name]):
            plain[name] = plain[name].astype("float64")
        else:
            plain[name] = plain[name].astype("object").where(plain[name].notna(), None)
    hashes = pd.util.hash_pandas_object(plain, index=False)
    totals = {}
    for month, rows in plain.groupby(months):
        totals[str(month)] = MonthTotals(
            flights=len(rows),
            distance=int(rows["distance"].sum()),
            air_time=int(rows["air_time"].sum()),
            fingerprint=int(hashes.loc[rows.index].sum()) % 2**64,
        )
    return totals
