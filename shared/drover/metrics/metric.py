"""What a metric is, and one value of it."""

from dataclasses import dataclass
from enum import StrEnum

from drover.metrics.figures import Distribution, Tally


class Kind(StrEnum):
    """As Prometheus has them."""

    #: Only grows; its name ends in _total.
    COUNTER = "counter"
    GAUGE = "gauge"
    #: A count and a sum, without quantiles.
    SUMMARY = "summary"
    HISTOGRAM = "histogram"


Value = float | Tally | Distribution


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric.

    ``where`` names the processes that have it. ``meaning`` is for people. ``jmx`` is what Kafka
    Connect calls it: the group of its MBean and the attribute; empty when it has none.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    where: str
    meaning: str
    jmx: str = ""

    def at(self, value: Value, *labels: str) -> "Sample":
        """Its value for these values of its labels."""
        assert len(labels) == len(self.labels), f"{self.name} has the labels {self.labels}"
        return Sample(self, labels, value)


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a metric."""

    metric: Metric
    labels: tuple[str, ...]
    value: Value
