"""Writes records into tables of Delta Lake, in one commit of each with how far it came."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from drover.connector import RetriableError
from drover.connectors.files.storage.object_store import FINAL_STATUS
from drover.connectors.lakehouse.rows import (
    EXTRA,
    Changes,
    RowSettings,
    TableError,
    aligned,
    by_topic,
    changes_of,
    stored_type,
    without_unknown,
)

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

#: A commit that another writer was before is tried again so often.
_ATTEMPTS = 10
_DELETED = "__drover_deleted"
_WRITTEN = pa.schema([("rows", pa.int64())])
_PASSING = ("Generic S3 error", "Generic GCS error", "Generic MicrosoftAzure error", "timed out")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DeltaSettings:
    """What a sink's config says of its tables; may be pickled, shows no secret.

    ``uri`` may have ``${topic}``. Every ``compact_every`` versions, 0 for never, small files are
    joined, and those that no version of the last ``retain_hours`` needs are removed.
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
        """The table of a topic."""
        return self.uri.replace("${topic}", topic)


@dataclass(frozen=True)
class DeltaWriter:
    """Writes a batch; may be pickled, and gets all of its records in one call.

    Each commit has, as the application transaction of each topic partition, the offset behind its
    records. So records that come again are left out, and of two writers of one partition one is
    refused, looks again and leaves out what the other wrote.
    """

    connector: str
    settings: DeltaSettings

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yields one row, with how many were written; they are durable then."""
        written = 0
        for (topic, origin), own in by_topic(each for each in batches if each.num_rows).items():
            with telling(self.settings.uri_of(topic)):
                written += self._write(topic, origin, own)
        yield pa.RecordBatch.from_pylist([{"rows": written}], schema=_WRITTEN)

    def _write(self, topic: str, origin: str, batches: list[pa.RecordBatch]) -> int:
        from deltalake.exceptions import CommitFailedError

        partitions = {each for batch in batches for each in batch.column("partition").to_pylist()}
        for _ in range(_ATTEMPTS):
            table = opened(self.settings, topic)
            found = {} if table is None else self._written(table, origin, partitions)
            changes = changes_of(batches, found, self.settings.rows, storable)
            if changes is None or not (changes.rows.num_rows or changes.deleted.num_rows):
                return 0
            if table is None:
                self._create(topic, changes)
                continue  # others may have written to it by now
            try:
                self._commit(table, origin, changes)
            except CommitFailedError as error:
                _log.info("%s: another writer was first: %s", self.settings.uri_of(topic), error)
                continue
            self._tidy(topic)
            return int(changes.rows.num_rows + changes.deleted.num_rows)
        raise RetriableError(
            f"{self.settings.uri_of(topic)}: other writers were first {_ATTEMPTS} times"
        )

    def _written(
        self, table: "DeltaTable", topic: str, partitions: Iterable[int]
    ) -> dict[int, int]:
        found = {
            each: table.transaction_version(app_id(self.connector, topic, each))
            for each in partitions
        }
        return {partition: offset for partition, offset in found.items() if offset is not None}

    def _create(self, topic: str, changes: Changes) -> None:
        from deltalake import DeltaTable

        settings = self.settings
        if not settings.creates:
            raise TableError("there is no table: create it, or set auto.create")
        schema = without_unknown(changes.rows).schema
        missing = [each for each in settings.partition_by if each not in schema.names]
        if missing:
            raise TableError(f"records have no field {missing[0]!r} (partition.by)")
        DeltaTable.create(
            settings.uri_of(topic),
            schema=schema,
            mode="ignore",  # another task may be creating it
            partition_by=list(settings.partition_by),
            storage_options=dict(settings.storage_options),
        )

    def _commit(self, table: "DeltaTable", topic: str, changes: Changes) -> None:
        from deltalake import write_deltalake

        settings = self.settings
        schema = pa.schema(table.schema().to_arrow())
        rows = aligned(
            changes.rows,
            schema,
            evolves=settings.evolves,
            evolve_setting="auto.evolve",
        )
        properties = offsets_properties(self.connector, topic, changes.next_offsets)
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
        """Join small files now and then; nothing is lost when that fails."""
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
            _log.warning("%s was not compacted: %s", settings.uri_of(topic), error)
            return
        _log.info(
            "%s: %d files were joined to %d, %d old ones removed",
            settings.uri_of(topic),
            *(joined["numFilesRemoved"], joined["numFilesAdded"], len(removed)),
        )


def app_id(connector: str, topic: str, partition: int) -> str:
    """The application transaction of a topic partition."""
    return f"drover:{connector}:{topic}:{partition}"


def offsets_properties(
    connector: str, topic: str, next_offsets: Mapping[int, int]
) -> "CommitProperties":
    """What a commit has, so that it is known how far it came."""
    from deltalake import CommitProperties, Transaction

    return CommitProperties(
        custom_metadata={"drover.connector": connector, "drover.topic": topic},
        app_transactions=[
            Transaction(app_id(connector, topic, partition), offset)
            for partition, offset in sorted(next_offsets.items())
        ],
    )


def opened(settings: DeltaSettings, topic: str) -> "DeltaTable | None":
    """A topic's table as it is now; None when there is none."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        return DeltaTable(
            settings.uri_of(topic), storage_options=dict(settings.storage_options) or None
        )
    except TableNotFoundError:
        return None


def set_back(
    settings: DeltaSettings, connector: str, topic: str, offsets: Mapping[int, int]
) -> None:
    """Say that the partitions of a topic were written up to these offsets only."""
    table = opened(settings, topic)
    if table is None:
        return
    with telling(settings.uri_of(topic)):
        table.create_write_transaction(
            [],
            mode="append",
            schema=table.schema(),
            partition_by=table.metadata().partition_columns,
            commit_properties=offsets_properties(connector, topic, offsets),
        )


@contextmanager
def telling(uri: str) -> Iterator[None]:
    """The library's errors as ``TableError``, or as ``RetriableError`` where waiting helps."""
    if find_spec("deltalake") is None:
        raise TableError(EXTRA)
    try:
        yield
    except TableError as error:
        raise TableError(f"{uri}: {error}") from error
    except RetriableError:
        raise
    except Exception as error:
        # the library has some that are nothing else
        text = f"{uri}: {str(error).partition(chr(10))[0][:500]}"
        if any(each in text for each in _PASSING) and not FINAL_STATUS.search(text):
            raise RetriableError(text) from error
        raise TableError(text) from error


def storable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column in a type that Delta Lake has.

    Times of day become texts, unsigned numbers the next larger ones.
    """
    wanted = stored_type(column.type, time=pa.string(), others={})
    return column if wanted == column.type else column.cast(wanted)


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
