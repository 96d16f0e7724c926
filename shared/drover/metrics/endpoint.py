"""The metrics endpoint: an HTTP server on a thread, which reads the state on the event loop."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import structlog

from drover import __version__
from drover.metrics import table
from drover.metrics.metric import Metric, Sample

#: Reads state on the event loop, so it must be fast.
Source = Callable[[], Iterable[Sample]]

#: The maximum number of series of a metric; one worker may have thousands of tasks with a series
#: each.
SERIES_MAX = 10_000

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
    # imported here: a process without an endpoint does not need these 3 MiB
    from drover.metrics.collector import registry_of
    from drover.metrics.scrape_server import scrape_server

    host, _, port = listen.rpartition(":")
    registry = registry_of(metrics.samples, asyncio.get_running_loop())
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
