"""One measured figure, printed as a line of JSON."""

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value, with its peer's value or its limit.

    ``samples`` are the runs behind ``value``; ``ratio`` is value / peer where there is a peer.
    """

    figure: str
    value: float
    unit: str
    peer: str = ""
    peer_value: float | None = None
    limit: str = ""
    samples: Sequence[float] = ()

    def line(self) -> str:
        """The figure as JSON."""
        line: dict[str, object] = {
            "figure": self.figure,
            "value": round(self.value, 3),
            "unit": self.unit,
        }
        if self.peer_value:
            line["peer"] = self.peer
            line["peer_value"] = round(self.peer_value, 3)
            line["ratio"] = round(self.value / self.peer_value, 3)
        if self.limit:
            line["limit"] = self.limit
        if self.samples:
            line["samples"] = [round(sample, 3) for sample in self.samples]
        return json.dumps(line)

    def print(self) -> None:
        """Write the figure to stdout."""
        sys.stdout.write(self.line() + "\n")
        sys.stdout.flush()


def percentile(samples: Sequence[float], part: float) -> float:
    """The smallest sample that at least ``part`` of the samples do not exceed."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]
