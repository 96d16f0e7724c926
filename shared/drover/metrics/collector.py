"""Samples as Prometheus' metric families, collected on the event loop at each scrape."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future

import structlog
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.core import (
    Metric as Family,
)
from prometheus_client.registry import Collector

from drover.metrics import table
from drover.metrics.figures import Distribution, Tally
from drover.metrics.metric import Kind, Metric, Sample

#: How long a scrape waits for the event loop. Prometheus' own scrape timeout is ten seconds.
LOOP_TIMEOUT_S = 8.0

_log = structlog.get_logger("drover.metrics")


def registry_of(
    samples: Callable[[], Iterable[Sample]], loop: asyncio.AbstractEventLoop
) -> CollectorRegistry:
    """A registry of the process's own metrics and of samples, which are read on ``loop``."""
    registry = CollectorRegistry()
    registry.register(_OnLoop(samples, loop))
    ProcessCollector(registry=registry)
    return registry


class _OnLoop(Collector):
    """Collects the samples on the event loop, because no other thread may access its state."""

    def __init__(
        self, samples: Callable[[], Iterable[Sample]], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._samples = samples
        self._loop = loop

    def describe(self) -> Iterable[Family]:
        """No metrics are known before the first scrape."""
        return ()

    def collect(self) -> Iterator[Family]:
        """Called by the registry, on the server's thread.

        Raises:
            TimeoutError: The event loop is blocked, so the scrape fails.
        """
        asked_s = time.monotonic()
        answer: Future[list[Sample]] = Future()

        def read() -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                lag = table.LOOP_LAG.at(time.monotonic() - asked_s)
                answer.set_result([lag, *self._samples()])
            except Exception as error:  # noqa: BLE001 - only the scrape fails
                _log.exception("collecting the metrics failed")
                answer.set_exception(error)

        self._loop.call_soon_threadsafe(read)
        try:
            samples = answer.result(LOOP_TIMEOUT_S)
        except TimeoutError:
            _log.warning("the event loop is blocked: no metrics", waited_s=LOOP_TIMEOUT_S)
            raise
        finally:
            answer.cancel()
        yield from families(samples)


def families(samples: Iterable[Sample]) -> list[Family]:
    """Samples as metric families of Prometheus' client library."""
    made: dict[Metric, Family] = {}
    for sample in samples:
        family = made.get(sample.metric)
        if family is None:
            family = made[sample.metric] = _family(sample.metric)
        _add(family, sample)
    return list(made.values())


def _family(metric: Metric) -> Family:
    kinds: dict[Kind, Callable[..., Family]] = {
        Kind.COUNTER: CounterMetricFamily,
        Kind.GAUGE: GaugeMetricFamily,
        Kind.SUMMARY: SummaryMetricFamily,
        Kind.HISTOGRAM: HistogramMetricFamily,
    }
    return kinds[metric.kind](metric.name, metric.meaning, labels=metric.labels)


def _add(family: Family, sample: Sample) -> None:
    value, labels = sample.value, sample.labels
    if isinstance(value, Distribution):
        assert isinstance(family, HistogramMetricFamily)
        in_all = 0
        buckets = []
        for bound, count in zip((*value.bounds, "+Inf"), value.counts, strict=True):
            in_all += count
            buckets.append((str(bound), in_all))
        family.add_metric(labels, buckets, value.total)
    elif isinstance(value, Tally):
        assert isinstance(family, SummaryMetricFamily)
        family.add_metric(labels, value.count, value.total)
    else:
        assert isinstance(family, CounterMetricFamily | GaugeMetricFamily)
        family.add_metric(labels, value)
