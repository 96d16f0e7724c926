"""Connectors whose libraries are extras: listed without them, and told in one line."""

import sys

import pytest

from drover.connector.settings import parse_config
from drover_worker.engine.plugins import PluginRegistry
from drover_worker.engine.validation import encode_plugins

EXTRAS = (
    "deltalake",
    "httpcore",
    "httpx",
    "obstore",
    "psycopg",
    "pyiceberg",
    "pymysql",
    "sqlalchemy",
)


@pytest.fixture(autouse=True)
def without_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.partition(".")[0] in EXTRAS:
            monkeypatch.delitem(sys.modules, name)
    for name in EXTRAS:
        monkeypatch.setitem(sys.modules, name, None)


def test_connectors_are_listed_without_their_libraries() -> None:
    plugins, problems = PluginRegistry().list()
    listed = encode_plugins(plugins, problems)
    assert len(listed.plugins) >= 16
    assert not listed.problems


@pytest.mark.parametrize(
    ("name", "settings", "extra"),
    [
        ("JdbcSource", {"connection.url": "sqlite:/tmp/a", "mode": "bulk"}, "jdbc"),
        ("FilesSink", {"path": "s3://bucket-1/x"}, "objects"),
        (
            "S3Sink",
            {"s3.bucket.name": "bucket-2", "format.class": "JsonFormat", "flush.size": "1"},
            "objects",
        ),
        ("DeltaSink", {"table.uri": "/tmp/no-table"}, "lakehouse"),
        (
            "IcebergSink",
            {"iceberg.catalog.uri": "http://localhost:1", "iceberg.tables": "a.b"},
            "lakehouse",
        ),
        ("HttpSink", {"http.url": "http://localhost:1/"}, "http"),
        ("HttpSource", {"http.url": "http://localhost:1/", "topic": "t"}, "http"),
    ],
)
def test_a_missing_library_is_one_line(name: str, settings: dict[str, str], extra: str) -> None:
    kind = PluginRegistry().find(name)
    topics = {"topics": "t"} if name.endswith("Sink") else {"topic.prefix": "t"}
    raw = {"name": "c", "connector.class": name, **topics, **settings}
    (fault,) = parse_config(kind, raw).violations
    assert f"pip install 'drover-connect[{extra}]'" in fault.description
    assert "\n" not in fault.description
