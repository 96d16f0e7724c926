"""Periodic heartbeat records that show that the log is read, as in Debezium's connectors."""

import time
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from drover.connector.records import KEY, TOPIC, VALUE, with_identity
from drover.connectors.postgres.remedies import statement_fault
from drover.connectors.postgres.server import (
    ServerAddress,
    ServerError,
    first_line,
    translated_errors,
)
from drover.connectors.postgres.settings import (
    HEARTBEAT_MS,
    HEARTBEAT_PREFIX,
    HEARTBEAT_QUERY,
    TOPIC_PREFIX,
)

_NAMESPACE = "io.debezium.connector.common"


class Heartbeats:
    """Tracks when the next heartbeat is due, and creates it."""

    def __init__(self, config: Mapping[str, Any], address: ServerAddress) -> None:
        self._config = config
        self._address = address
        self._interval_s = config[HEARTBEAT_MS] / 1_000
        self._last_s = time.monotonic()

    def beat(self) -> pa.Table | None:
        """The record of a heartbeat, if one is due; runs ``heartbeat.action.query`` first.

        Raises:
            RetriableError: The server is unavailable.
            ServerError: The server refuses the query.
        """
        now_s = time.monotonic()
        if not self._interval_s or now_s - self._last_s < self._interval_s:
            return None
        if self._config[HEARTBEAT_QUERY]:
            self._run(self._config[HEARTBEAT_QUERY])
        self._last_s = now_s
        return self._record()

    def _run(self, statement: str) -> None:
        import psycopg

        what, address = f"running {HEARTBEAT_QUERY}", self._address
        with translated_errors(address, what), address.connected() as connection:
            try:
                connection.execute(statement.encode())
            except psycopg.errors.InsufficientPrivilege as error:
                told = statement_fault(
                    error.sqlstate, first_line(error), statement, self._address.user
                )
                raise ServerError(f"{what} at {address}: {told}") from None

    def _record(self) -> pa.Table:
        server = self._config[TOPIC_PREFIX]
        key = pa.field(KEY, pa.struct([pa.field("serverName", pa.string(), nullable=False)]), False)
        value = pa.field(VALUE, pa.struct([pa.field("ts_ms", pa.int64(), nullable=False)]))
        return pa.Table.from_arrays(
            [
                pa.array([f"{self._config[HEARTBEAT_PREFIX]}.{server}"]),
                pa.array([{"serverName": server}], key.type),
                pa.array([{"ts_ms": time.time_ns() // 1_000_000}], value.type),
            ],
            schema=pa.schema(
                [
                    pa.field(TOPIC, pa.string()),
                    with_identity(key, name=f"{_NAMESPACE}.ServerNameKey", version=1),
                    with_identity(value, name=f"{_NAMESPACE}.Heartbeat", version=1),
                ]
            ),
        )
