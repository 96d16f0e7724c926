"""What validation reports about tables of Iceberg and Delta Lake is what a run does."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drover.connector.settings import validate_config
from drover.connectors.lakehouse.fitted_rows import TableError
from drover.connectors.lakehouse.iceberg_sink import IcebergSink, settings_of
from drover.connectors.lakehouse.iceberg_table import IcebergWriter
from tests.support.lake_records import records
from tests.support.other_user import called_as_other_user
from tests.support.postgres import Postgres

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
