"""HttpSource against a local API, without Spark: the functions of executors run in this process."""

import logging
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from drover.connector import ArrowRows, SourceTaskContext
from drover.connector.offsets import source_offsets
from drover.connector.settings import task_config
from drover.connectors.http.source import HttpSource, HttpSourceTask
from drover.model.ids import TaskId, Term
from drover.record.batch import ERROR_COLUMN
from tests.support.http_api import Reply, Request, running_api

PAGING = {
    "http.response.items": "/items",
    "paging.mode": "cursor",
    "paging.cursor.pointer": "/cursor",
    "paging.parameter": "tok",
}


class HttpRun:
    """Runs a task; has its rows, its errors and its committed offset."""

    def __init__(self, url: str, **config: str) -> None:
        raw = {
            "name": "h",
            "connector.class": "HttpSource",
            "topic": "t",
            "http.url": url,
            "run.interval.ms": "1",
            "retry.backoff.ms": "0",
            **config,
        }
        self.raw = raw
        self.committed: dict[str, Any] = {}
        self.rows: list[dict[str, Any]] = []
        self.errors: list[str] = []
        self.types: list[pa.Schema] = []
        self.restart()

    def restart(self) -> None:
        """Start a task at the committed offset."""
        spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1))
        self.task = HttpSourceTask()
        self.task.start(
            SourceTaskContext(
                task=TaskId("h", 0),
                claim=Term(1, 1),
                config=task_config(HttpSource, self.raw, {}),
                spark=spark,
                committed=list(self.committed.values()),
            )
        )

    def polls(self, count: int) -> "HttpRun":
        """Poll, without pauses."""
        for _ in range(count):
            self.task._not_before_s = 0.0
            batch = self.task.poll()
            if batch is None:
                continue
            frame: Any = batch.frame
            assert isinstance(frame, ArrowRows)
            for rows in frame.read(0):
                self.types.append(rows.schema)
                for row in rows.to_pylist():
                    if row.get(ERROR_COLUMN) is not None:
                        self.errors.append(row[ERROR_COLUMN])
                    else:
                        self.rows.append(
                            {n: each for n, each in row.items() if not n.startswith("__drover")}
                        )
            for offset in source_offsets(batch.offsets):
                self.committed[offset.partition_json] = offset
        return self

    def ids(self) -> list[Any]:
        return [each["id"] for each in self.rows]


def read(
    answer: Callable[[Request], Any], polls: int, **config: str
) -> tuple[HttpRun, list[Mapping[str, str]]]:
    """A run against an API of documents, and the queries of its requests."""
    with running_api(lambda request: Reply(answer(request))) as api:
        run = HttpRun(f"{api.url}/", **config).polls(polls)
        run.task.stop()
        return run, [each.query for each in api.requests]


def items(*ids: int) -> list[dict[str, int]]:
    return [{"id": each} for each in ids]


def test_a_last_page_that_repeats_its_cursor_is_delivered() -> None:
    pages = {
        None: {"items": items(1, 2), "cursor": "A"},
        "A": {"items": items(3, 4), "cursor": "A", "has_more": False},
    }
    run, queries = read(lambda request: pages[request.query.get("tok")], 4, **PAGING)
    assert run.ids() == [1, 2, 3, 4] * 2
    assert [each.get("tok") for each in queries] == [None, "A"] * 2


def test_a_last_page_without_items_ends_the_pass() -> None:
    pages: dict[str | None, Any] = {
        None: {"items": items(1), "cursor": "A"},
        "A": {"items": items(2), "cursor": "B"},
        "B": {"cursor": None},
    }
    run, _ = read(lambda request: pages[request.query.get("tok")], 3, **PAGING)
    assert run.ids() == [1, 2]
    (offset,) = run.committed.values()
    assert '"next":null' in offset.offset_json, "the offset does not keep a cursor that may expire"


@pytest.mark.parametrize("mode", ["page", "offset"])
@pytest.mark.parametrize("last", [{"n": 3}, {"items": None}, {"items": []}, {}])
def test_numbered_pages_end_without_items(mode: str, last: dict[str, Any]) -> None:
    def answer(request: Request) -> Any:
        number = int(request.query.get("p", "0"))
        return {"items": items(number), "n": number} if number < 2 else last

    config = {"http.response.items": "/items", "paging.mode": mode, "paging.parameter": "p"}
    run, queries = read(answer, 6, **config)
    assert run.ids() == [0, 1] * 2
    assert [each["p"] for each in queries] == ["0", "1", "2"] * 2


def test_empty_pages_without_end() -> None:
    def answer(request: Request) -> Any:
        token = int(request.query.get("tok", "0"))
        found = items(1, 2) if token == 0 else []
        return {"items": found, "cursor": str(token + 1), "has_more": token == 0}

    for setting in ({"paging.more.pointer": "/has_more"}, {"paging.empty.ends": "true"}):
        run, queries = read(answer, 4, **PAGING, **setting)
        assert run.ids() == [1, 2] * 2
        assert [each.get("tok") for each in queries] == [None, "1"] * 2


def test_a_limit_of_pages_does_not_stop_the_next_pass(caplog: pytest.LogCaptureFixture) -> None:
    def answer(request: Request) -> Any:
        token = int(request.query.get("tok", "0"))
        return {"items": [{"id": token, "at": 100 + token}], "cursor": str(token + 1)}

    more = {
        "paging.max.pages": "3",
        "incremental.parameter": "since",
        "incremental.pointer": "/at",
        "incremental.initial": "5",
    }
    with caplog.at_level(logging.WARNING):
        run, queries = read(answer, 6, **PAGING, **more)
    assert run.ids() == [0, 1, 2] * 2
    assert {each["since"] for each in queries} == {"5"}, "items beyond the limit were not read"
    assert "more than 3 pages (paging.max.pages)" in caplog.text


def test_an_error_in_place_of_a_page_does_not_end_the_pass() -> None:
    replies: list[Any] = [
        {"items": items(1), "cursor": "A"},
        {"error": "try again"},
        {"items": items(2), "cursor": None},
    ]
    with running_api(lambda _: Reply(replies[min(len(api.requests), 3) - 1])) as api:
        run = HttpRun(f"{api.url}/", **PAGING).polls(1)
        with pytest.raises(Exception, match="no list at /items"):
            run.polls(1)
        run.restart()
        assert run.polls(1).ids() == [1, 2]


@pytest.mark.parametrize(
    ("document", "values"),
    [
        ('[{"id":9007199254740993},{"id":1.5}]', ["9007199254740993", "1.5"]),
        ('[{"id":18446744073709551615},{"id":1}]', ["18446744073709551615", "1"]),
        ('[{"id":123456789012345678901234567890}]', ["123456789012345678901234567890"]),
        ('[{"id":0.1234567890123456789},{"id":2}]', ["0.1234567890123456789", "2"]),
        (f'[{{"id":{"9" * 60}}}]', ["9" * 60]),
    ],
)
def test_numbers_keep_their_digits(document: str, values: list[str]) -> None:
    run, _ = read(lambda _: document.encode(), 1)
    assert run.errors == []
    assert [str(each["id"]).rstrip("0").rstrip(".") for each in run.rows] == [
        each.rstrip("0").rstrip(".") for each in values
    ]


def test_numbers_that_a_type_of_the_schema_does_not_hold_are_errors() -> None:
    document = b'[{"id":9007199254740993},{"id":1.5},{"id":18446744073709551615}]'
    run, _ = read(lambda _: document, 1, schema="id double")
    assert run.ids() == [1.5]
    assert len(run.errors) == 2
    run, _ = read(lambda _: document, 1, schema="id bigint")
    assert run.ids() == [9007199254740993]
    assert len(run.errors) == 2


def test_a_number_that_no_type_holds_is_an_error_of_its_record() -> None:
    run, _ = read(lambda _: b'[{"id":1e400},{"id":1}]', 1)
    assert run.ids() == [1]
    assert len(run.errors) == 1
