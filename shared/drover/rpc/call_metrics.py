"""Metrics of a server's calls: counts by status code, and durations."""

from collections import Counter
from collections.abc import Iterator

from drover.metrics import table
from drover.metrics.figures import Distribution
from drover.metrics.metric import Sample


class MethodFigures:
    """The calls of one method; ``seconds`` is None for streams, which have no typical duration."""

    __slots__ = ("codes", "in_flight", "seconds")

    def __init__(self, *, streams: bool) -> None:
        self.in_flight = 0
        self.codes: Counter[str] = Counter()
        self.seconds = None if streams else Distribution()

    def ended(self, code: str, duration_s: float) -> None:
        """Count a call that has ended."""
        self.codes[code] += 1
        if self.seconds is not None:
            self.seconds.add(duration_s)


class CallFigures:
    """The calls of one server by method, for methods that the server has."""

    def __init__(self) -> None:
        self._methods: dict[str, MethodFigures] = {}

    def of(self, method: str, *, streams: bool) -> MethodFigures:
        """The figures of a method by its full name, such as ``/package.Service/Method``."""
        figures = self._methods.get(method)
        if figures is None:
            figures = self._methods[method] = MethodFigures(streams=streams)
        return figures

    def samples(self) -> Iterator[Sample]:
        """The samples for ``Metrics.add``."""
        for method, figures in self._methods.items():
            full_service, _, name = method.rpartition("/")
            labels = full_service.rpartition(".")[2], name
            for code, count in figures.codes.items():
                yield table.RPC_CALLS.at(count, *labels, code)
            if figures.seconds is not None:
                yield table.RPC_SECONDS.at(figures.seconds, *labels)
            yield table.RPC_IN_FLIGHT.at(figures.in_flight, *labels)
