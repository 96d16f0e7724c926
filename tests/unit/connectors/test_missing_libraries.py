"""Plugins whose libraries are extras: listed without them, and refused with a one-line error."""

import sys
import tomllib

import pytest

from drover.connector.catalogue import PluginRegistry
from drover.connector.settings import parse_config
from drover_worker.engine.plugins.validation import encode_plugins
from tests.support.repository import REPOSITORY

EXTRAS: dict[str, tuple[str, ...]] = {
    "jdbc": ("psycopg", "pymysql", "sqlalchemy"),
    "postgres": ("psycopg",),
    "lakehouse": ("deltalake", "psycopg", "pyiceberg", "sqlalchemy"),
    "objects": ("obstore",),
    "http": ("httpx",),
    "avro": ("authlib", "cachetools", "httpx2"),
    "protobuf": ("authlib", "cachetools", "grpc_tools", "httpx2"),
    "sql": ("duckdb",),
}
LIBRARIES = sorted({each for names in EXTRAS.values() for each in names})
POSTGRES = "jdbc:postgresql://127.0.0.1:1/a"
CONFIGS: list[tuple[str, str, dict[str, str]]] = [
    ("jdbc", "JdbcSource", {"connection.url": POSTGRES, "mode": "bulk"}),
    ("jdbc", "JdbcSink", {"connection.url": "jdbc:mysql://127.0.0.1:1/a"}),
    ("objects", "FilesSink", {"path": "s3://bucket-1/x"}),
    ("objects", "FilesSource", {"path": "s3://bucket-3/x", "topic": "t"}),
    (
        "objects",
        "S3Sink",
        {"s3.bucket.name": "bucket-2", "format.class": "JsonFormat", "flush.size": "1"},
    ),
    ("lakehouse", "DeltaSink", {"table.uri": "/tmp/no-table"}),
    (
        "lakehouse",
        "IcebergSink",
        {"iceberg.catalog.uri": "http://localhost:1", "iceberg.tables": "a.b"},
    ),
    (
        "lakehouse",
        "IcebergSink",
        {
            "iceberg.catalog.type": "sql",
            "iceberg.catalog.uri": POSTGRES,
            "iceberg.tables": "a.b",
        },
    ),
    ("http", "HttpSink", {"http.url": "http://localhost:1/"}),
    ("http", "HttpSource", {"http.url": "http://localhost:1/", "topic": "t"}),
    (
        "postgres",
        "PostgresCdcSource",
        {"database.hostname": "127.0.0.1", "database.user": "a", "database.dbname": "b"},
    ),
    (
        "avro",
        "NullSink",
        {
            "value.converter": "AvroConverter",
            "value.converter.schema.registry.url": "http://localhost:1",
        },
    ),
    (
        "protobuf",
        "NullSink",
        {
            "value.converter": "ProtobufConverter",
            "value.converter.schema.registry.url": "http://localhost:1",
        },
    ),
    (
        "sql",
        "NullSink",
        {
            "transforms": "it",
            "transforms.it.type": "Sql",
            "transforms.it.query": "SELECT * FROM batch",
        },
    ),
]


def forget(monkeypatch: pytest.MonkeyPatch, *libraries: str) -> None:
    """Make the imports of these libraries fail."""
    for name in list(sys.modules):
        if name.partition(".")[0] in libraries:
            monkeypatch.delitem(sys.modules, name)
    for name in libraries:
        monkeypatch.setitem(sys.modules, name, None)


def fault_of(name: str, settings: dict[str, str]) -> str:
    """The description of a config's only violation."""
    kind = PluginRegistry().find(name)
    topics = {"topics": "t"} if name.endswith("Sink") else {"topic.prefix": "t"}
    raw = {"name": "c", "connector.class": name, **topics, **settings}
    (fault,) = parse_config(kind, raw).violations
    return fault.description


def test_connectors_are_listed_without_their_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    forget(monkeypatch, *LIBRARIES)
    plugins, problems = PluginRegistry().list()
    listed = encode_plugins(plugins, problems)
    assert len(listed.plugins) >= 16
    assert not listed.problems


@pytest.mark.parametrize(("extra", "name", "settings"), CONFIGS)
def test_a_missing_extra_is_one_line(
    monkeypatch: pytest.MonkeyPatch, extra: str, name: str, settings: dict[str, str]
) -> None:
    forget(monkeypatch, *LIBRARIES)
    fault = fault_of(name, settings)
    assert f"pip install 'drover-connect[{extra}]'" in fault
    assert "\n" not in fault


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("JdbcSource", "psycopg"),
        ("JdbcSink", "pymysql"),
        ("PostgresCdcSource", "psycopg"),
        ("IcebergSink", "psycopg"),
        ("IcebergSink", "sqlalchemy"),
    ],
)
def test_one_of_its_libraries_is_the_same(
    monkeypatch: pytest.MonkeyPatch, name: str, library: str
) -> None:
    forget(monkeypatch, library)
    extra, settings = [(extra, own) for extra, each, own in CONFIGS if each == name][-1]
    assert f"pip install 'drover-connect[{extra}]'" in fault_of(name, settings)


def test_every_extra_of_a_connector_is_tried() -> None:
    project = tomllib.loads((REPOSITORY / "shared/pyproject.toml").read_text(encoding="utf-8"))
    declared = project["project"]["optional-dependencies"]
    assert declared.keys() - {"all", "cluster", "spark"} == EXTRAS.keys()
    assert declared["all"] == [f"drover-connect[{','.join(sorted(EXTRAS))}]"]
    assert {extra for extra, _, _ in CONFIGS} == EXTRAS.keys()
