"""From an HTTP API to a topic, and from a topic to an HTTP API, on real Spark."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from drover.connectors.http.paging import PagingError
from drover.connectors.http.sink import HttpSink
from drover.connectors.http.source import HttpSource
from tests.spark.pipeline import Pipeline, RunningSource
from tests.support.http_api import Api, Reply, Request, running_api
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

ROWS: list[dict[str, Any]] = [
    {"id": n, "name": f"name {n}", "changed": f"2026-01-{n + 1:02d}"} for n in range(25)
]


def pages(request: Request) -> Reply:
    """Newer rows, ten per page, by cursor."""
    newer = [each for each in ROWS if each["changed"] > request.query.get("since", "")]
    start = int(request.query.get("after", "0"))
    more = start + 10 < len(newer)
    meta = {"next": str(start + 10) if more else None}
    return Reply({"data": newer[start : start + 10], "meta": meta})


def source(api: Api, **changed: str) -> dict[str, str]:
    return {
        "name": "source",
        "topic": "rows",
        "http.url": f"{api.url}/rows",
        "http.response.items": "/data",
        "paging.mode": "cursor",
        "paging.cursor.pointer": "/meta/next",
        "paging.parameter": "after",
        "incremental.parameter": "since",
        "incremental.pointer": "/changed",
        "key": "id",
        "run.interval.ms": "1",
        "retry.backoff.ms": "0",
        **changed,
    }


def run_until(running: RunningSource, done: Callable[[], bool]) -> None:
    """Poll until a condition holds; polls may return nothing for a while."""

    def stepped() -> bool:
        running.step()
        return done()

    wait_until(stepped)


def has_rows(pipeline: Pipeline, count: int) -> Callable[[], bool]:
    return lambda: pipeline.store.end_offsets("rows") == {0: count}


def sent(pipeline: Pipeline, **changed: str) -> list[dict[str, Any]]:
    """The rows that a sink sends for the topic."""
    with running_api(lambda _: Reply()) as target:
        raw = {"name": "sink", "topics": "rows", "http.url": f"{target.url}/in", **changed}
        pipeline.start_sink(HttpSink, raw).run_until_idle()
        return [json.loads(each.body) for each in target.requests]


def test_pages_are_read_and_sent_on(pipeline: Pipeline) -> None:
    with running_api(pages) as api:
        raw = source(api)
        for _ in range(3):  # a restarted task requests the second page again
            running = pipeline.start_source(HttpSource, raw)
            running.step()
            running.source.poll()

        def asked() -> list[tuple[str | None, str | None]]:
            return [(each.query.get("since"), each.query.get("after")) for each in api.requests]

        running = pipeline.start_source(HttpSource, raw)
        run_until(running, lambda: ("2026-01-25", None) in asked())
        assert (None, "20") in asked()
    assert sent(pipeline) == ROWS


def test_what_fails_for_the_moment_is_asked_again(pipeline: Pipeline) -> None:
    def answer(request: Request) -> Reply:
        if len(api.requests) % 2 == 0:
            return Reply(status=503 if len(api.requests) % 4 else 0, headers={"retry-after": "0"})
        return pages(request)

    with running_api(answer) as api:
        run_until(pipeline.start_source(HttpSource, source(api)), has_rows(pipeline, 25))
    assert sent(pipeline) == ROWS
    with running_api(
        lambda _: Reply({"data": []}) if len(api.requests) < 2 else Reply(status=500)
    ) as api:
        failing = pipeline.start_source(HttpSource, source(api, **{"max.retries": "2"}))
        with pytest.raises(Exception, match=r"answers 500 \(.*\); failed after 3 attempts"):
            run_until(failing, lambda: False)
        assert len(api.requests) == 1 + 3


def test_an_api_that_pages_for_ever_is_told(pipeline: Pipeline) -> None:
    def answer(request: Request) -> Reply:
        return Reply({"data": [{"id": 1}], "meta": {"next": "again"}})

    with running_api(answer) as api:
        running = pipeline.start_source(HttpSource, source(api))
        with pytest.raises(PagingError, match="the same page again"):
            run_until(running, lambda: False)


def test_items_that_are_no_rows_are_errors_of_their_own(pipeline: Pipeline) -> None:
    items: list[Any] = [{"id": 1}, 7, {"id": "x"}, {"id": 2}]
    with running_api(lambda _: Reply(items)) as api:
        raw = {
            "name": "source",
            "topic": "rows",
            "http.url": api.url,
            "schema": "id bigint",
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": "bad",
        }
        run_until(pipeline.start_source(HttpSource, raw), has_rows(pipeline, 2))
    assert pipeline.store.end_offsets("bad") == {0: 2}
    assert sent(pipeline) == [{"id": 1}, {"id": 2}]


def test_records_that_are_refused_are_dead_letters(pipeline: Pipeline) -> None:
    with running_api(pages) as api:
        run_until(pipeline.start_source(HttpSource, source(api)), has_rows(pipeline, 25))

    def answer(request: Request) -> Reply:
        return Reply(b"no seven", 422 if json.loads(request.body)["id"] == 7 else 200)

    with running_api(answer) as target:
        raw = {"name": "sink", "topics": "rows", "http.url": target.url}
        with pytest.raises(Exception, match=r"answers 422 \(.*8 bytes\)"):
            pipeline.start_sink(HttpSink, raw).run_until_idle()
        more = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "bad"}
        pipeline.start_sink(HttpSink, raw | more).run_until_idle()
    assert pipeline.store.end_offsets("bad") == {0: 1}
