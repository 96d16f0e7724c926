"""The definition of a metric, and one of its samples."""

from dataclasses import dataclass
from enum import StrEnum

from drover.metrics.figures import Distribution, Tally


class Kind(StrEnum):
    """Prometheus' metric types."""

    #: Only increases; its name ends in _total.
    COUNTER = "counter"
    GAUGE = "gauge"
    #: A count and a sum, without quantiles.
    SUMMARY = "summary"
    HISTOGRAM = "histogram"


Value = float | Tally | Distribution


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric.

    Attributes:
        name: Its name.
        kind: Its type.
        labels: The names of its labels.
        where: The processes that export it.
        meaning: The description for users.
        jmx: Kafka Connect's equivalent: the group of the MBean and the attribute; empty if there is
            none.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    where: str
    meaning: str
    jmx: str = ""

    def at(self, value: Value, *labels: str) -> "Sample":
        """A sample with these values of the labels."""
        assert len(labels) == len(self.labels), f"{self.name} has the labels {self.labels}"
        return Sample(self, labels, value)


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample of a metric."""

    metric: Metric
    labels: tuple[str, ...]
    value: Value
