"""Writes records into tables of Apache Iceberg, in one commit per table with the offsets."""

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from drover.connector import RetriableError, TopicPartition
from drover.connector.records import is_list
from drover.connectors.lakehouse.fitted_rows import (
    TableError,
    TableTypes,
)
from drover.connectors.lakehouse.iceberg_errors import safe_text, translated_errors
from drover.connectors.lakehouse.iceberg_keys import remove_keys, rows_of_keys
from drover.connectors.lakehouse.iceberg_limits import check_writable, name_fault
from drover.connectors.lakehouse.rows import (
    Changes,
    RowSettings,
    by_topic,
    changes_of,
    check_years,
    stored_type,
    type_fault,
)
from drover.connectors.output_ids import SEPARATOR, named_with, of_topic
from drover.connectors.refused_records import RefusedRecord, answer
from drover.policy.files import check_root, local_path

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

EVOLVE_SETTING = "iceberg.tables.evolve-schema-enabled"
#: How often a commit is retried after a conflict with another writer.
_ATTEMPTS = 10
#: With fewer snapshots than this, none are expired.
_EXPIRE_FROM = 20
_PARTITION_BY = re.compile(r"(?:(\w+)\(\s*([^,()]+?)\s*(?:,\s*(\d+)\s*)?\)|([^,()]+))")
_UNITS = {
    name: unit for unit in ("year", "month", "day", "hour") for name in (unit, f"{unit}s")
} | {"date": "day", "date_hour": "hour"}
#: Properties of new tables: commits delete old metadata, because each adds a metadata file.
_NEW_TABLE = {
    "format-version": "2",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A field of a new table's partition spec: a column and a transform in Iceberg's syntax."""

    column: str
    transform: str

    @classmethod
    def parse(cls, text: str) -> "PartitionField":
        """Parse ``city``, ``day(at)``, ``bucket(id, 16)`` or ``truncate(name, 4)``.

        Raises:
            ValueError: The text has another form.
        """
        match = _PARTITION_BY.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"must have columns such as city or day(at), not {text[:60]!r}")
        if match[4]:
            return cls(match[4].strip(), "identity")
        function, column, number = match[1].lower(), match[2], match[3]
        if function in _UNITS and number is None:
            return cls(column, _UNITS[function])
        if function in ("bucket", "truncate") and number is not None:
            return cls(column, f"{function}[{number}]")
        raise ValueError(
            f"must use year, month, day, hour, bucket(column, n) or truncate(column, n), not "
            f"{text[:60]!r}"
        )

    @property
    def name(self) -> str:
        """The field's name, as in Iceberg's other writers."""
        kind = self.transform.partition("[")[0]
        return self.column if kind == "identity" else f"{self.column}_{kind}"


@dataclass(frozen=True, slots=True)
class IcebergTable:
    """A table that a topic is written to."""

    identifier: str
    rows: RowSettings
    partition_by: tuple[PartitionField, ...] = ()


@dataclass(frozen=True, slots=True)
class IcebergSettings:
    """The settings of a sink for its tables; picklable, its repr shows no secret.

    ``tables`` may contain ``${topic}`` in their names. Snapshots older than ``expire_hours`` (0:
    never) are expired periodically.
    """

    catalog: str
    properties: tuple[tuple[str, str], ...] = field(repr=False)
    tables: tuple[IcebergTable, ...]
    creates: bool = False
    evolves: bool = False
    expire_hours: int = 0

    def opened(self) -> "Catalog":
        """The catalogue.

        Raises:
            TableError: The catalogue cannot be used.
        """
        with translated_errors(f"catalogue {self.catalog!r}"):
            properties = dict(self.properties)
            if properties["type"] == "rest":
                from drover.connectors.lakehouse.rest_catalog import TimedRestCatalog

                return TimedRestCatalog(self.catalog, **properties)
            # not load_catalog, which adds settings of the worker's environment and home directory
            from drover.connectors.lakehouse.sql_catalog import CheckedSqlCatalog

            return CheckedSqlCatalog(self.catalog, **properties)

    @property
    def is_hierarchical(self) -> bool:
        """Whether namespaces may be in namespaces: not in a database, by the library's code."""
        return dict(self.properties)["type"] == "rest"

    def existing(self) -> "Catalog | None":
        """The catalogue; None if it is a database in which a first run creates it.

        Raises:
            TableError: The catalogue cannot be used.
        """
        properties = dict(self.properties)
        if properties["type"] != "sql":
            return self.opened()
        import sqlalchemy as sa

        with translated_errors(f"catalogue {self.catalog!r}"):
            url = sa.make_url(properties["uri"])
        if url.get_backend_name() == "sqlite" and not Path(url.database or "").exists():
            return None
        catalog: Any = self.reading()
        with translated_errors(f"catalogue {self.catalog!r}"):
            return catalog if sa.inspect(catalog.engine).has_table("iceberg_tables") else None

    def reading(self) -> "Catalog":
        """The catalogue, which is not created in a database that has none.

        Raises:
            TableError: The catalogue cannot be used.
        """
        properties = (*self.properties, ("init_catalog_tables", "false"))
        return replace(self, properties=properties).opened()


@dataclass(frozen=True)
class IcebergWriter:
    """Writes a batch; picklable, and receives all records in one call.

    Each commit sets the next offsets as a table property, and fails if another commit happened
    since the table was loaded. Records before the offsets are skipped, and of two concurrent
    writers the later one loads the table again. ``output_ids`` has the ids of outputs after the
    first one of a topic partition, which have their own offsets.
    """

    connector: str
    settings: IcebergSettings
    output_ids: Mapping[TopicPartition, str] = field(default_factory=dict)
    tolerates: bool = False

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the number of records written, which are durable then, and the refused records.

        Raises:
            RefusedRecordError: A record cannot be a row, and ``tolerates`` is false.
        """
        catalog = self.settings.opened()
        written, refused = 0, list[RefusedRecord]()
        for (topic, origin), own in by_topic(each for each in batches if each.num_rows).items():
            for each in self.settings.tables:
                identifier = each.identifier.replace("${topic}", topic)
                with translated_errors(f"table {identifier}"):
                    count, found = self._write(catalog, each, identifier, origin, own)
                written += count
                refused += (one.within(f"table {identifier}") for one in found)
        yield answer(written, refused)

    def _write(
        self,
        catalog: "Catalog",
        wanted: IcebergTable,
        identifier: str,
        topic: str,
        batches: list[pa.RecordBatch],
    ) -> tuple[int, Sequence[RefusedRecord]]:
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

        self._check_name(identifier)
        for _ in range(_ATTEMPTS):
            table = opened(catalog, identifier)
            ids = of_topic(self.output_ids, topic)
            found = {} if table is None else written_offsets(table, self.connector, topic, ids)
            changes = self._changes(table, wanted, batches, found)
            if changes is None:
                return 0, ()
            if not (changes.rows.num_rows or changes.deleted.num_rows):
                return 0, changes.refused
            try:
                if table is None:
                    self._create(catalog, wanted, identifier, changes)
                    continue  # another writer may have changed it
                count = self._commit(table, topic, ids, changes)
            except (CommitFailedException, TableAlreadyExistsError) as error:
                kind = type(error).__name__  # the message may be the server's
                _log.info("table %s: another writer was first: %s", identifier, kind)
                continue
            self._expire(catalog, identifier)
            return count, changes.refused
        raise RetriableError(
            f"table {identifier}: {_ATTEMPTS} commits conflicted with other writers"
        )

    def predicted(
        self, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[tuple[str, str, RefusedRecord | None]]:
        """For each table: its topic, its name, and None; then the records that it would refuse.

        Raises:
            TableError: A run would fail, whatever the records are.
        """
        catalog = self.settings.existing()
        for (topic, origin), own in by_topic(each for each in batches if each.num_rows).items():
            for wanted in self.settings.tables:
                identifier = wanted.identifier.replace("${topic}", topic)
                with translated_errors(f"table {identifier}"):
                    self._check_name(identifier)
                    table = None if catalog is None else opened(catalog, identifier)
                    changes = self._changes(table, wanted, own, {})
                    assert changes is not None
                    if table is None and (changes.rows.num_rows or changes.deleted.num_rows):
                        self._check_creation(wanted, changes)
                        # the run fits the records to the table that it has created
                        schema = changes.rows.schema
                        changes = self._changes(None, wanted, own, {}, created=schema)
                        assert changes is not None
                yield origin, identifier, None
                for each in changes.refused:
                    yield origin, identifier, each.within(f"table {identifier}")

    def _check_name(self, identifier: str) -> None:
        fault = name_fault(identifier, is_hierarchical=self.settings.is_hierarchical)
        if fault is not None:
            raise TableError(fault)

    def _changes(
        self,
        table: "Table | None",
        wanted: IcebergTable,
        batches: list[pa.RecordBatch],
        found: Mapping[int, int],
        *,
        created: pa.Schema | None = None,
    ) -> Changes | None:
        """The changes of records after the offsets that were found; None if there are none.

        ``created`` is the schema that a missing table would get.
        """
        schema = created
        if table is not None:
            check_writable(table)
            schema = table.schema().as_arrow()
        types = TableTypes(schema, self.settings.evolves, EVOLVE_SETTING, widened, _fault)
        changes = changes_of(batches, found, wanted.rows, storable, types, tolerates=self.tolerates)
        if changes is None:
            return None
        _check_keys(changes.keys)
        return changes.completed(partial(rows_of_keys, table), tolerates=self.tolerates)

    def _create(
        self, catalog: "Catalog", wanted: IcebergTable, identifier: str, changes: Changes
    ) -> None:
        from pyiceberg.transforms import parse_transform

        self._check_creation(wanted, changes)
        schema, namespace = changes.rows.schema, identifier.rpartition(".")[0]
        _create_namespace(catalog, namespace)
        creation = catalog.create_table_transaction(identifier, schema, properties=_NEW_TABLE)
        with creation.update_spec() as spec:
            for each in wanted.partition_by:
                spec.add_field(each.column, parse_transform(each.transform), each.name)
        creation.commit_transaction()

    def _check_creation(self, wanted: IcebergTable, changes: Changes) -> None:
        if not self.settings.creates:
            raise TableError(
                "the table does not exist: create it, or set iceberg.tables.auto-create-enabled"
            )
        schema = changes.rows.schema
        missing = [each.column for each in wanted.partition_by if each.column not in schema.names]
        if missing:
            raise TableError(f"records have no field {missing[0]!r} to partition by")

    def _commit(
        self, table: "Table", topic: str, output_ids: Mapping[int, str], changes: Changes
    ) -> int:
        from drover.connectors.lakehouse.exact_table import ExactTable
        from drover.connectors.lakehouse.null_lists import keep_null_lists

        keep_null_lists()
        rows = changes.rows
        transaction = ExactTable.of(table).transaction()
        if self.settings.evolves and not rows.schema.equals(table.schema().as_arrow()):
            with transaction.update_schema() as update:
                update.union_by_name(rows.schema)
        told = {"drover.connector": self.connector, "drover.topic": topic}
        if changes.keys:
            keys = pa.concat_tables([rows.select(list(changes.keys)), changes.deleted])
            removed = remove_keys(transaction, table.io, keys, told)
            if not rows.num_rows and not removed:
                return 0  # without a snapshot, a conflicting commit would not be refused
        if rows.num_rows:
            transaction.append(rows, snapshot_properties=told)
        offsets = _stored(table, self.connector, topic) | {
            named_with(partition, output_ids.get(partition, "")): offset
            for partition, offset in changes.next_offsets.items()
        }
        transaction.set_properties({_property(self.connector, topic): _encoded(offsets)})
        transaction.commit_transaction()
        return int(rows.num_rows + changes.deleted.num_rows)

    def _expire(self, catalog: "Catalog", identifier: str) -> None:
        """Expire old snapshots periodically; a failure loses nothing."""
        hours = self.settings.expire_hours
        table = opened(catalog, identifier) if hours else None
        if table is None or len(table.metadata.snapshots) < _EXPIRE_FROM:
            return
        before = datetime.now(UTC) - timedelta(hours=hours)
        try:
            table.maintenance.expire_snapshots().older_than(before).commit()
        except Exception as error:  # noqa: BLE001 (the library raises whatever its catalogue does)
            _log.warning("snapshots of table %s were not expired: %s", identifier, safe_text(error))


def _create_namespace(catalog: "Catalog", namespace: str) -> None:
    """Create a namespace that does not exist; an existing one needs no right to create it."""
    from pyiceberg.exceptions import ForbiddenError

    with translated_errors(f"creating namespace {namespace}"):
        try:
            catalog.create_namespace_if_not_exists(namespace)
        except ForbiddenError:
            if not catalog.namespace_exists(namespace):
                raise


def opened(catalog: "Catalog", identifier: str) -> "Table | None":
    """The current version of a table; None if it does not exist.

    Raises:
        ForbiddenPathError: It is on a disk, outside of the worker's roots.
    """
    from pyiceberg.exceptions import NoSuchTableError

    try:
        table = catalog.load_table(identifier)
    except NoSuchTableError:
        return None
    path = local_path(table.location())
    if path is not None:
        check_root(path)
    return table


def written_offsets(
    table: "Table", connector: str, topic: str, output_ids: Mapping[int, str]
) -> dict[int, int]:
    """The next offsets of a topic that a connector has written, by partition; ``output_ids`` has
    the partitions with other outputs than their first.
    """
    found = {}
    for name, offset in _stored(table, connector, topic).items():
        number, _, output_id = name.partition(SEPARATOR)
        if output_ids.get(int(number), "") == output_id:
            found[int(number)] = offset
    return found


def _stored(table: "Table", connector: str, topic: str) -> dict[str, int]:
    """The next offsets by partition and output, as they are stored."""
    found: dict[str, int] = json.loads(table.properties.get(_property(connector, topic), "{}"))
    return found


def traced_offsets(
    settings: IcebergSettings, connector: str, partitions: Mapping[TopicPartition, str]
) -> dict[TopicPartition, int]:
    """The next offsets of topic partitions, given with the ids of their outputs, as far as every
    table has their records.
    """
    catalog = settings.existing()
    if catalog is None:
        return {}
    traced: dict[TopicPartition, int] = {}
    for topic in sorted({key.topic for key in partitions}):
        ids = of_topic(partitions, topic)
        found = []
        for each in settings.tables:
            identifier = each.identifier.replace("${topic}", topic)
            with translated_errors(f"table {identifier}"):
                table = opened(catalog, identifier)
                found.append({} if table is None else written_offsets(table, connector, topic, ids))
        for partition in ids:
            offset = min(each.get(partition, 0) for each in found)
            if offset > 0:
                traced[TopicPartition(topic, partition)] = offset
    return traced


def set_back(
    settings: IcebergSettings, connector: str, topic: str, offsets: Mapping[int, int] | None
) -> None:
    """Reset the written offsets of a topic's partitions, in all outputs; None removes all."""
    catalog = settings.opened()
    for each in settings.tables:
        identifier = each.identifier.replace("${topic}", topic)
        with translated_errors(f"table {identifier}"):
            table = opened(catalog, identifier)
            if table is None:
                continue
            before = _stored(table, connector, topic)
            changed = {str(partition): offset for partition, offset in (offsets or {}).items()}
            found = (
                {}
                if offsets is None
                else {
                    name: changed.get(name.partition(SEPARATOR)[0], offset)
                    for name, offset in (changed | before).items()
                }
            )
            with table.transaction() as transaction:
                transaction.set_properties({_property(connector, topic): _encoded(found)})


def storable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column converted to a type of Iceberg."""
    wanted = stored_type(column.type, time=pa.time64("us"), others=_SMALL)
    found = column if wanted == column.type else column.cast(wanted)
    check_years(found, timestamps=True)  # of others the library makes no bounds of files
    return found


def widened(kind: pa.DataType, new: pa.DataType) -> pa.DataType:
    """The type to which Iceberg may promote a column for values of type ``new``: int to long, float
    to double, a decimal to one of more digits (https://iceberg.apache.org/spec/#schema-evolution).
    """
    types = pa.types
    is_number = types.is_integer(new) or types.is_decimal(new) or types.is_floating(new)
    if types.is_int32(kind) and is_number:
        return pa.int64()
    if types.is_float32(kind) and types.is_float64(new):
        return new
    if types.is_decimal128(kind) and (types.is_decimal128(new) or types.is_integer(new)):
        digits = new.precision - new.scale if types.is_decimal128(new) else _DIGITS[new.bit_width]
        precision = min(_DIGITS_MAX, digits + kind.scale)
        return kind if precision <= kind.precision else pa.decimal128(precision, kind.scale)
    if types.is_struct(kind) and types.is_struct(new):
        found = {each.name: each.type for each in new}
        return pa.struct(
            [each.with_type(widened(each.type, found.get(each.name, each.type))) for each in kind]
        )
    if is_list(kind) and is_list(new):
        item = kind.value_field
        wider = item.with_type(widened(item.type, new.value_type))
        return pa.large_list(wider) if types.is_large_list(kind) else pa.list_(wider)
    if types.is_map(kind) and types.is_map(new):
        item = kind.item_field
        return pa.map_(kind.key_field, item.with_type(widened(item.type, new.item_type)))
    return kind


def _fault(name: str, kind: pa.DataType) -> str | None:
    return type_fault(kind) if name else "its name is empty"


#: The most decimal digits of integers, by their bits, and of a decimal.
_DIGITS, _DIGITS_MAX = {8: 3, 16: 5, 32: 10, 64: 19}, 38
_SMALL = {pa.int8(): pa.int32(), pa.int16(): pa.int32()}


def _check_keys(names: Iterable[str]) -> None:
    dotted = [each for each in names if "." in each]
    if dotted:
        raise TableError(
            f"column {dotted[0]!r} of the key has a dot in its name, which the library treats as a "
            "field of a struct: rename it with ReplaceField"
        )


def _property(connector: str, topic: str) -> str:
    return f"drover.offsets.{connector}.{topic}"


def _encoded(offsets: Mapping[str, int]) -> str:
    return json.dumps(dict(sorted(offsets.items(), key=_order)))


def _order(stored: tuple[str, int]) -> tuple[int, str]:
    number, _, output_id = stored[0].partition(SEPARATOR)
    return int(number), output_id
