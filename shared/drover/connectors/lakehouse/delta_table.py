"""Writes records into tables of Delta Lake, in one commit per table with the offsets."""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from drover.connector import RetriableError, TopicPartition
from drover.connector.records import OFFSET, PARTITION, original_topics
from drover.connectors.files.storage.object_store import (
    FINAL_STATUS,
    MISTRUSTED,
    ObjectPlace,
    ObjectStoreError,
    check_place,
    is_object_url,
)
from drover.connectors.lakehouse.delta_limits import (
    check_supported,
    check_writable,
    partition_fault,
    topic_fault,
)
from drover.connectors.lakehouse.fitted_rows import (
    TableAccessError,
    TableError,
    TableTypes,
)
from drover.connectors.lakehouse.rows import (
    EXTRA,
    Changes,
    RowSettings,
    by_topic,
    changes_of,
    check_years,
    stored_type,
    type_fault,
)
from drover.connectors.output_ids import named_with, of_topic
from drover.connectors.refused_records import RefusedRecord, RefusedRecordError, answer
from drover.policy.files import ForbiddenPathError, check_root

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

#: How often a commit is retried after a conflict with another writer.
_ATTEMPTS = 10
_DELETED = "__drover_deleted"
#: In the application id whose version is the id of a topic partition's last output, as a number.
_PRESENT = "output"
#: In the library's error for rows that violate a constraint of the table.
_CONSTRAINT = "failed validation check"
_PASSING = ("Generic S3 error", "Generic GCS error", "Generic MicrosoftAzure error", "timed out")
_REFUSED = re.compile(r"status code: (401|403)\b")
_COLOUR = re.compile(r"\x1b\[\d+m")
_KIND = re.compile(r"Generic \w+ error")
_STATUS = re.compile(r"(status code)(?::|\s+↳) (\d{3})")
_NO_RESPONSE = re.compile(r"(HTTP error)(?::|\s+↳) ([a-z ,]+)")
_INVALID = re.compile(r"(Got invalid) ([a-z]+) response")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DeltaSettings:
    """The settings of a sink for its tables; picklable, its repr shows no secret.

    ``uri`` may contain ``${topic}``. Every ``compact_every`` versions (0: never) small files are
    compacted, and files that no version of the last ``retain_hours`` uses are removed.
    """

    uri: str
    rows: RowSettings
    partition_by: tuple[str, ...] = ()
    creates: bool = True
    evolves: bool = False
    compact_every: int = 0
    retain_hours: int = 168
    storage_options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def uri_of(self, topic: str) -> str:
        """The URI of a topic's table."""
        return self.uri.replace("${topic}", topic)

    def check(self, topic: str) -> None:
        """Check the path of a topic's table, or the addresses of its store.

        Raises:
            ForbiddenPathError: Connectors may not access the path.
            TableError: The topic cannot name a table, or connectors may not connect to the store.
            RetriableError: A host name cannot be resolved.
        """
        fault = topic_fault(topic) if "${topic}" in self.uri else None
        if fault is not None:
            raise TableError(fault)
        uri = self.uri_of(topic)
        if not is_object_url(uri):
            check_root(uri)
            return
        try:
            check_place(ObjectPlace(uri, self.storage_options))
        except ObjectStoreError as error:
            raise TableError(str(error)) from None


@dataclass(frozen=True)
class DeltaWriter:
    """Writes a batch; picklable, and receives all records in one call.

    Each commit has the next offset of each topic partition, as an application transaction. Records
    before it are skipped; of two concurrent writers of a partition one gets a conflict, reads the
    table again and skips what the other wrote. ``output_ids`` has the ids of outputs after the
    first one of a topic partition, which have their own offsets.
    """

    connector: str
    settings: DeltaSettings
    output_ids: Mapping[TopicPartition, str] = field(default_factory=dict)
    tolerates: bool = False

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the number of records written, which are durable then, and the refused records.

        Raises:
            RefusedRecordError: A record cannot be a row, and ``tolerates`` is false.
        """
        written, refused = 0, list[RefusedRecord]()
        for (topic, origin), own in by_topic(each for each in batches if each.num_rows).items():
            with translated_errors(self.settings.uri_of(topic)):
                count, found = self._write(topic, origin, own)
            written += count
            refused += (each.within(self.settings.uri_of(topic)) for each in found)
        yield answer(written, refused)

    def _write(
        self, topic: str, origin: str, batches: list[pa.RecordBatch]
    ) -> tuple[int, Sequence[RefusedRecord]]:
        from deltalake.exceptions import CommitFailedError, DeltaError

        partitions = {each for batch in batches for each in batch.column("partition").to_pylist()}
        for _ in range(_ATTEMPTS):
            table = opened(self.settings, topic)
            found = {} if table is None else self._written(table, origin, partitions)
            changes = self._changes(table, batches, found)
            if changes is None:
                return 0, ()
            if not (changes.rows.num_rows or changes.deleted.num_rows):
                return 0, changes.refused
            if table is None:
                self._create(topic, changes)
                continue  # another writer may have changed it
            try:
                self._commit(table, origin, changes)
            except CommitFailedError as error:
                check_supported(error)
                why = type(error).__name__  # the message may have a response
                _log.info("%s: another writer was first: %s", self.settings.uri_of(topic), why)
                continue
            except DeltaError as error:
                if _CONSTRAINT not in str(error):
                    raise
                return self._write_halves(topic, origin, batches)
            self._tidy(topic)
            return int(changes.rows.num_rows + changes.deleted.num_rows), changes.refused
        raise RetriableError(
            f"{self.settings.uri_of(topic)}: {_ATTEMPTS} commits conflicted with other writers"
        )

    def predicted(
        self, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[tuple[str, str, RefusedRecord | None]]:
        """For each table: its topic, its URI, and None; then the records that it would refuse,
        except records that a constraint of the table rejects.

        Raises:
            TableError: A run would fail, whatever the records are.
        """
        for (topic, origin), own in by_topic(each for each in batches if each.num_rows).items():
            uri = self.settings.uri_of(topic)
            with translated_errors(uri):
                table = opened(self.settings, topic)
                changes = self._changes(table, own, {})
                assert changes is not None
                if table is None and (changes.rows.num_rows or changes.deleted.num_rows):
                    self._check_creation(changes)
                    # the run fits the records to the table that it has created
                    changes = self._changes(None, own, {}, created=changes.rows.schema)
                    assert changes is not None
            yield origin, uri, None
            for each in changes.refused:
                yield origin, uri, each.within(uri)

    def _changes(
        self,
        table: "DeltaTable | None",
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
            check_writable(table, keyed=self.settings.rows.keyed)
            schema = pa.schema(table.schema().to_arrow())
        partitions = self.settings.partition_by
        if table is not None:
            partitions = tuple(table.metadata().partition_columns)
        types = TableTypes(
            schema,
            self.settings.evolves,
            "auto.evolve",
            fault=_fault,
            value_fault=partial(partition_fault, partitions),
            folds_case=True,
        )
        rows = self.settings.rows
        changes = changes_of(batches, found, rows, storable, types, tolerates=self.tolerates)
        if changes is None:
            return None
        return changes.completed(partial(_rows_of_keys, table), tolerates=self.tolerates)

    def _write_halves(
        self, topic: str, origin: str, batches: list[pa.RecordBatch]
    ) -> tuple[int, Sequence[RefusedRecord]]:
        """Write the halves of a batch of which a record violates a constraint of the table."""
        batch, middle = batches[0], batches[0].num_rows // 2
        parts = [[batch.slice(0, middle)], [batch.slice(middle)]]
        if len(batches) > 1:
            parts = [batches[: len(batches) // 2], batches[len(batches) // 2 :]]
        if len(batches) > 1 or middle:
            found = [self._write(topic, origin, each) for each in parts]
            return sum(count for count, _ in found), [one for _, own in found for one in own]
        columns = original_topics(batch), batch.column(PARTITION), batch.column(OFFSET)
        topic, partition, offset = (each[0].as_py() for each in columns)
        refusal = RefusedRecord(
            topic, partition, offset, "a CHECK constraint of the table rejects it"
        )
        if not self.tolerates:
            raise RefusedRecordError(refusal)
        return 0, (refusal,)

    def _written(
        self, table: "DeltaTable", topic: str, partitions: Iterable[int]
    ) -> dict[int, int]:
        ids = of_topic(self.output_ids, topic)
        wanted = {each: ids.get(each, "") for each in partitions}
        return written_offsets(table, self.connector, topic, wanted)

    def _create(self, topic: str, changes: Changes) -> None:
        from deltalake import DeltaTable

        settings = self.settings
        self._check_creation(changes)
        DeltaTable.create(
            settings.uri_of(topic),
            schema=changes.rows.schema,
            mode="ignore",  # another task may create it concurrently
            partition_by=list(settings.partition_by),
            storage_options=dict(settings.storage_options),
        )

    def _check_creation(self, changes: Changes) -> None:
        if not self.settings.creates:
            raise TableError("the table does not exist: create it, or set auto.create")
        names = changes.rows.schema.names
        missing = [each for each in self.settings.partition_by if each not in names]
        if missing:
            raise TableError(f"records have no field {missing[0]!r} (partition.by)")

    def _commit(self, table: "DeltaTable", topic: str, changes: Changes) -> None:
        from deltalake import write_deltalake

        settings = self.settings
        rows = changes.rows
        ids = of_topic(self.output_ids, topic)
        properties = offsets_properties(self.connector, topic, changes.next_offsets, ids)
        if not settings.rows.keyed:
            write_deltalake(
                table,
                rows,
                mode="append",
                schema_mode="merge" if settings.evolves else None,
                commit_properties=properties,
            )
            return
        self._merge(table, rows, changes, properties)

    def _merge(
        self, table: "DeltaTable", rows: pa.Table, changes: Changes, properties: "CommitProperties"
    ) -> None:
        source = rows.append_column(_DELETED, pa.array([False] * rows.num_rows, pa.bool_()))
        if changes.deleted.num_rows:
            gone = changes.deleted.append_column(
                _DELETED, pa.array([True] * changes.deleted.num_rows, pa.bool_())
            )
            source = pa.concat_tables([source, gone], promote_options="permissive")
        values = {_quoted(name): f"s.{_quoted(name)}" for name in rows.column_names}
        merge = table.merge(
            source,
            predicate=" AND ".join(f"t.{_quoted(key)} = s.{_quoted(key)}" for key in changes.keys),
            source_alias="s",
            target_alias="t",
            merge_schema=self.settings.evolves,
            commit_properties=properties,
        )
        (
            merge.when_matched_delete(predicate=f"s.{_DELETED}")
            .when_matched_update(updates=values, predicate=f"NOT s.{_DELETED}")
            .when_not_matched_insert(updates=values, predicate=f"NOT s.{_DELETED}")
            .execute()
        )

    def _tidy(self, topic: str) -> None:
        """Compact small files periodically; a failure loses nothing."""
        from deltalake.exceptions import DeltaError

        settings = self.settings
        table = opened(settings, topic) if settings.compact_every else None
        if table is None or table.version() % settings.compact_every:
            return
        try:
            joined = table.optimize.compact()
            removed = table.vacuum(
                retention_hours=settings.retain_hours,
                dry_run=False,
                enforce_retention_duration=False,
            )
        except (DeltaError, OSError) as error:
            _log.warning("%s was not compacted: %s", settings.uri_of(topic), _store_text(error))
            return
        _log.info(
            "%s: compacted %d files to %d, removed %d old files",
            settings.uri_of(topic),
            *(joined["numFilesRemoved"], joined["numFilesAdded"], len(removed)),
        )


def _rows_of_keys(table: "DeltaTable | None", keys: pa.Table, names: Sequence[str]) -> pa.Table:
    """Rows of keys and maybe others, with these columns as far as the table has them."""
    if table is None:
        return keys.slice(0, 0)
    schema = pa.schema(table.schema().to_arrow())
    own = keys.cast(pa.schema([schema.field(name) for name in keys.column_names]))
    known = [name for name in names if name in schema.names]
    near = pc.scalar(True)
    for name in own.column_names:
        near &= pc.field(name).isin(own.column(name).unique())
    return table.to_pyarrow_dataset().to_table([*own.column_names, *known], filter=near)


def app_id(connector: str, topic: str, partition: int, output_id: str = "") -> str:
    """The application id of an output of a topic partition."""
    return named_with(f"drover:{connector}:{topic}:{partition}", output_id)


def offsets_properties(
    connector: str, topic: str, next_offsets: Mapping[int, int], output_ids: Mapping[int, str]
) -> "CommitProperties":
    """The properties of a commit with its offsets, and with the ids of outputs by partition."""
    from deltalake import CommitProperties, Transaction

    offsets = [
        Transaction(app_id(connector, topic, partition, output_ids.get(partition, "")), offset)
        for partition, offset in sorted(next_offsets.items())
    ]
    present = [
        Transaction(app_id(connector, topic, partition, _PRESENT), int(output_ids[partition], 16))
        for partition in sorted(next_offsets.keys() & output_ids.keys())
    ]
    return CommitProperties(
        custom_metadata={"drover.connector": connector, "drover.topic": topic},
        app_transactions=[*offsets, *present],
    )


def written_offsets(
    table: "DeltaTable", connector: str, topic: str, output_ids: Mapping[int, str]
) -> dict[int, int]:
    """The next offsets of the outputs of a topic's partitions that a connector has written."""
    found = {
        partition: table.transaction_version(app_id(connector, topic, partition, output_id))
        for partition, output_id in output_ids.items()
    }
    return {partition: offset for partition, offset in found.items() if offset is not None}


def present_outputs(
    table: "DeltaTable", connector: str, topic: str, partitions: Iterable[int]
) -> dict[int, str]:
    """The ids of the last outputs of a topic's partitions; empty for a first output."""
    found = {
        each: table.transaction_version(app_id(connector, topic, each, _PRESENT))
        for each in partitions
    }
    return {each: "" if number is None else f"{number:08x}" for each, number in found.items()}


def opened(settings: DeltaSettings, topic: str) -> "DeltaTable | None":
    """The current version of a topic's table; None if it does not exist."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        settings.check(topic)
        return DeltaTable(
            settings.uri_of(topic), storage_options=dict(settings.storage_options) or None
        )
    except TableNotFoundError:
        return None


def set_back(
    settings: DeltaSettings, connector: str, topic: str, offsets: Mapping[int, int]
) -> None:
    """Reset the written offsets of the last outputs of a topic's partitions."""
    table = opened(settings, topic)
    if table is None:
        return
    with translated_errors(settings.uri_of(topic)):
        present = present_outputs(table, connector, topic, offsets)
        ids = {partition: output_id for partition, output_id in present.items() if output_id}
        table.create_write_transaction(
            [],
            mode="append",
            schema=table.schema(),
            partition_by=table.metadata().partition_columns,
            commit_properties=offsets_properties(connector, topic, offsets, ids),
        )


@contextmanager
def translated_errors(uri: str) -> Iterator[None]:
    """Convert the library's errors to ``TableError``, or ``RetriableError`` if a retry may help."""
    if find_spec("deltalake") is None:
        raise TableError(EXTRA)
    try:
        yield
    except RefusedRecordError as error:
        raise RefusedRecordError(error.record.within(uri)) from error
    except TableError as error:
        raise type(error)(f"{uri}: {error}") from error
    except (RetriableError, ForbiddenPathError):
        raise
    except Exception as error:  # noqa: BLE001
        # the library raises some as plain Exception; they have parts of files and responses
        line = str(error).partition("\n")[0][:500]
        text = f"{uri}: {_store_text(error) if is_object_url(uri) else line}"
        if _REFUSED.search(text):
            text += ": check the credentials, and that they may read, write and list there"
            raise TableAccessError(text) from None
        if MISTRUSTED.search(str(error)):
            raise TableError(f"{uri}: the store's certificate is not trusted") from None
        if any(each in line for each in _PASSING) and not FINAL_STATUS.search(text):
            raise RetriableError(text) from None
        raise TableError(text) from None


def _store_text(error: Exception) -> str:
    """An error of a store in one line, without text that the store sent."""
    text = _COLOUR.sub("", str(error))  # a tree of causes, of which the last may be a response
    kind = _KIND.search(text)
    details = (each.search(text) for each in (_STATUS, _NO_RESPONSE, _INVALID))
    detail = next((f"{each[1]}: {each[2]}" for each in details if each is not None), None)
    found = [each for each in (kind and kind[0], detail) if each]
    return ": ".join(found) or type(error).__name__


def storable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column converted to a type of Delta Lake.

    Times of day become text, unsigned integers the next larger signed type.
    """
    wanted = stored_type(column.type, time=pa.string(), others={})
    found = column if wanted == column.type else column.cast(wanted)
    check_years(found, timestamps=False)  # other dates cannot be read from the table's log
    return found


def _fault(name: str, kind: pa.DataType) -> str | None:
    if "\0" in name:
        return "its name has a NUL character"
    return type_fault(kind) if name else "its name is empty"


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
