"""Where Prometheus asks: an HTTP server on a thread, which reads the state on the event loop."""

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

#: Reads some state; on the event loop, so it must be quick.
Source = Callable[[], Iterable[Sample]]

#: Series of one metric that are told; thousands of tasks on one worker have theirs.
SERIES_MAX = 10_000
#: How long a scrape waits for the event loop. Prometheus itself gives up after ten seconds.
LOOP_TIMEOUT_S = 8.0

_log = structlog.get_logger("drover.metrics")


class Metrics:
    """What one process tells: the samples of all its sources, read when somebody asks.

    ``service`` is what it is, such as "config-store".
    """

    def __init__(self, service: str = "") -> None:
        self._service = service
        self._sources: list[Source] = []

    def add(self, source: Source) -> None:
        """Ask ``source`` as well from now on."""
        self._sources.append(source)

    def samples(self) -> list[Sample]:
        """Every sample now; of each metric as many as it may have. On the event loop only."""
        counts: dict[Metric, int] = {}
        told = [table.BUILD_INFO.at(1, self._service, __version__)]
        left_out = 0
        for source in self._sources:
            for sample in source():
                count = counts[sample.metric] = counts.get(sample.metric, 0) + 1
                if count <= SERIES_MAX:
                    told.append(sample)
                else:
                    left_out += 1
        return [*told, table.SERIES_LEFT_OUT.at(left_out)]


@asynccontextmanager
async def serving_metrics(listen: str, metrics: Metrics) -> AsyncIterator[str]:
    """Serve them over HTTP for a while, at every path; gives host:port, empty if ``listen`` is.

    Raises:
        OSError: The address cannot be listened on; its text says which.
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
    """Reads the samples on the event loop, whose state no other thread may look at."""

    def __init__(self, metrics: Metrics, loop: asyncio.AbstractEventLoop) -> None:
        self._metrics = metrics
        self._loop = loop

    def describe(self) -> Iterable[Family]:
        """Nothing is known before it is asked for."""
        return ()

    def collect(self) -> Iterator[Family]:
        """For the registry, on its server's thread.

        Raises:
            TimeoutError: The event loop stands still; the scrape fails, which is the truth.
        """
        asked_s = time.monotonic()
        answer: Future[list[Sample]] = Future()

        def read() -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                lag = table.LOOP_LAG.at(time.monotonic() - asked_s)
                answer.set_result([lag, *self._metrics.samples()])
            except Exception as error:  # noqa: BLE001 - the scrape fails, nothing else
                _log.exception("the metrics cannot be read")
                answer.set_exception(error)

        self._loop.call_soon_threadsafe(read)
        try:
            samples = answer.result(LOOP_TIMEOUT_S)
        except TimeoutError:
            _log.warning("the event loop stands still: no metrics", waited_s=LOOP_TIMEOUT_S)
            raise
        finally:
            answer.cancel()
        yield from families(samples)


def families(samples: Iterable[Sample]) -> list[Family]:
    """Samples as Prometheus's own library has them."""
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
