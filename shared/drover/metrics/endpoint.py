"""The metrics endpoint: an HTTP server on a thread, which reads the state on the event loop."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager

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

from drover import __version__
from drover.metrics import table
from drover.metrics.figures import Distribution, Tally
from drover.metrics.metric import Kind, Metric, Sample
from drover.metrics.scrape_server import scrape_server

#: Reads state on the event loop, so it must be fast.
Source = Callable[[], Iterable[Sample]]

#: The maximum number of series of a metric; one worker may have thousands of tasks with a series
#: each.
SERIES_MAX = 10_000
#: How long a scrape waits for the event loop. Prometheus' own scrape timeout is ten seconds.
LOOP_TIMEOUT_S = 8.0

_log = structlog.get_logger("drover.metrics")


class Metrics:
    """The metrics of one process: the samples of all its sources, read at each scrape.

    ``service`` is the kind of process, such as "config-store".
    """

    def __init__(self, service: str = "") -> None:
        self._service = service
        self._sources: list[Source] = []

    def add(self, source: Source) -> None:
        """Add a source."""
        self._sources.append(source)

    def samples(self) -> list[Sample]:
        """All current samples, up to SERIES_MAX of each metric. On the event loop only."""
        counts: dict[Metric, int] = {}
        samples = [table.BUILD_INFO.at(1, self._service, __version__)]
        left_out = 0
        for source in self._sources:
            for sample in source():
                count = counts[sample.metric] = counts.get(sample.metric, 0) + 1
                if count <= SERIES_MAX:
                    samples.append(sample)
                else:
                    left_out += 1
        return [*samples, table.SERIES_LEFT_OUT.at(left_out)]


@asynccontextmanager
async def serving_metrics(listen: str, metrics: Metrics) -> AsyncIterator[str]:
    """Serve metrics over HTTP, at every path. Yields host:port; empty if ``listen`` is empty.

    Raises:
        OSError: The address cannot be bound; the message names it.
    """
    if not listen:
        yield ""
        return
    host, _, port = listen.rpartition(":")
    registry = CollectorRegistry()
    registry.register(_OnLoop(metrics, asyncio.get_running_loop()))
    ProcessCollector(registry=registry)
    try:
        server = scrape_server(host.strip("[]"), int(port), registry)
    except OSError as error:
        why = error.strerror or str(error)
        raise OSError(error.errno, f"cannot serve metrics on {listen}: {why}") from error
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    bound = f"{host}:{server.server_port}"
    _log.info("serving metrics", address=bound)
    try:
        yield bound
    finally:
        await asyncio.to_thread(_end, server.shutdown, server.server_close, thread.join)


def _end(*steps: Callable[[], object]) -> None:
    for step in steps:
        step()


class _OnLoop(Collector):
    """Collects the samples on the event loop, because no other thread may access its state."""

    def __init__(self, metrics: Metrics, loop: asyncio.AbstractEventLoop) -> None:
        self._metrics = metrics
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
                answer.set_result([lag, *self._metrics.samples()])
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
