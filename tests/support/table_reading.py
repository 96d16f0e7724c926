"""A JdbcSource task's reads of one table, without Spark."""

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from drover.connector.settings import parse_config
from drover.connectors.jdbc.catalogue import sources_of
from drover.connectors.jdbc.database import address_of, translated_errors
from drover.connectors.jdbc.reading import session
from drover.connectors.jdbc.source import JdbcSource
from drover.connectors.jdbc.table_plan import Plan, TablePlanner

if TYPE_CHECKING:
    from tests.databases.conftest import Database


class TableReader:
    """Reads a table, batch by batch; ``settings`` are the connector's.

    Raises:
        Exception: As a task's start does.
    """

    def __init__(
        self,
        database: "Database",
        mode: str,
        settings: Mapping[str, str] = MappingProxyType({}),
        *,
        table: str = "items",
        offset: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        raw = {
            "name": "c",
            "connector.class": "JdbcSource",
            **database.settings,
            "mode": mode,
            "topic.prefix": "x",
            "incrementing.column.name": "id",
            "timestamp.column.name": "changed",
            **settings,
        }
        # the task reports invalid settings, as when they become invalid later
        config = {
            **parse_config(JdbcSource, raw).values,
            "task.tables": json.dumps([[None, table]]),
        }
        self.address = address_of(config)
        with translated_errors(self.address, "looking"), self.address.connected() as connection:
            (source,) = sources_of(connection, config)
        self.planner = TablePlanner(self.address, source, mode, offset, gap_delay_ms=0)

    def plan(self, rows_max: int = 1_000_000, parallel: int = 3) -> Plan | None:
        """The next batch."""
        self.planner.batch_done()
        with translated_errors(self.address, "looking"), session(self.address) as connection:
            plan = self.planner.plan(connection, rows_max, parallel)
        if plan is not None:
            self.planner.advance(plan.offset)
        return plan

    def batches(self, rows_max: int = 1_000_000) -> Iterator[list[Any]]:
        """The ids of each batch, until no row is left."""
        while (plan := self.plan(rows_max)) is not None:
            yield ids_of(plan)
            if not plan.more:
                break
        self.planner.batch_done()

    def ids(self) -> list[Any]:
        """The ids of all current rows."""
        return [each for batch in self.batches() for each in batch]


def ids_of(plan: Plan) -> list[Any]:
    """The ids of a batch, in order."""
    return [row["id"] for row in rows_of(plan)]


def rows_of(plan: Plan) -> list[dict[str, Any]]:
    """A batch's rows, in order."""
    return [row for part in plan.parts for batch in part.read() for row in batch.to_pylist()]
