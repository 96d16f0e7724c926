"""Serves queries of the transform Sql; the process runs nothing else."""

import signal
import socket
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from drover.transform.sql.apart import KILL_AFTER_S, receive, send
from drover.transform.sql.queries import QueryError, run_here
from drover.transform.sql.statement import StatementError, parse_here


def serve_queries(connection: socket.socket) -> None:
    """Answer requests until the other end is closed. A request that exceeds its time ends the
    process, even inside one call of DuckDB.
    """
    while True:
        try:
            request, relation = receive(connection)
        except (EOFError, OSError):
            return
        signal.setitimer(signal.ITIMER_REAL, request["limit_s"] + KILL_AFTER_S)
        answer, result = _answer(request, relation)
        signal.setitimer(signal.ITIMER_REAL, 0)
        send(connection, answer, result)


def _answer(
    request: Mapping[str, Any], relation: pa.Table | None
) -> tuple[dict[str, Any], pa.Table | None]:
    if relation is None:
        try:
            return {"statement": asdict(parse_here(request["statement"]))}, None
        except StatementError as error:
            return {"error": str(error)}, None
    try:
        result, kinds = run_here(request["query"], relation, request["limit_s"] * 1000)
    except QueryError as error:
        return {"kind": error.kind, "error": str(error)}, None
    return {"kinds": kinds}, result
