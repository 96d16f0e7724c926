"""Which passes share a Spark job, and the callback before a pass that starts its own job."""

from collections.abc import Callable, Iterable
from typing import Any, cast

import pyarrow as pa
import pytest

from drover.dataplane.answers import Answering
from drover.dataplane.arrow_rows import ArrowRows
from drover.dataplane.shared_jobs import Rider, SharedJobs, pause_s, riding
from tests.unit.engine.runner_world import Spark


class Jobs:
    """Runs the work at once in this thread."""

    def are_due(self, task: object) -> bool:
        del task
        return True

    def answer(
        self, work: Callable[[], Iterable[Any]], *, abandoned: object, expected_s: float
    ) -> bytes | None:
        del abandoned, expected_s
        (found,) = Answering(lambda _: work())(0)
        return found


def rows_of(number: int) -> Iterable[Any]:
    yield pa.RecordBatch.from_pydict({"number": [number]})


@pytest.mark.parametrize(("small", "own_jobs"), [(True, 0), (False, 1)])
def test_only_a_pass_that_does_not_ride_begins_a_job_of_its_own(small: bool, own_jobs: int) -> None:
    rider = Rider(cast("SharedJobs", Jobs()))
    if small:
        rider.took(0.0)
    begun: list[None] = []
    with riding(rider, on_own_job=lambda: begun.append(None)):
        found = ArrowRows(cast("Any", Spark()), rows_of, 1, None).run(iter)
    assert found == [{"number": 0}]
    assert len(begun) == own_jobs


@pytest.mark.parametrize(
    ("pass_count", "took_s", "pause"),
    [
        pytest.param(0, 0.02, 0.0, id="all of them were abandoned"),
        pytest.param(1, 0.02, 0.0, id="a task that is alone waits for nobody"),
        pytest.param(2, 0.02, 0.02, id="two"),
        pytest.param(40, 0.02, 0.06, id="many"),
        pytest.param(40, 5.0, 0.1, id="no longer than a tenth of a second"),
    ],
)
def test_passes_are_gathered_behind_a_job_of_several(
    pass_count: int, took_s: float, pause: float
) -> None:
    assert pause_s(pass_count, took_s) == pytest.approx(pause)
