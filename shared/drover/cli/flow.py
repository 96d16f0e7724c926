"""Rows going into a file, rows coming out of another, and whether they are the same."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from drover.cli.dataset import Dataset, sha256_of

_TICK_S = 0.1
#: While the feeder is told to hold back it goes at this share of its speed: the flow never stops.
_HELD_BACK_SPEED = 0.1
_READ_BYTES = 4 * 1024 * 1024
_SHOWN_BYTES = 80


class Feeder:
    """Appends a data set's bytes to a file at an even speed, lines cut anywhere as writers do."""

    def __init__(self, dataset: Dataset, target: Path, *, duration_s: float) -> None:
        self._dataset = dataset
        self._target = target
        self._bytes_per_s = dataset.size_bytes / max(duration_s, _TICK_S)
        self.bytes_in = 0
        self.rows_in = 0

    @property
    def share(self) -> float:
        """How much of the data set has been written, 0 to 1."""
        return self.bytes_in / max(1, self._dataset.size_bytes)

    async def run(self, hold_back: Callable[[], bool]) -> None:
        """Write it all; slower while ``hold_back()``."""
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
    """Counts the lines of a growing file, reading only what is new."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.bytes_out = 0
        self.rows_out = 0
        self.last_growth_s = time.monotonic()

    def update(self) -> None:
        """Look at the file; one that is not there yet is empty."""
        try:
            size = self._path.stat().st_size
            if size < self.bytes_out:
                # a sink that starts cuts off what it had not committed
                self.bytes_out = self.rows_out = 0
            if size == self.bytes_out:
                return
            with self._path.open("rb") as file:
                file.seek(self.bytes_out)
                while block := file.read(_READ_BYTES):
                    self.bytes_out += len(block)
                    self.rows_out += block.count(b"\n")
        except FileNotFoundError:
            return
        self.last_growth_s = time.monotonic()


class RateMeter:
    """A rate over the last few seconds."""

    def __init__(self, window_s: float = 3.0) -> None:
        self._window_s = window_s
        self._samples: list[tuple[float, int]] = []

    def rate(self, count: int) -> float:
        """Note a count of now and return how fast it grows, per second."""
        now_s = time.monotonic()
        self._samples.append((now_s, count))
        while len(self._samples) > 2 and now_s - self._samples[0][0] > self._window_s:
            del self._samples[0]
        first_s, first = self._samples[0]
        return max(0.0, (count - first) / (now_s - first_s)) if now_s > first_s else 0.0


def difference(dataset: Dataset, output: Path) -> str | None:
    """None when ``output`` holds exactly the data set; else what is wrong and at which line."""
    if sha256_of(output) == dataset.sha256:
        return None
    wanted = dataset.path.read_bytes().splitlines(keepends=True)
    found = output.read_bytes().splitlines(keepends=True)
    for index, (want, have) in enumerate(zip(wanted, found, strict=False)):
        if want != have:
            return f"line {index + 1} differs: {_classify(wanted, have, index)}"
    if len(found) > len(wanted):
        extra = len(found) - len(wanted)
        kind = "duplicated" if found[len(wanted)] in set(wanted) else "foreign"
        return f"{extra} {kind} lines after line {len(wanted)}, the last one of the input"
    return f"{len(wanted) - len(found)} lines lost after line {len(found)}"


def _classify(wanted: list[bytes], have: bytes, index: int) -> str:
    if have in wanted[:index]:
        return f"it is line {wanted.index(have) + 1} of the input again (a duplicate)"
    if have in wanted[index:]:
        place = wanted.index(have, index)
        return f"it is line {place + 1} of the input ({place - index} lines lost or reordered)"
    return f"wanted {_shown(wanted[index])}, found {_shown(have)}"


def _shown(line: bytes) -> str:
    return repr(line[:_SHOWN_BYTES])[1:] + ("…" if len(line) > _SHOWN_BYTES else "")
