"""Which committed offsets sources read, and which they refuse as another connector's."""

import json
from typing import Any

import pytest

from drover.connector import ForeignOffsetsError, OffsetForm, SourceConnector
from drover.connector.catalogue import PluginRegistry
from drover.connector.offset_forms import refuse_foreign
from drover.model.offsets import CommittedOffset

Pair = tuple[dict[str, Any], dict[str, Any] | None]

OWN: dict[str, list[Pair]] = {
    "DatagenSource": [({"lane": 3}, {"next": 3_000})],
    "FilesSource": [
        ({"path": "/d/a.csv"}, {"position": 7, "lines": 1, "inode": 9, "schema": "a int"}),
        ({"path": "/d/a.parquet"}, {"position": 1, "rows": 9, "done": True, "size": 10}),
        ({"path": "/d/b.csv"}, {"failed": [10, 11], "error": "is UTF-16"}),
    ],
    # the second in the form of Kafka Connect's connector
    "FileStreamSource": [
        ({"filename": "/f"}, {"position": 7, "inode": 1, "head_bytes": 2, "head_crc32": 3}),
        ({"filename": "/g"}, {"position": 7}),
    ],
    "HttpSource": [
        ({"url": "http://a/"}, {"incremental": None, "next": None}),
        ({"url": "http://a/"}, {"incremental": "1", "next": {"page": 2}, "greatest": "2"}),
    ],
    "JdbcSource": [
        ({"table": "orders"}, {"incrementing": 7}),
        ({"table": "orders"}, {"timestamp": 7, "timestamp_nanos": 1, "incrementing": 7}),
        ({"query": "SELECT 1"}, {"incrementing": 7}),
    ],
    # in the form of MirrorMaker
    "KafkaSource": [({"cluster": "east", "partition": 0, "topic": "orders"}, {"offset": 7})],
    "PostgresCdcSource": [
        ({"server": "shop"}, {"lsn": 7}),
        ({"server": "shop"}, {"lsn": 7, "transaction": 8, "changes": 9}),
        ({"server": "shop", "table": "public.orders"}, {"snapshot": "1:2:", "lsn": 7}),
        ({"server": "shop", "table": "public.orders"}, {}),
    ],
    # the data source defines the offset
    "PythonDataSource": [({"datasource": "rates"}, {"of": ["any", "kind"]})],
}
FOREIGN: list[Pair] = [
    # offsets of Confluent's JDBC source, Debezium, MirrorMaker's heartbeats and other connectors
    ({"protocol": "1", "table": "shop.public.orders"}, {"incrementing": 7}),
    ({"server": "shop"}, {"lsn_proc": 7, "messageType": "INSERT", "lsn": 7, "txId": 9}),
    ({"server": "shop", "database": "shop"}, {"commit_lsn": "1", "change_lsn": "2"}),
    ({"sourceClusterAlias": "east", "targetClusterAlias": "west"}, {"offset": 1}),
    ({"url": "http://a/"}, {"timestamp": "x"}),
    ({"cluster": "east", "partition": "0", "topic": "orders"}, {"offset": 7}),
    ({"filename": "/f"}, {"position": "7"}),
    ({"filename": "/f"}, {}),
    ({"lane": 3}, {"position": 3}),
    ({"lane": True}, {"next": 3}),
    ({"path": "/d/a.csv"}, {"offset": 3}),
    ({}, {}),
]


def sources() -> list[type[SourceConnector]]:
    plugins, _ = PluginRegistry().list()
    kinds = [each.connector_class for each in plugins]
    return [each for each in kinds if issubclass(each, SourceConnector)]


def start(kind: type[SourceConnector], *pairs: Pair) -> None:
    committed = [
        CommittedOffset(json.dumps(place), None if offset is None else json.dumps(offset))
        for place, offset in pairs
    ]
    refuse_foreign("shop", kind.__name__, kind.offset_forms, committed)


@pytest.mark.parametrize("kind", sources())
def test_every_source_reads_its_own_offsets_and_no_others(kind: type[SourceConnector]) -> None:
    own = OWN[kind.__name__]
    start(kind, *own)
    start(kind)
    for foreign in FOREIGN:
        with pytest.raises(ForeignOffsetsError, match="another connector wrote them"):
            start(kind, *own, foreign)
    strangers = [each for name, pairs in OWN.items() if name != kind.__name__ for each in pairs]
    for stranger in strangers:
        with pytest.raises(ForeignOffsetsError):
            start(kind, stranger)


def test_what_to_do_is_told_and_no_value() -> None:
    with pytest.raises(ForeignOffsetsError) as caught:
        refuse_foreign(
            "shop",
            "JdbcSource",
            [OffsetForm({"table": str}, {"n": int}, optional=("m",)), OffsetForm({"query": str})],
            [CommittedOffset('{"protocol": "1", "table": "secret"}', '{"incrementing": 42}')],
        )
    assert str(caught.value) == (
        "JdbcSource cannot read the committed offsets of connector 'shop', because another "
        "connector wrote them: a partition has protocol, table, its offset incrementing, but "
        "JdbcSource uses table with m, n or query. Give the connector another name, or reset its "
        "offsets: drover connector stop shop, drover connector offsets shop --reset, drover "
        "connector resume shop. To resume at given offsets, use -f FILE instead of --reset. If the "
        "class of a Java plugin wrote them, it can read them: put java: before the name in "
        "connector.class, or name the class in DROVER_JAVA_PREFERRED of the workers"
    )


def test_offsets_that_were_removed_and_sources_without_forms_pass() -> None:
    refuse_foreign("a", "A", [OffsetForm({"x": int})], [CommittedOffset('{"y": 1}', None)])
    refuse_foreign("a", "A", [], [CommittedOffset('{"y": 1}', '{"z": 1}')])
