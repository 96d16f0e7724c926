"""Configs with patterns without end and values without bounds: the worker serves on."""

import asyncio
import json
import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from drover.errors import DroverError
from drover_worker.engine.process_tree import descendants
from tests.support.attacks import TIMEOUT_S, Attack, answers_of_all
from tests.support.secure_cluster import SecureCluster

pytestmark = [
    pytest.mark.faults("security"),
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.timeout(1200),
    pytest.mark.asyncio(loop_scope="session"),
]

TEXT = "a" * 45
#: Patterns that a backtracking matcher tries in 2 ** 45 ways.
PATTERNS = (
    "(a+)+x",
    "(a|aa)+x",
    "(a|a?)+x",
    "(.*a){25}x",
    "(a*)*(?=x)",
    "(a|aa)+(?=x|y)",
    "((a+)+)(?!a)x",
    r"(a+)+\1x",
    "(?<!x)(a+)+x",
    "([a-z]+)*[0-9]",
    "(?i)(A|AA)+x(?=y)",
    "^(a?){45}a{45}x$",
)
DATAGEN = {"connector.class": "DatagenSource", "topic": TEXT, "quickstart": "orders"}
SQL = {"transforms": "q", "transforms.q.type": "Sql"}


async def check_serves(secure: SecureCluster, replaced_before: int) -> None:
    """Check that other callers are served by the same engine."""
    file = str(secure.cluster.directory / "files" / "in.txt")
    config = {"connector.class": "FileStreamSource", "file": file, "topic": "t", "name": "c"}
    async with secure.client("admin") as client:
        found = await client.validate_config(config, timeout_s=TIMEOUT_S)
    assert found.error_count == 0
    assert replacements(secure) == replaced_before


def replacements(secure: SecureCluster) -> int:
    return secure.cluster.log("worker-1").count("replacing the engine")


@pytest.fixture
def replaced_before(secure: SecureCluster) -> int:
    return replacements(secure)


def pattern_configs() -> list[Mapping[str, str]]:
    found: list[Mapping[str, str]] = []
    for pattern in PATTERNS:
        router = {"type": "RegexRouter", "regex": pattern, "replacement": "b"}
        found.append(
            {**DATAGEN, "transforms": "r", **{f"transforms.r.{k}": v for k, v in router.items()}}
        )
        predicate = {
            "transforms": "d",
            "transforms.d.type": "Filter",
            "transforms.d.predicate": "p",
            "predicates": "p",
            "predicates.p.type": "TopicNameMatches",
            "predicates.p.pattern": pattern,
        }
        found.append({**DATAGEN, **predicate})
        group = {
            "topic.creation.groups": "g",
            "topic.creation.g.include": pattern,
            "topic.creation.default.partitions": "1",
            "topic.creation.default.replication.factor": "1",
        }
        found.append({**DATAGEN, **group})
    return found


@pytest.mark.parametrize("user", ["operator-of-a", "admin-of-a"])
async def test_validations_of_patterns_without_end_harm_no_other_caller(
    secure: SecureCluster, user: str, replaced_before: int
) -> None:
    others = [
        {"connector.class": "FileStreamSink", "file": "/x", "topics.regex": each}
        for each in PATTERNS
    ]
    others += [
        {
            "connector.class": "KafkaSource",
            "source.cluster.bootstrap.servers": "127.0.0.1:1",
            "topics": each.replace(",", "."),
            "topics.exclude": each.replace(",", "."),
        }
        for each in PATTERNS[:3]
    ]
    attacks = [Attack(each) for each in (*pattern_configs(), *others)]
    for found in await answers_of_all(secure, user, "validate", attacks):
        assert isinstance(found, Mapping), found
    await check_serves(secure, replaced_before)


async def test_previews_with_patterns_without_end_end(
    secure: SecureCluster, replaced_before: int
) -> None:
    async with secure.client("admin-of-a") as client:
        for config in pattern_configs():
            try:
                shown = await client.preview_connector(
                    {"name": "a-x", **config}, row_count=1, timeout_s=TIMEOUT_S
                )
            except DroverError as error:
                assert error.code in ("INVALID_ARGUMENT", "FAILED_PRECONDITION"), error  # noqa: PT017
            else:
                assert shown.rows
    await check_serves(secure, replaced_before)


async def test_patterns_meet_names_that_a_database_chose(
    secure: SecureCluster, replaced_before: int
) -> None:
    database = secure.cluster.directory / "files" / "names.db"
    database.parent.mkdir(exist_ok=True)
    connection = sqlite3.connect(database)
    connection.execute(f"CREATE TABLE {TEXT}_b (id INTEGER)")
    connection.close()
    base = {
        "connector.class": "JdbcSource",
        "connection.url": f"jdbc:sqlite:{database}",
        "mode": "bulk",
        "topic.prefix": "t-",
    }
    attacks = [
        Attack({**base, setting: each})
        for each in PATTERNS
        for setting in ("table.pattern", "schema.pattern", "table.include.list", "table.whitelist")
    ]
    for found in await answers_of_all(secure, "admin-of-a", "validate", attacks):
        assert isinstance(found, Mapping), found
    await check_serves(secure, replaced_before)
    database.unlink()


#: Queries whose result or time a value or a number could blow up.
QUERIES = (
    "repeat('a', 1000000000)",
    "lpad('a', 1000000000, 'b')",
    "rpad('a', 1000000000, 'b')",
    "range(1000000000)",
    "generate_series(1, 1000000000)",
    "list_resize([1], 1000000000)",
    "array_resize([1], 1000000000)",
    "bar(1, 0, 1, 100000000)",
    "printf('%1000000000d', 1)",
    "format('{:1000000000}', 1)",
    "json_group_array(1)",
    "unnest([1, 2])",
    "read_text('/etc/passwd')",
    "getenv('CANARY')",
    "current_setting('temp_directory')",
    "nextval('s')",
    "random()",
    "uuid()",
    "(SELECT count(*) FROM range(1000000000))",
    "replace(value::VARCHAR, 'a', value::VARCHAR)",
    "regexp_replace(value::VARCHAR, 'a', value::VARCHAR, 'g')",
    "list_transform([1], lambda x: repeat('a', 1000000000))",
    "sql_auto_complete('x')",
    "query('SELECT 1')",
    "setseed(0.5)",
    "write_log('x')",
    "list_reduce(['a'], lambda x, y: x || y)",
)


async def test_functions_with_results_without_bound_are_rejected(
    secure: SecureCluster, replaced_before: int
) -> None:
    attacks = [
        Attack(
            {**DATAGEN, **SQL, "transforms.q.query": f"SELECT {each} AS value FROM batch"},
            "transforms.q.query",
        )
        for each in QUERIES
    ]
    answers = await answers_of_all(secure, "operator-of-a", "validate", attacks)
    for attack, found in zip(attacks, answers, strict=True):
        assert isinstance(found, Mapping), (attack, found)
        assert "transforms.q.query" in found, (attack, found)
    await check_serves(secure, replaced_before)


ENGINE = b"drover_worker.engine.process"
#: Queries that take hours or exceed any memory with a value of a few hundred kilobytes.
EXPENSIVE = {
    "time": ("levenshtein(value, value || 'b')::VARCHAR", "half of DROVER_PLUGIN_CALL_TIMEOUT_MS"),
    "calls": (
        "list_transform([value, value, value], lambda x: levenshtein(x, 'b' || x))::VARCHAR",
        "half of DROVER_PLUGIN_CALL_TIMEOUT_MS",
    ),
    "memory": (
        "list_transform(string_split(value, ''), lambda x: value)::VARCHAR",
        "the query needs more than 1024 MiB of memory",
    ),
}


def engine_limits(secure: SecureCluster) -> list[str]:
    """The limits of address space of the worker's engines, without the processes they fork."""
    worker = secure.cluster.process("worker-1").pid
    assert worker is not None
    commands = {each: command_of(each) for each in descendants(worker)}
    engines = {each for each, command in commands.items() if ENGINE in command}
    found = []
    for each in engines:
        with suppress(OSError, psutil.Error):
            if psutil.Process(each).ppid() not in engines:
                limits = Path(f"/proc/{each}/limits").read_text().splitlines()
                found += [line for line in limits if line.startswith("Max address space")]
    return found


def command_of(process: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes()
    return b""


@pytest.mark.parametrize("kind", EXPENSIVE)
@pytest.mark.parametrize("call", ["preview", "plan"])
async def test_a_preview_with_an_expensive_query_ends(
    secure: SecureCluster, kind: str, call: str, replaced_before: int
) -> None:
    expression, rule = EXPENSIVE[kind]
    file = secure.cluster.directory / "files" / "long.txt"
    file.parent.mkdir(exist_ok=True)
    file.write_text("a" * 400_000 + "\n")
    source = {"connector.class": "FileStreamSource", "file": str(file), "topic": "t"}
    config = {
        **source,
        **SQL,
        "name": "a-x",
        "transforms.q.query": f"SELECT {expression} AS value FROM batch",
    }
    limits_before = engine_limits(secure)
    assert len(limits_before) == 1

    async def attack() -> str:
        async with secure.client("admin-of-a") as client:
            if call == "plan":
                return str(await client.plan_connector_config("a-x", config, timeout_s=TIMEOUT_S))
            return str(await client.preview_connector(config, timeout_s=TIMEOUT_S))

    attacking = asyncio.create_task(attack())
    async with secure.client("admin") as other:
        while not attacking.done():
            found = await other.validate_config({**source, "name": "c"}, timeout_s=TIMEOUT_S)
            assert found.error_count == 0
            assert engine_limits(secure) == limits_before
    assert rule in await attacking
    assert replacements(secure) == replaced_before
    file.unlink()


def nested(opening: str, closing: str, depth: int = 100_000) -> str:
    return opening * depth + closing * depth


DATA_SOURCE = {"connector.class": "PythonDataSource", "topic": "t", "datasource": "x:y"}
#: Values that are too deep, too large or too many for a naive reader.
EXTREMES: Mapping[str, Mapping[str, str]] = {
    "nested lists": {**DATA_SOURCE, "datasource.options": nested("[", "]")},
    "nested objects": {**DATA_SOURCE, "datasource.options": nested('{"a":', "}")},
    "a login that is nested": {
        "connector.class": "FilesSource",
        "path": "gs://b/x",
        "topic": "t",
        "format": "text",
        "gcs.credentials.json": nested('{"a":', "}"),
    },
    "a number of many digits": {**DATAGEN, "max.records": "9" * 100_000},
    "a number with a large exponent": {**DATAGEN, "errors.max.rate": "1e999999999"},
    "a number in other digits": {**DATAGEN, "max.records": "\u0661" * 100_000},
    "many transforms": {**DATAGEN, "transforms": ",".join(f"t{n}" for n in range(2_000))},
    "the same transform": {**DATAGEN, "transforms": "t," * 20_000},
    "many topics": {
        "connector.class": "FileStreamSink",
        "file": "/x",
        "topics": ",".join(f"t{n}" for n in range(50_000)),
    },
    "many groups": {**DATAGEN, "topic.creation.groups": ",".join(map(str, range(2_000)))},
    "nested groups": {
        **DATAGEN,
        "topic.creation.groups": "g",
        "topic.creation.g.include": nested("(", ")"),
    },
    "a nested query": {
        **DATAGEN,
        **SQL,
        "transforms.q.query": f"SELECT {nested('(', ')', 8_000)} FROM batch",
    },
    "a nested call": {
        **DATAGEN,
        **SQL,
        "transforms.q.query": f"SELECT {'abs(' * 2_000}1{')' * 2_000} AS value FROM batch",
    },
    "a nested list in a query": {
        **DATAGEN,
        **SQL,
        "transforms.q.query": f"SELECT {nested('[', ']', 5_000)} AS value FROM batch",
    },
    "a long path": {"connector.class": "FileStreamSource", "topic": "t", "file": "/a" * 100_000},
    "a path with many stars": {
        "connector.class": "FileStreamSource",
        "topic": "t",
        "file": "/**" * 1_000,
    },
    "a long URL": {
        "connector.class": "HttpSource",
        "topic": "t",
        "http.url": "http://a/" + "?" * 100_000,
    },
    "a long host": {
        "connector.class": "HttpSource",
        "topic": "t",
        "http.url": f"http://{'a.' * 50_000}/",
    },
    "many placeholders": {**DATAGEN, "topic": "${env:CANARY}" * 10_000},
    "placeholders without end": {**DATAGEN, "topic": "${" * 100_000},
    "placeholders in placeholders": {**DATAGEN, "topic": nested("${env:", "}", 20_000)},
    "a login without end": {
        "connector.class": "KafkaSource",
        "topics": "t",
        "source.cluster.bootstrap.servers": "127.0.0.1:1",
        "source.cluster.sasl.jaas.config": "a required " + 'b="' * 50_000,
    },
    "many settings": {**DATAGEN, **{f"x{n}": "1" for n in range(2_000)}},
    "a JSON path": {
        "connector.class": "HttpSource",
        "topic": "t",
        "http.url": "http://127.0.0.1:1/",
        "http.response.items": "/a" * 50_000,
    },
    "characters that end texts": {**DATAGEN, "topic": "\0\u2028\u202e\ufeff\U000e0001"},
}


@pytest.mark.parametrize("user", ["operator-of-a", "admin-of-a"])
@pytest.mark.parametrize("name", EXTREMES)
async def test_extreme_values_are_answered(
    secure: SecureCluster, user: str, name: str, replaced_before: int
) -> None:
    (found,) = await answers_of_all(secure, user, "validate", [Attack(EXTREMES[name])])
    if isinstance(found, DroverError):
        assert found.code == "INVALID_ARGUMENT", found
    else:
        told = json.dumps(found)
        assert "Traceback" not in told
        assert "crashed" not in told
        assert "RecursionError" not in told
    await check_serves(secure, replaced_before)
