"""What validation reports about tables of Iceberg and Delta Lake is what a run does."""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from drover.connector import Connector
from drover.connector.settings import validate_config
from drover.connectors.files.files_sink import FilesSink
from drover.connectors.files.files_source import FilesSource
from drover.connectors.files.lines.file_stream_sink import FileStreamSink
from drover.connectors.files.lines.file_stream_source import FileStreamSource
from drover.connectors.files.storage.write_access import directory_write_fault
from drover.connectors.lakehouse.delta_sink import DeltaSink
from drover.connectors.lakehouse.delta_sink import settings_of as delta_settings_of
from drover.connectors.lakehouse.delta_table import DeltaWriter
from drover.connectors.lakehouse.fitted_rows import TableError
from drover.connectors.lakehouse.iceberg_sink import IcebergSink, settings_of
from drover.connectors.lakehouse.iceberg_table import IcebergWriter
from tests.support.http_gate import Request, http_gate
from tests.support.lake_records import records
from tests.support.other_user import called_as_other_user
from tests.support.postgres import Postgres
from tests.support.s3 import S3

#: The last part of a dotted topic is the table's name.
LAST_PART = {
    "transforms": "table",
    "transforms.table.type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms.table.regex": r".*\.([^.]+)",
    "transforms.table.replacement": "$1",
}


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A directory that other users may enter."""
    path = Path(tempfile.mkdtemp(prefix="drover-lake-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def iceberg(path: Path, **changed: str) -> dict[str, str]:
    return {
        "name": "sink",
        "connector.class": "IcebergSink",
        "topics": "orders",
        "iceberg.catalog.type": "sql",
        "iceberg.catalog.uri": f"jdbc:sqlite:{path}/catalogue.db",
        "iceberg.catalog.warehouse": f"file://{path}/warehouse",
        "iceberg.tables": "app.${topic}",
        "iceberg.tables.auto-create-enabled": "true",
        **changed,
    }


def report(kind: Any, config: dict[str, str]) -> dict[str, list[str]]:
    """The errors, warnings and skipped checks of a config, each after its setting."""
    found: dict[str, list[str]] = {"errors": [], "warnings": [], "skipped": []}
    for each in validate_config(kind, config):
        name = each.key.name
        found["errors"] += (f"{name} {text}" for text in each.errors)
        found["warnings"] += (f"{name} {text}" for text in each.warnings)
        found["skipped"] += (f"{name} {text}" for text in each.skipped_checks)
    return found


def written(config: dict[str, str], topic: str) -> str:
    """The error of a run that writes one record; empty if it is written."""
    settings = settings_of(IcebergSink.config_def().parse(config).values)
    try:
        list(IcebergWriter("sink", settings)([records([{"id": 1}], topic=topic)]))
    except TableError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("table", "topic", "words"),
    [
        ("app.${topic}", "orders", ""),
        ("app.${topic}", "shop.public.customers", "hierarchical namespaces are not supported"),
        ("app.${topic}", "a..b", "an empty part"),
        ("app.${topic}", "orders.", "an empty part"),
        ("a.b.${topic}", "orders", "hierarchical namespaces are not supported"),
        ("app.x${topic}", "y" * 249, ""),
        ("app." + "x" * 9 + "${topic}", "y" * 249, "more than 255 bytes"),
        ("a/b.${topic}", "orders", "'a/b', which cannot be the name of a directory"),
        ("a\tb.${topic}", "orders", "cannot be the name of a directory"),
        ("app.orders", "shop.public.customers", ""),
    ],
)
def test_the_names_of_tables_are_predicted(
    tmp_path: Path, table: str, topic: str, words: str
) -> None:
    config = iceberg(tmp_path, topics=topic, **{"iceberg.tables": table})
    errors, run = report(IcebergSink, config)["errors"], written(config, topic)
    assert ([words in each for each in errors], words in run) == ([True] * bool(words), True)
    assert bool(errors) == bool(run)
    if words.startswith("hierarchical"):
        assert "RegexRouter" in errors[0]
        assert "RegexRouter" in run


def test_a_router_names_the_tables_that_are_checked(tmp_path: Path) -> None:
    dotted = iceberg(tmp_path, topics="shop.public.customers,plain")
    assert len(report(IcebergSink, dotted)["errors"]) == 1
    assert report(IcebergSink, {**dotted, **LAST_PART})["errors"] == []
    tombstones = {
        **dotted,
        **LAST_PART,
        "transforms.table.predicate": "gone",
        "predicates": "gone",
        "predicates.gone.type": "RecordIsTombstone",
    }
    found = report(IcebergSink, tombstones)
    assert found["errors"] == []
    assert "'shop.public.customers': a transform names its topic by the records" in str(found)
    empty = {**dotted, **LAST_PART, "transforms.table.replacement": " "}
    assert "has an empty part" in str(report(IcebergSink, empty)["errors"])
    pattern = {name: text for name, text in dotted.items() if name != "topics"}
    found = report(IcebergSink, {**pattern, "topics.regex": "shop.*"})
    assert "no topic is named" in str(found["skipped"])


def test_a_table_that_the_library_cannot_write_is_reported(tmp_path: Path) -> None:
    config = iceberg(tmp_path)
    assert written(config, "orders") == ""
    catalog = settings_of(IcebergSink.config_def().parse(config).values).opened()
    for name, text, words in (
        ("write.format.default", "orc", "writes parquet only"),
        ("write.parquet.compression-codec", "lzo", "which the library cannot write"),
    ):
        with catalog.load_table("app.orders").transaction() as transaction:
            transaction.set_properties({name: text})
        (error,) = report(IcebergSink, config)["errors"]
        assert words in error
        assert words in written({**config, "topics": "more"}, "orders")
        with catalog.load_table("app.orders").transaction() as transaction:
            transaction.remove_properties(name)
    assert report(IcebergSink, config)["errors"] == []
    # the library cannot create such a table
    metadata = Path(catalog.load_table("app.orders").metadata_location.removeprefix("file://"))
    raw = {**json.loads(metadata.read_text()), "format-version": 3, "next-row-id": 0}
    metadata.write_text(json.dumps(raw))
    (error,) = report(IcebergSink, config)["errors"]
    assert "version 3 of Iceberg's format" in error
    assert "version 3 of Iceberg's format" in written(config, "orders")


def test_a_partitioning_that_a_table_does_not_have_is_a_warning(tmp_path: Path) -> None:
    by = "iceberg.tables.default-partition-by"
    config = iceberg(tmp_path, **{by: "bucket(id, 4)"})
    assert written(config, "orders") == ""
    assert report(IcebergSink, config)["warnings"] == []
    found = report(IcebergSink, {**config, by: "id"})
    assert found["errors"] == []
    assert "partitioned by bucket[4](id)" in found["warnings"][0]


def test_files_that_the_worker_may_not_write_are_reported(open_path: Path) -> None:
    config = iceberg(open_path)
    assert written(config, "orders") == ""
    os.chown(open_path / "catalogue.db", 65_534, 65_534)

    def errors(config: dict[str, str]) -> list[str]:
        found: list[str] = called_as_other_user(lambda: report(IcebergSink, config)["errors"])
        return found

    def places(config: dict[str, str]) -> list[str]:
        return sorted({each.partition(" ")[0] for each in errors(config)})

    assert report(IcebergSink, config)["errors"] == []  # the other user cannot import modules
    # SQLite needs the directory, and the table its data and metadata
    assert places(config) == ["iceberg.catalog.uri", "iceberg.tables"]
    os.chown(open_path, 65_534, 65_534)
    table = open_path / "warehouse/app/orders"
    for each in ("data", "metadata"):
        assert places(config) == ["iceberg.tables"]
        os.chown(table / each, 65_534, 65_534)
    assert errors(config) == []
    # a new table needs the warehouse
    new = {**config, "topics": "other"}
    assert places(new) == ["iceberg.catalog.warehouse"]
    os.chown(open_path / "warehouse", 65_534, 65_534)
    assert errors(new) == []
    os.chown(open_path / "catalogue.db", 0, 0)
    assert places(new) == ["iceberg.catalog.uri"]


def test_a_warehouse_that_is_no_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "warehouse").write_text("a file")
    config = iceberg(tmp_path)
    (error,) = report(IcebergSink, config)["errors"]
    assert "iceberg.catalog.warehouse cannot be written" in error
    assert "is a file, not a directory" in error
    assert written(config, "orders") != ""


@pytest.mark.parametrize("right", ["SELECT", "INSERT", "UPDATE", "CREATE"])
def test_a_missing_right_in_the_catalogues_database_is_reported(
    postgres: Postgres, tmp_path: Path, right: str
) -> None:
    user, tables = f"lake_{right.lower()}", ("iceberg_tables", "iceberg_namespace_properties")
    postgres.execute(
        f"CREATE ROLE {user} LOGIN PASSWORD 'x'", "REVOKE CREATE ON SCHEMA public FROM PUBLIC"
    )
    admin = iceberg(
        tmp_path,
        **{
            "iceberg.catalog.uri": postgres.url,
            "iceberg.catalog.user": postgres.settings["connection.user"],
            "iceberg.catalog.password": postgres.settings["connection.password"],
        },
    )
    login = {"iceberg.catalog.user": user, "iceberg.catalog.password": "x"}
    config = {**admin, **login}
    if right == "CREATE":
        lacking = [f"GRANT CREATE ON SCHEMA public TO {user}"]
    else:
        assert written(admin, "orders") == ""
        for each in {"SELECT", "INSERT", "UPDATE", "DELETE"} - {right}:
            postgres.execute(*(f"GRANT {each} ON {table} TO {user}" for table in tables))
        lacking = [f"GRANT {right} ON {table} TO {user}" for table in tables]
    try:
        errors = report(IcebergSink, config)["errors"]
        assert errors
        assert all(right in each or "InsufficientPrivilege" in each for each in errors), errors
        assert written({**config, "iceberg.tables": "more.${topic}"}, "orders") != ""
        postgres.execute(*lacking)
        assert report(IcebergSink, config)["errors"] == []
        assert written({**config, "iceberg.tables": "more.${topic}"}, "orders") == ""
    finally:
        postgres.execute(f"DROP OWNED BY {user}", f"DROP ROLE {user}")


def delta(uri: object, **changed: str) -> dict[str, str]:
    return {
        "name": "sink",
        "connector.class": "DeltaSink",
        "topics": "orders",
        "table.uri": str(uri),
        **changed,
    }


def delta_written(config: dict[str, str], topic: str) -> str:
    """The error of a run that writes one record; empty if it is written."""
    settings = delta_settings_of(DeltaSink.config_def().parse(config).values)
    try:
        list(DeltaWriter("sink", settings)([records([{"id": 1}], topic=topic)]))
    except TableError as error:
        return str(error)
    return ""


def feature(path: Path, name: str, **configuration: str) -> None:
    """Add a feature of writers to a table, as another program does."""
    metadata = DeltaTable(path).metadata()
    actions: list[dict[str, Any]] = [
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": [name] if name == "typeWidening" else [],
                "writerFeatures": [name],
            }
        },
        {
            "metaData": {
                "id": metadata.id,
                "format": {"provider": "parquet", "options": {}},
                "schemaString": DeltaTable(path).schema().to_json(),
                "partitionColumns": [],
                "configuration": configuration,
                "createdTime": 0,
            }
        },
    ]
    log = path / "_delta_log" / f"{DeltaTable(path).version() + 1:020d}.json"
    log.write_text("".join(f"{json.dumps(each)}\n" for each in actions))


@pytest.mark.parametrize(
    ("replacement", "words"),
    [
        ("customers", ""),
        (" ", "it is empty"),
        ("..", "'..', which is another directory"),
        ("../../elsewhere", "it has '/'"),
        ("a/b", "it has '/'"),
        ("a%2Fb", "'%', which the library takes for an encoded character"),
        ("$1" * 30, "more than 255 bytes"),
    ],
)
def test_a_topic_that_transforms_name_must_be_able_to_name_a_delta_table(
    tmp_path: Path, replacement: str, words: str
) -> None:
    config = delta(
        f"{tmp_path}/lake/${{topic}}",
        topics="shop.public.customers",
        **{**LAST_PART, "transforms.table.replacement": replacement},
    )
    errors = report(DeltaSink, config)["errors"]
    named = replacement.strip().replace("$1", "customers")
    run = delta_written(config, named)
    assert (words in "".join(errors), words in run) == (True, True)
    assert bool(errors) == bool(run) == bool(words)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("name", ["typeWidening", "rowTracking", "identityColumns", "new-one"])
def test_a_feature_that_the_library_does_not_write_is_reported(tmp_path: Path, name: str) -> None:
    config = delta(tmp_path / "orders")
    assert delta_written(config, "orders") == ""
    feature(tmp_path / "orders", name)
    (error,) = report(DeltaSink, config)["errors"]
    assert f"the table requires {name}" in error
    assert f"the table requires {name}" in delta_written(config, "orders")


def test_an_append_only_table_takes_no_upserts(tmp_path: Path) -> None:
    config = delta(tmp_path / "orders")
    assert delta_written(config, "orders") == ""
    feature(tmp_path / "orders", "appendOnly", **{"delta.appendOnly": "true"})
    assert report(DeltaSink, config)["errors"] == []
    assert delta_written(config, "orders") == ""
    upsert = {"insert.mode": "upsert", "pk.mode": "record_value", "pk.fields": "id"}
    (error,) = report(DeltaSink, {**config, **upsert})["errors"]
    assert "set insert.mode=append" in error
    assert "set insert.mode=append" in delta_written({**config, **upsert}, "orders")


def test_a_delta_table_that_the_worker_may_not_write_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    config = delta(tmp_path / "file" / "${topic}")
    (error,) = report(DeltaSink, config)["errors"]
    assert error == f"table.uri cannot be written: {tmp_path}/file is a file, not a directory"
    assert delta_written(config, "orders") != ""
    unnamed = {name: text for name, text in config.items() if name != "topics"}
    found = report(DeltaSink, {**unnamed, "topics.regex": ".*"})
    assert "no topic is named" in found["skipped"][0]


def test_the_rights_of_an_existing_delta_table_are_checked(open_path: Path) -> None:
    # the library cannot run in a fork of a process that has used it
    def faults() -> list[str | None]:
        places = (open_path / "table", open_path / "table/_delta_log", open_path / "new")
        return [directory_write_fault(str(each)) for each in places]

    (open_path / "table/_delta_log").mkdir(parents=True)
    lacking = "cannot be written: the worker's user (number 65534) may not create files in "
    found = called_as_other_user(faults)
    assert [each.startswith(lacking) for each in found] == [True] * 3
    os.chown(open_path / "table", 65_534, 65_534)
    assert [each is None for each in called_as_other_user(faults)] == [True, False, False]
    os.chown(open_path, 65_534, 65_534)
    assert [each is None for each in called_as_other_user(faults)] == [True, False, True]


def s3_right(request: Request) -> str:
    """The right that a request needs."""
    query = request.path.partition("?")[2]
    if request.method == "PUT":
        return "copy" if "x-amz-copy-source" in request.headers else "PutObject"
    if request.method == "DELETE" or "delete" in query:
        return "DeleteObject"
    return "ListBucket" if "list-type" in query else "GetObject"


@pytest.mark.parametrize(
    ("right", "sinks"),
    [
        ("PutObject", {"files", "delta", "iceberg"}),
        ("GetObject", {"files", "delta", "iceberg"}),
        ("ListBucket", {"files", "delta", "iceberg"}),
        ("copy", {"files"}),
        ("DeleteObject", {"files"}),
    ],
)
def test_a_right_that_the_bucket_does_not_grant_is_reported(
    s3: S3, tmp_path: Path, right: str, sinks: set[str]
) -> None:
    with http_gate(s3.port) as gate:
        own = {**s3.settings, "store.url": gate.address}
        files = {"name": "sink", "topics": "orders", "path": f"s3://{s3.bucket}/files", **own}
        table = iceberg(
            tmp_path,
            **{
                "iceberg.catalog.warehouse": f"s3://{s3.bucket}/iceberg",
                "iceberg.catalog.s3.endpoint": gate.address,
                "iceberg.catalog.s3.region": "us-east-1",
                "iceberg.catalog.s3.access-key-id": own["aws.access.key.id"],
                "iceberg.catalog.s3.secret-access-key": own["aws.secret.access.key"],
            },
        )
        assert written(table, "orders") == ""
        configs = {
            "files": (FilesSink, {**files, "connector.class": "FilesSink"}),
            "delta": (DeltaSink, delta(f"s3://{s3.bucket}/delta/${{topic}}", **own)),
            "iceberg": (IcebergSink, table),
        }
        for kind, config in configs.values():
            found = report(kind, config)
            assert (found["errors"], found["warnings"]) == ([], [])
        gate.rule = lambda request: 403 if s3_right(request) == right else None
        reports = {name: report(*each) for name, each in configs.items()}
    assert {name for name, found in reports.items() if found["errors"]} == sinks
    for name, found in reports.items():
        for each in found["errors"]:
            assert re.search("403|refuses it|ACCESS_DENIED", each)
            assert re.search("check the credentials", each)
        stays = right == "DeleteObject" and name != "files"
        assert bool(found["warnings"]) == stays


def test_files_and_directories_without_rights_are_reported(open_path: Path) -> None:
    locked, file = open_path / "locked", open_path / "locked/lines.txt"
    locked.mkdir()
    file.write_text("a\n")
    common = {"name": "c", "topics": "orders"}
    source = {"name": "c", "topic": "orders"}
    out = {"connector.class": "FilesSink", "path": f"{locked}/out", **common}
    lines = {"connector.class": "FileStreamSink", "file": str(file), **common}
    new = {**lines, "file": f"{locked}/new.txt"}
    read = {"connector.class": "FilesSource", "path": str(locked), "format": "text", **source}
    tail = {"connector.class": "FileStreamSource", "file": str(file), **source}
    cases: list[tuple[type[Connector], dict[str, str]]] = [
        (FilesSink, out),
        (FileStreamSink, lines),
        (FileStreamSink, new),
    ]
    cases += [(FilesSource, read), (FileStreamSource, tail)]
    assert [report(*each)["errors"] for each in cases] == [[]] * 5

    def errors() -> list[str]:
        found: list[str] = called_as_other_user(
            lambda: [text for each in cases for text in report(*each)["errors"]]
        )
        return found

    first, second, third = errors()
    assert first.startswith("path cannot be written: the worker's user (number 65534) may not")
    assert second.startswith("file cannot be written: the worker's user (number 65534) has no ")
    assert second.endswith(f" right to write {file}: grant it")
    assert f"may not create files in {locked}" in third
    locked.chmod(0o700)
    assert len(errors()) == 5
    assert sum("cannot be read" in each for each in errors()) == 2
    os.chown(locked, 65_534, 65_534)
    os.chown(file, 65_534, 65_534)
    assert errors() == []


def test_a_path_through_a_file_or_with_a_long_name_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    config = {"name": "c", "connector.class": "FilesSink", "topics": "orders"}
    (error,) = report(FilesSink, {**config, "path": f"{tmp_path}/file/out"})["errors"]
    assert error == f"path cannot be written: {tmp_path}/file is a file, not a directory"
    (error,) = report(FilesSink, {**config, "path": f"{tmp_path}/{'ä' * 128}"})["errors"]
    assert "has a name of more than 255 bytes" in error
    lines = {**config, "connector.class": "FileStreamSink", "file": f"{tmp_path}/none/lines.txt"}
    found = report(FileStreamSink, lines)
    assert found["errors"] == []
    assert f"{tmp_path}/none, which does not exist" in found["warnings"][0]
    (error,) = report(FileStreamSink, {**lines, "file": f"{tmp_path}"})["errors"]
    assert "is a directory, not a file" in error
