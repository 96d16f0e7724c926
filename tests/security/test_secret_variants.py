"""The value of a config provider is in no response, log, metric or audit line, in any form."""

import asyncio
import base64
import urllib.request
from collections.abc import Mapping

import pytest

from drover.client import ConnectClient
from drover.errors import DroverError, InvalidArgumentError
from tests.support.attacks import TIMEOUT_S, Attack, answers_of_all
from tests.support.secure_cluster import SECRET, SecureCluster
from tests.support.waiting import wait_until_async

pytestmark = [
    pytest.mark.faults("security"),
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.timeout(1200),
    pytest.mark.asyncio(loop_scope="session"),
]

PLACE = "${env:CANARY}"
PART_CHARS, ENCODED_CHARS = 10, 14


def forms() -> set[str]:
    """The value, its parts, and its encodings, in lower case."""
    texts = {SECRET[at : at + PART_CHARS] for at in range(len(SECRET) - PART_CHARS + 1)}
    raw = SECRET.encode()
    encoded = [raw.hex(), *(base64.b64encode(bytes(n) + raw).decode()[4:-4] for n in range(3))]
    texts |= {
        each[at : at + ENCODED_CHARS]
        for each in encoded
        for at in range(len(each) - ENCODED_CHARS + 1)
    }
    return {each.lower() for each in texts}


FORMS = forms()


def check_hidden(text: str) -> None:
    """Check that a text has the value in no form."""
    lowered = text.lower()
    places = sorted(lowered.find(each) for each in FORMS if each in lowered)
    assert not places, text[max(0, places[0] - 300) : places[0] + 100]


DATAGEN = {"connector.class": "DatagenSource", "topic": "t", "quickstart": "orders"}
HTTP = {"connector.class": "HttpSource", "topic": "t"}
JDBC = {"connector.class": "JdbcSource", "mode": "bulk", "topic.prefix": "t-"}
KAFKA = {"connector.class": "KafkaSource", "topics": "t"}
FILES = {"connector.class": "FilesSource", "topic": "t", "format": "text"}
ICEBERG = {"connector.class": "IcebergSink", "topics": "t", "iceberg.tables": "app.t"}

#: Configs whose check shows the value of a setting.
SHOWN: tuple[Mapping[str, str], ...] = (
    {**DATAGEN, "topic": PLACE},
    {**DATAGEN, "topic": f"{PLACE} x"},
    {**DATAGEN, "max.records": PLACE},
    {**DATAGEN, "max.records": f"1{PLACE}"},
    {**DATAGEN, "quickstart": PLACE},
    {**DATAGEN, "value.converter": PLACE},
    {**DATAGEN, "transforms": PLACE},
    {**DATAGEN, "transforms": f"a,{PLACE},b"},
    {**DATAGEN, "transforms": "f", "transforms.f.type": PLACE},
    {**DATAGEN, "transforms": "f", "transforms.f.type": "RegexRouter", "transforms.f.regex": PLACE},
    {**DATAGEN, "errors.tolerance": PLACE},
    {**DATAGEN, "errors.deadletterqueue.topic.name": f"{PLACE}/x"},
    {**DATAGEN, "topic.creation.default.partitions": PLACE},
    {**HTTP, "http.url": PLACE},
    {**HTTP, "http.url": f"http://{PLACE}.invalid/"},
    {**HTTP, "http.url": f"http://127.0.0.1:1/{PLACE}"},
    {**HTTP, "http.url": f"http://{PLACE}@127.0.0.1:1/"},
    {**HTTP, "http.url": f"http://127.0.0.1:{PLACE}/"},
    {**HTTP, "http.url": "http://127.0.0.1:1/", "http.headers.additional": PLACE},
    {**JDBC, "connection.url": PLACE},
    {**JDBC, "connection.url": f"jdbc:postgresql://{PLACE}/d"},
    {**JDBC, "connection.url": f"jdbc:postgresql://127.0.0.1:1/{PLACE}"},
    {**JDBC, "connection.url": f"jdbc:mysql://127.0.0.1:1/d?{PLACE}=1"},
    {**JDBC, "connection.url": f"jdbc:sqlite:/{PLACE}/x.db"},
    {**JDBC, "connection.url": "jdbc:postgresql://127.0.0.1:1/d", "connection.user": PLACE},
    {**KAFKA, "source.cluster.bootstrap.servers": f"{PLACE}:1"},
    {**KAFKA, "source.cluster.bootstrap.servers": "127.0.0.1:1", "topics": f"({PLACE}"},
    {**KAFKA, "source.cluster.bootstrap.servers": "127.0.0.1:1", f"source.cluster.{PLACE}": "x"},
    {
        **KAFKA,
        "source.cluster.bootstrap.servers": "127.0.0.1:1",
        "source.cluster.sasl.jaas.config": PLACE,
    },
    {**FILES, "path": f"/{PLACE}/x"},
    {**FILES, "path": f"s3://{PLACE}/x"},
    {**FILES, "path": "s3://b/x", "store.url": f"http://127.0.0.1:1/{PLACE}"},
    {**FILES, "path": "gs://b/x", "gcs.credentials.json": PLACE},
    {"connector.class": "FileStreamSource", "topic": "t", "file": f"/etc/{PLACE}"},
    {**ICEBERG, "iceberg.catalog.uri": f"http://127.0.0.1:1/{PLACE}"},
    {**ICEBERG, "iceberg.catalog.uri": "http://127.0.0.1:1", "iceberg.tables": PLACE},
    {"connector.class": "FileStreamSink", "topics.regex": f"({PLACE}", "file": "/x"},
    {"connector.class": "PythonDataSource", "topic": "t", "datasource": PLACE},
    {"connector.class": "PythonDataSource", "topic": "t", "datasource.options": PLACE},
)


async def answer(
    client: ConnectClient, call: str, config: Mapping[str, str], name: str = "a-x"
) -> str:
    """Everything that a caller gets from a call."""
    whole = {"name": name, **config}
    try:
        match call:
            case "validate":
                return str(await client.validate_config(whole, timeout_s=TIMEOUT_S))
            case "plan":
                return str(await client.plan_connector_config(name, whole, timeout_s=TIMEOUT_S))
            case "preview":
                return str(await client.preview_connector(whole, timeout_s=TIMEOUT_S))
        return str(await client.create_connector(name, whole, timeout_s=TIMEOUT_S))
    except InvalidArgumentError as error:
        return f"{error} {error.metadata} {error.violations}"
    except DroverError as error:
        return f"{error} {error.metadata}"


@pytest.mark.parametrize("call", ["validate", "plan", "preview"])
async def test_no_answer_to_a_config_shows_the_value(secure: SecureCluster, call: str) -> None:
    async with secure.client("admin-of-a") as client:
        for config in SHOWN:
            check_hidden(await answer(client, call, config))
    check_hidden(secure.cluster.log("worker-1"))
    check_hidden(secure.audit_log.read_text())


async def test_an_operators_validation_does_not_show_the_value(secure: SecureCluster) -> None:
    attacks = [Attack(each) for each in SHOWN]
    for found in await answers_of_all(secure, "operator-of-a", "validate", attacks):
        check_hidden(str(found))


def page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as response:
        return str(response.read(), "utf-8")


#: Computed from the value by the pipeline of a preview.
QUERIES = (
    f"'{PLACE}'",
    f"lower('{PLACE}') || '-'",
    f"upper('{PLACE}')",
    f"substring('{PLACE}', 3, 14)",
    f"base64(encode('{PLACE}'))",
    f"base64(encode('user:{PLACE}'))",
    f"hex('{PLACE}')",
    f"url_encode('{PLACE}')",
    f"to_json({{'a': '{PLACE}'}})::VARCHAR",
    f"error('{PLACE}')",
    f"'{PLACE}'::INTEGER",
    f"strptime('{PLACE}', '%Y')",
    f"regexp_matches('a', '({PLACE}')",
)


@pytest.mark.parametrize("query", QUERIES)
async def test_no_preview_shows_what_a_query_makes_of_the_value(
    secure: SecureCluster, query: str
) -> None:
    transform = {
        "transforms": "q",
        "transforms.q.type": "Sql",
        "transforms.q.query": f"SELECT {query} AS value FROM batch",
    }
    async with secure.client("admin-of-a") as client:
        shown = await answer(client, "preview", {**DATAGEN, **transform})
    assert shown
    check_hidden(shown)


@pytest.mark.parametrize(
    "settings",
    [
        {"type": "InsertField$Value", "static.field": "x", "static.value": PLACE},
        {"type": "InsertField$Value", "static.field": PLACE, "static.value": "x"},
        {"type": "InsertHeader", "header": "h", "value.literal": PLACE},
        {"type": "InsertHeader", "header": PLACE, "value.literal": "x"},
        {"type": "HoistField$Value", "field": PLACE},
        {"type": "RegexRouter", "regex": ".*", "replacement": PLACE},
        {"type": "SetSchemaMetadata$Value", "schema.name": PLACE},
        {"type": "MaskField$Value", "fields": "userid", "replacement": PLACE},
        {"type": "ReplaceField$Value", "renames": f"userid:{PLACE}"},
        {"type": "Cast$Value", "spec": f"userid:{PLACE}"},
        {"type": "ExtractField$Value", "field": PLACE},
    ],
)
async def test_no_preview_shows_the_value_in_a_record(
    secure: SecureCluster, settings: Mapping[str, str]
) -> None:
    named = {f"transforms.f.{name}": value for name, value in settings.items()}
    async with secure.client("admin-of-a") as client:
        shown = await answer(client, "preview", {**DATAGEN, "transforms": "f", **named})
    assert shown
    check_hidden(shown)


async def test_a_running_connector_shows_the_value_nowhere(secure: SecureCluster) -> None:
    fails = {**DATAGEN, "topic": "secret-t", "transforms": "q", "transforms.q.type": "Sql"}
    fails["transforms.q.query"] = f"SELECT error('{PLACE}') AS value FROM batch"
    runs = {**DATAGEN, "topic": "secret-t", "transforms": "f", "max.records": "10"}
    runs |= {"transforms.f.type": "InsertHeader", "transforms.f.header": "h"}
    runs["transforms.f.value.literal"] = PLACE
    async with secure.client("admin-of-a") as client:
        for name, each in (("a-fails", fails), ("a-runs", runs)):
            check_hidden(await answer(client, "create", each, name))

        async def has_failed() -> bool:
            status = await client.get_connector_status("a-fails")
            return any(each.trace for each in status.tasks)

        await wait_until_async(has_failed, timeout_s=200, describe="the task has failed")
        texts: list[str] = []
        for user in ("viewer", "operator-of-a", "admin-of-a", "admin"):
            async with secure.client(user) as reader:
                entries = await reader.list_connectors(
                    include_config=True, include_status=True, timeout_s=TIMEOUT_S
                )
                texts += map(str, entries)
                for name in (each.name for each in entries):
                    texts.append(str(await reader.get_connector(name)))
                    texts.append(str(await reader.get_connector_status(name)))
                    texts.append(str(await reader.get_connector_history(name)))
                    texts.append(str(await reader.list_tasks(name)))
        for name in ("a-fails", "a-runs"):
            await client.delete_connector(name)
    for text in texts:
        check_hidden(text)
    worker = secure.cluster.process("worker-1").spec
    if worker.metrics_address:
        check_hidden(await asyncio.to_thread(page, f"http://{worker.metrics_address}/metrics"))
    for process in secure.cluster.supervisor.processes:
        check_hidden(secure.cluster.log(process))
    check_hidden(secure.audit_log.read_text())
    await wait_until_async(lambda: PLACE in str(texts), describe="the placeholder is shown")
