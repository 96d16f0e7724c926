"""Sql: runs one SELECT over a batch."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from drover.config.config_def import ConfigDef, ConfigKey, ConfigType
from drover.config.validators import Check, InRange
from drover.record import RecordError
from drover.record.batch import TIMESTAMP, TOPIC, with_column
from drover.record.errors import PassError, RowsError
from drover.record.schema import arrow_field, schema_of
from drover.transform.key_or_value import text_key
from drover.transform.sql.engine import missing_modules
from drover.transform.sql.queries import FaultKind, QueryError, Result, run_query
from drover.transform.sql.statement import ROW, StatementError, parse_statement
from drover.transform.transform import Transform

_TIMESTAMP_TYPE = pa.timestamp("ms", tz="UTC")
#: The most failed rows of a batch that are run one by one to get their errors.
_PROBED_ROWS_MAX = 1_000
_WIDE = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}


class Sql(Transform):
    """Filters records and computes values, keys, topics and timestamps with a SELECT."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See Transform."""
        return ConfigDef(
            text_key(
                "query",
                validator=Check(_fault),
                documentation="A SELECT FROM batch that returns value, and may return key, topic "
                "and timestamp; other columns stay unchanged.",
            ),
            ConfigKey(
                "timeout.ms",
                ConfigType.INT,
                default=30_000,
                validator=InRange(1),
                documentation="How long a batch may take; after that the task fails.",
            ),
        )

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self._statement = parse_statement(config["query"])

    @property
    def computes_topics(self) -> bool:
        """Whether the query returns topics."""
        return TOPIC in self._statement.computed

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """See Transform."""
        statement = self._statement
        if statement.text is None or not batch.num_rows:
            return [batch]
        names = [*statement.used, ROW]
        numbers = pa.array(np.arange(batch.num_rows))
        columns = [*(batch.column(each) for each in statement.used), numbers]
        relation = pa.table(columns, names=names)
        try:
            result, kinds = self._run(statement.text, relation)
        except RowsError:
            raise
        except RecordError as error:
            raise self._of_rows(relation) or error from None
        rows = np.asarray(result.column(ROW))
        if not len(rows):
            return []
        whole = len(rows) == batch.num_rows
        made = batch if whole else batch.take(pa.array(rows))
        for name in statement.computed:
            column = _plain(result.column(name))
            try:
                field, column = _record_column(name, column, kinds[name])
            except RecordError as error:
                raise RowsError(dict.fromkeys(rows.tolist(), error)) from None
            if name == TOPIC and column.null_count:
                missing = RecordError("the query returned null as topic")
                raise RowsError(dict.fromkeys(rows[np.asarray(column.is_null())].tolist(), missing))
            made = with_column(made, field, column)
        return [made]

    def _of_rows(self, relation: pa.Table) -> RowsError | None:
        """The rows that fail and their errors; None if they cannot be determined.

        The probe finds them in one query, because bisecting the batch would take many.
        """
        if relation.num_rows == 1:
            return None
        statement = self._statement
        assert statement.text is not None
        bad: dict[int, RecordError] = {}
        try:
            tried, _ = self._run(statement.probe, relation)
        except RecordError:
            return None
        failed = [np.asarray(each.is_null()) for each in tried.columns]
        for row in np.flatnonzero(np.logical_or.reduce(failed)).tolist()[:_PROBED_ROWS_MAX]:
            try:
                self._run(statement.text, relation.slice(row, 1))
            except RecordError as error:
                bad[row] = error
        return RowsError(bad) if bad else None

    def _run(self, text: str, relation: pa.Table) -> Result:
        try:
            return run_query(text, relation, self.config["timeout.ms"])
        except QueryError as error:
            message = str(error)
            match error.kind:
                case FaultKind.TIME:
                    raise PassError(message) from None
                case FaultKind.COLUMNS:
                    fault = RecordError(message)
                    raise RowsError(dict.fromkeys(range(relation.num_rows), fault)) from None
                case FaultKind.ROWS:
                    raise RecordError(message) from None


def _record_column(name: str, column: Any, kind: str) -> tuple[pa.Field, Any]:
    if name == TOPIC:
        if not pa.types.is_string(column.type):
            raise RecordError("the query must return a topic's name as topic")
        return pa.field(TOPIC, pa.string()), column
    if name == TIMESTAMP:
        if pa.types.is_integer(column.type):
            column = column.cast(pa.int64()).cast(pa.timestamp("ms"))
        if not pa.types.is_timestamp(column.type):
            raise RecordError("the query must return a timestamp, or milliseconds, as timestamp")
        zoned = pa.timestamp("ms", tz=column.type.tz)
        return pa.field(TIMESTAMP, _TIMESTAMP_TYPE), column.cast(zoned, safe=False).cast(
            _TIMESTAMP_TYPE
        )
    if kind == "JSON":
        return arrow_field(name, None), column
    required = pa.types.is_struct(column.type) and not column.null_count
    field = pa.field(name, column.type, nullable=not required)
    schema_of(field)  # raises for types that no schema has
    return field, column


def _plain(column: pa.ChunkedArray) -> Any:
    joined = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
    kind = _WIDE.get(joined.type)
    return joined if kind is None else joined.cast(kind)


def _fault(text: str) -> str | None:
    missing = missing_modules()
    if missing is not None:
        return missing
    try:
        parse_statement(text)
    except StatementError as error:
        return str(error)
    return None
