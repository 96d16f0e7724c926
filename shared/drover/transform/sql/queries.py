"""Runs the queries of the transform Sql, in this process or in one without other work."""

from enum import StrEnum

import pyarrow as pa

from drover.transform.sql.apart import QueryProcessEndedError, QueryProcesses, query_processes
from drover.transform.sql.engine import GROWTH_MAX_BYTES, connection, memory_limit, time_limit
from drover.transform.sql.statement import RELATION

#: The result of a query, and DuckDB's types of its columns.
Result = tuple[pa.Table, dict[str, str]]

MEMORY_FAULT = f"the query needs more than {GROWTH_MAX_BYTES // 1024**2} MiB of memory"


class FaultKind(StrEnum):
    """What a query's failure depends on."""

    TIME = "time"
    #: The statement does not fit the columns, so it fails for every row.
    COLUMNS = "columns"
    #: The rows.
    ROWS = "rows"


class QueryError(Exception):
    """A query failed."""

    def __init__(self, kind: FaultKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def run_query(text: str, relation: pa.Table, timeout_ms: int) -> Result:
    """Run a checked statement on ``relation``.

    Raises:
        QueryError: See there.
    """
    processes = query_processes()
    if processes is None:
        return run_here(text, relation, timeout_ms)
    return _run_apart(processes, text, relation, timeout_ms)


def run_here(text: str, relation: pa.Table, timeout_ms: float) -> Result:
    """As ``run_query``, in this process, with a limit of its memory during the call."""
    import duckdb

    engine = connection()
    try:
        engine.register(RELATION, relation)
        with memory_limit(), time_limit(engine, timeout_ms / 1000):
            result = engine.sql(text)
            kinds = dict(zip(result.columns, map(str, result.types), strict=True))
            return result.to_arrow_table(), kinds
    except duckdb.InterruptException:
        raise QueryError(FaultKind.TIME, _late(timeout_ms, "timeout.ms")) from None
    except (
        duckdb.BinderException,
        duckdb.CatalogException,
        duckdb.NotImplementedException,
    ) as error:
        raise QueryError(FaultKind.COLUMNS, _message(error)) from None
    except (duckdb.OutOfMemoryException, MemoryError):
        raise QueryError(FaultKind.ROWS, MEMORY_FAULT) from None
    except duckdb.Error as error:
        raise QueryError(FaultKind.ROWS, _message(error)) from None
    finally:
        engine.unregister(RELATION)


def _run_apart(processes: QueryProcesses, text: str, relation: pa.Table, timeout_ms: int) -> Result:
    limit_ms = min(timeout_ms, processes.limit_ms)
    rule = "timeout.ms" if limit_ms == timeout_ms else processes.limit_rule
    try:
        answer, result = processes.ask({"query": text}, relation, limit_ms=limit_ms)
    except QueryProcessEndedError as error:
        if error.is_late:
            raise QueryError(FaultKind.TIME, _late(limit_ms, rule)) from None
        raise QueryError(FaultKind.ROWS, f"{MEMORY_FAULT}, or it crashed") from None
    if result is None:
        kind = FaultKind(answer["kind"])
        late = _late(limit_ms, rule)
        raise QueryError(kind, late if kind is FaultKind.TIME else answer["error"])
    return result, answer["kinds"]


def _late(limit_ms: float, rule: str) -> str:
    return f"the query did not end within {limit_ms:.0f} ms ({rule})"


def _message(error: Exception) -> str:
    """DuckDB's message without the statement that follows it."""
    lines = str(error).partition("\n\nLINE ")[0].splitlines()
    return " ".join(each.strip() for each in lines if each.strip())
