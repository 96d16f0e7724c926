"""What validation and previews predict, compared with what a run does, on a running cluster."""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from drover.api.common.v1.preview_pb2 import Preview, PreviewedHeader
from drover.api.common.v1.topics_pb2 import RecordQuery
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client import ConnectClient
from drover.convert.lenient import is_json
from drover.errors import InvalidArgumentError, Reason
from tests.support.shared_cluster import SharedCluster
from tests.support.waiting import wait_until_async

#: The number of records in each example: a preview shows all of them.
ROWS_MAX = 100
_TIMEOUT_S = 120.0
#: Prefix of the topics and connectors of these tests.
PREFIX = "predicted-"


@dataclass(frozen=True)
class Example:
    """A connector's documented example, and what its run is compared with.

    Attributes:
        page: The page in docs that has the example.
        name: Its name in the page.
        run: What equals the preview's records after the run.
        server: The server that it needs; empty for none.
        bounded: The settings with paths and hosts, which the worker's limits must cover.
        preview: What a preview shows.
    """

    page: str
    name: str
    run: str
    server: str = ""
    bounded: tuple[str, ...] = ()
    preview: str = "the records"


_DELIVERED = "topic, key, value and headers of each delivered record"
#: The example of each connector.
EXAMPLES: Mapping[str, Example] = {
    "ConsoleSink": Example("files-and-datagen", "orders-shown", "the number of written records"),
    "DatagenSource": Example("files-and-datagen", "orders", _DELIVERED),
    "DeltaSink": Example("lakehouse", "orders-delta", "the rows of the table"),
    "FileStreamSink": Example(
        "files-and-datagen", "lines-copy", "the lines of the file", bounded=("file",)
    ),
    "FileStreamSource": Example("files-and-datagen", "lines", _DELIVERED, bounded=("file",)),
    "FilesSink": Example(
        "files-and-datagen", "orders-files", "the rows of the files", bounded=("path",)
    ),
    "FilesSource": Example("files-and-datagen", "incoming", _DELIVERED, bounded=("path",)),
    "HttpSink": Example(
        "http",
        "orders-api",
        "the bodies of the requests",
        "HTTP API",
        ("http.url", "oauth2.access.token.url"),
    ),
    "HttpSource": Example("http", "issues", _DELIVERED, "HTTP API", ("http.url",)),
    "IcebergSink": Example(
        "lakehouse",
        "orders-iceberg",
        "the rows of the table",
        "Iceberg catalogue",
        ("iceberg.catalog.uri",),
    ),
    "JdbcSink": Example(
        "jdbc", "shop-copy", "the rows of the table", "PostgreSQL", ("connection.url",)
    ),
    "JdbcSource": Example(
        "jdbc", "shop", _DELIVERED, "PostgreSQL", ("connection.url",), "the records of a table"
    ),
    "KafkaSink": Example(
        "kafka-mirror",
        "west",
        "topic, key and value of each record there",
        "Kafka",
        ("target.cluster.bootstrap.servers",),
    ),
    "KafkaSource": Example(
        "kafka-mirror", "east", _DELIVERED, "Kafka", ("source.cluster.bootstrap.servers",)
    ),
    "NullSink": Example("files-and-datagen", "orders-measured", "the number of written records"),
    "PostgresCdcSource": Example(
        "postgres-cdc",
        "shop",
        "topic, key and row of each delivered record",
        "PostgreSQL",
        ("database.hostname",),
        "the rows of the tables, without a slot",
    ),
    "PythonDataSource": Example("python-data-source", "people", _DELIVERED),
    "S3Sink": Example("object-stores", "orders-s3", "the rows of the objects", "S3"),
}


@dataclass(frozen=True, order=True)
class Shown:
    """A record as people see it; absent parts are empty."""

    topic: str
    key: str
    value: str
    headers: tuple[tuple[str, str], ...] = ()


async def predicted(
    client: ConnectClient, config: Mapping[str, str], *, allowed_warnings: int = 0
) -> list[Shown]:
    """The records that a preview shows after the last step; the config must have no fault, and
    exactly ``allowed_warnings`` settings without effect.

    Raises:
        AssertionError: A fault or a warning, or a record that the preview does not show.
    """
    validated = await client.validate_config(config)
    assert [(each.field, each.description) for each in validated.violations] == []
    warned = [(each.field, each.description) for each in validated.warnings]
    assert len(warned) == allowed_warnings, warned
    assert all("no effect here" in text for _, text in warned)
    preview = await client.preview_connector(config, row_count=ROWS_MAX)
    assert preview.rows, preview.notes
    assert not preview.truncated
    return written_of(preview)


def written_of(preview: Preview) -> list[Shown]:
    """The records that the last step writes, in their order."""
    failed = [(each.failed_step, each.error) for each in preview.rows if each.failed_step]
    assert failed == []
    found = []
    for row in preview.rows:
        if len(row.records) == len(preview.steps):
            last = row.records[-1]
            found.append(Shown(last.topic, last.key, last.value, _headers(last.headers)))
        else:
            assert row.dropped_by, row
    return found


async def delivered(client: ConnectClient, topics: Iterable[str], count: int) -> list[Shown]:
    """The records of topics, once there are ``count`` of them."""
    wanted = sorted(set(topics))
    found: list[Shown] = []

    async def all_there() -> bool:
        known = {each.name for each in await client.list_topics()}
        found[:] = [
            each for topic in wanted if topic in known for each in await _records(client, topic)
        ]
        return len(found) >= count

    await wait_until_async(
        all_there, timeout_s=_TIMEOUT_S, describe=lambda: f"{count} records, {found} so far"
    )
    return sorted(found)


async def running(client: ConnectClient, name: str) -> pb.ConnectorStatus:
    """A connector's status, once every task runs.

    Raises:
        AssertionError: A task failed.
    """
    last: list[pb.ConnectorStatus] = []

    async def runs() -> bool:
        last[:] = [await client.get_connector_status(name)]
        tasks = last[0].tasks
        assert not [each.trace for each in tasks if each.state == pb.RUN_STATE_FAILED]
        return bool(tasks) and all(each.state == pb.RUN_STATE_RUNNING for each in tasks)

    await wait_until_async(runs, timeout_s=_TIMEOUT_S, describe=lambda: last)
    return last[0]


async def refused(call: Awaitable[Any]) -> list[tuple[str, str]]:
    """The violations with which a call rejects a config, sorted."""
    with pytest.raises(InvalidArgumentError) as caught:
        await call
    assert caught.value.reason is Reason.INVALID_CONFIG
    return sorted((each.field, each.description) for each in caught.value.violations)


async def same_faults(client: ConnectClient, config: Mapping[str, str]) -> dict[str, list[str]]:
    """The faults of a config by setting, which validation, preview and create must report alike."""
    validated = await client.validate_config(config)
    faults = sorted((each.field, each.description) for each in validated.violations)
    assert faults
    assert await refused(client.preview_connector(config)) == faults
    assert await refused(client.create_connector(config["name"], config)) == faults
    found: dict[str, list[str]] = {}
    for field, description in faults:
        found.setdefault(field.removeprefix('config["').removesuffix('"]'), []).append(description)
    return found


async def source_agrees(
    shared: SharedCluster, config: Mapping[str, str], *, allowed_warnings: int = 0
) -> list[Shown]:
    """The delivered records of a source, which equal the preview's."""
    expected = sorted(await predicted(shared.client, config, allowed_warnings=allowed_warnings))
    async with shared.connector(config["name"], config):
        found = await delivered(shared.client, [each.topic for each in expected], len(expected))
        await running(shared.client, config["name"])
    assert found == expected
    return found


async def sink_agrees(
    shared: SharedCluster,
    config: Mapping[str, str],
    rows: Callable[[], list[str]],
    *,
    allowed_warnings: int = 0,
) -> None:
    """Compare the rows of a sink's output with the preview's records."""
    shown = await predicted(shared.client, config, allowed_warnings=allowed_warnings)
    expected = json_rows(each.value for each in shown)
    assert rows() == []
    async with shared.connector(config["name"], config):
        await wait_for_rows(rows, expected)
        await running(shared.client, config["name"])


def json_rows(texts: Iterable[str]) -> list[str]:
    """JSON texts with sorted fields, in order."""
    return sorted(json.dumps(json.loads(each), sort_keys=True) for each in texts)


async def wait_for_rows(rows: Callable[[], Sequence[str]], expected: Sequence[str]) -> None:
    """Wait until an output has as many rows as expected; they must be equal then."""
    await wait_until_async(
        lambda: len(rows()) >= len(expected),
        timeout_s=_TIMEOUT_S,
        describe=lambda: f"{len(expected)} rows, {len(rows())} so far",
    )
    assert list(rows()) == list(expected)


async def _records(client: ConnectClient, topic: str) -> list[Shown]:
    # without a converter the viewer would decode records
    query = RecordQuery(topic=topic, key_converter="string", value_converter="string")
    request = pb.WatchTopicRequest(query=query)
    return [
        Shown(topic, _unquoted(each.key), _unquoted(each.value), _headers(each.headers))
        async for response in client.watch_topic(request)
        for each in response.records
    ]


def as_shown(text: str) -> str:
    """A text in the form in which a preview shows it: unchanged if it is JSON, else as JSON."""
    return text if is_json(text) else json.dumps(text, ensure_ascii=False)


def _unquoted(shown: str) -> str:
    return as_shown(json.loads(shown)) if shown else ""


def _headers(headers: Iterable[PreviewedHeader]) -> tuple[tuple[str, str], ...]:
    return tuple((each.key, each.value) for each in headers)
