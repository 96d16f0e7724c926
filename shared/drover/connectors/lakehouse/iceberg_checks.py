"""Checks IcebergSink's settings with its catalogue, its tables and their files."""

import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drover.connector import Caution, RetriableError, SkippedCheck, Violation, routed_topics
from drover.connectors.files.storage.write_access import directory_write_fault, file_write_fault
from drover.connectors.lakehouse.fitted_rows import TableError
from drover.connectors.lakehouse.iceberg_errors import translated_errors
from drover.connectors.lakehouse.iceberg_limits import check_writable, name_fault
from drover.connectors.lakehouse.iceberg_table import (
    IcebergSettings,
    IcebergTable,
    opened,
)
from drover.policy.files import ForbiddenPathError, local_path

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

_URI, _WAREHOUSE = "iceberg.catalog.uri", "iceberg.catalog.warehouse"
_TABLES, _CREATE = "iceberg.tables", "iceberg.tables.auto-create-enabled"
_ID_COLUMNS = "iceberg.tables.default-id-columns"
_PARTITION_BY = "iceberg.tables.default-partition-by"
_TOPIC = "${topic}"
#: The tables of a catalogue in a database.
_CATALOG_TABLES = ("iceberg_tables", "iceberg_namespace_properties")


def catalog_faults(settings: IcebergSettings, config: Mapping[str, Any]) -> Iterator[Violation]:
    """The faults of parsed settings, and the checks that are not possible."""
    location = str(config.get(_WAREHOUSE) or "x:")
    is_name = settings.is_hierarchical and not location.lower().startswith(("/", "file:"))
    warehouse = None if is_name else local_path(location)
    names = dict[str, IcebergTable]()
    yield from _names(settings, config, names)
    try:
        catalog = settings.existing()
        if catalog is not None and not _lists_namespaces(settings, catalog):
            yield SkippedCheck(_URI, "the list of namespaces: the user has no right to read it")
        tables: dict[str, Table | None] = {}
        for name in names:
            if name_fault(name, is_hierarchical=settings.is_hierarchical) is None:
                with translated_errors(f"table {name}"):
                    tables[name] = None if catalog is None else opened(catalog, name)
        missing = [name for name, table in tables.items() if table is None]
        for name, table in tables.items():
            if table is not None:
                yield from _table_faults(settings, name, names[name], table)
        if not settings.creates:
            for name in missing:
                text = f"table {name!r} does not exist: create it, or set this to true"
                yield Violation(_CREATE, text)
        elif missing and warehouse is not None:
            fault = directory_write_fault(warehouse)
            yield from () if fault is None else [Violation(_WAREHOUSE, fault)]
        if settings.is_hierarchical:
            yield SkippedCheck(
                _URI,
                "the right to create and to commit tables: a REST catalogue shows it only when a "
                "table is written",
            )
        else:
            yield from _database_faults(settings, catalog)
    except (TableError, RetriableError, ForbiddenPathError) as error:
        yield Violation(_URI, f"cannot be used: {error}")


def _lists_namespaces(settings: IcebergSettings, catalog: "Catalog") -> bool:
    """Whether the namespaces can be listed, which a run does not need.

    Raises:
        TableError: The catalogue cannot be used.
    """
    from pyiceberg.exceptions import ForbiddenError

    with translated_errors(f"catalogue {settings.catalog!r}"):
        try:
            catalog.list_namespaces()
        except ForbiddenError:
            return False
    return True


def _names(
    settings: IcebergSettings, config: Mapping[str, Any], names: dict[str, IcebergTable]
) -> Iterator[Violation]:
    """Add the names of the tables to ``names``; yields their faults."""
    topics = routed_topics(config)
    for table in settings.tables:
        if _TOPIC not in table.identifier:
            names[table.identifier] = table
            fault = name_fault(table.identifier, is_hierarchical=settings.is_hierarchical)
            if fault is not None:
                yield Violation(_TABLES, f"table {table.identifier!r}: {fault}")
            continue
        if not topics:
            yield SkippedCheck(_TABLES, f"the tables of {table.identifier}: no topic is named")
        for topic, routed in topics.items():
            if routed is None:
                yield SkippedCheck(
                    _TABLES,
                    f"the table of topic {topic!r}: a transform names its topic by the records",
                )
                continue
            name = table.identifier.replace(_TOPIC, routed)
            names[name] = table
            fault = name_fault(name, is_hierarchical=settings.is_hierarchical)
            if fault is not None:
                yield Violation(_TABLES, f"table {name!r} of topic {topic!r}: {fault}")


def _table_faults(
    settings: IcebergSettings, name: str, wanted: IcebergTable, table: "Table"
) -> Iterator[Violation]:
    try:
        check_writable(table)
    except TableError as error:
        yield Violation(_TABLES, f"table {name!r}: {error}")
    columns = table.schema().column_names
    for key in wanted.rows.key_fields:
        if key not in columns and not settings.evolves:
            yield Violation(_ID_COLUMNS, f"table {name!r} has no column {key!r}")
    fields = [str(table.schema().find_column_name(each.source_id)) for each in table.spec().fields]
    listed = list(zip(fields, (str(each.transform) for each in table.spec().fields), strict=True))
    by = [(each.column, each.transform) for each in wanted.partition_by]
    if by and by != listed:
        shown = ", ".join(f"{transform}({column})" for column, transform in listed) or "no fields"
        text = f"has no effect for table {name!r}, which exists and is partitioned by {shown}"
        yield Caution(_PARTITION_BY, text)
    path = local_path(table.location())
    if path is None:
        yield from _store_faults(name, table)
        return
    for each in (f"{path}/data", f"{path}/metadata"):
        fault = directory_write_fault(each)
        if fault is not None:
            yield Violation(_TABLES, f"table {name!r} {fault}")


def _store_faults(name: str, table: "Table") -> Iterator[Violation]:
    """The rights that the store of a table lacks, tried with a file that no snapshot has."""
    directory = f"{table.location().rstrip('/')}/data"
    path = f"{directory}/drover-probe-{uuid.uuid4().hex}"
    try:
        with (
            translated_errors(f"table {name}: trying to write a file"),
            table.io.new_output(path).create() as output,
        ):
            output.write(b"drover")
        with (
            translated_errors(f"table {name}: trying to read a file"),
            table.io.new_input(path).open() as file,
        ):
            file.read()
    except (TableError, RetriableError) as error:
        yield Violation(_TABLES, f"{error}: this is tried in {directory}")
        return
    try:
        with translated_errors(f"table {name}: trying to delete a file"):
            table.io.delete(path)
    except (TableError, RetriableError) as error:
        yield Caution(_TABLES, f"{error}: old metadata stays, as does {path} of this check")


def _database_faults(settings: IcebergSettings, catalog: "Catalog | None") -> Iterator[Violation]:
    """The missing rights in the catalogue's database, where it shows them."""
    import sqlalchemy as sa

    url = sa.make_url(dict(settings.properties)["uri"])
    if url.get_backend_name() == "sqlite":
        path = str(Path(url.database or ""))
        # SQLite writes its journal beside the file
        fault = file_write_fault(path) or directory_write_fault(str(Path(path).parent))
        yield from () if fault is None else [Violation(_URI, fault)]
    elif url.get_backend_name() == "postgresql":
        yield from _postgres_faults(catalog or settings.reading())
    else:
        yield SkippedCheck(_URI, "the rights in the database: they are checked in PostgreSQL only")


def _postgres_faults(catalog: Any) -> Iterator[Violation]:
    import sqlalchemy as sa

    with translated_errors("the catalogue's database"), catalog.engine.connect() as connection:
        for table in _CATALOG_TABLES:
            found = connection.execute(sa.select(sa.func.to_regclass(table))).scalar()
            if found is None:
                schema = sa.func.current_schema()
                asked = sa.func.has_schema_privilege(schema, "CREATE")
                if not connection.execute(sa.select(asked)).scalar():
                    text = f"the user has no right to create the catalogue's table {table}: "
                    yield Violation(_URI, f"{text}GRANT CREATE ON SCHEMA, or create the catalogue")
                    return
                continue
            for right in ("SELECT", "INSERT", "UPDATE"):
                asked = sa.func.has_table_privilege(table, right)
                if not connection.execute(sa.select(asked)).scalar():
                    text = f"the user has no right to {right} on the catalogue's table {table}: "
                    yield Violation(_URI, f"{text}GRANT {right} ON {table} TO the user")
