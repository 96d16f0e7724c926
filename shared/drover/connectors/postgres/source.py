"""PostgresCdcSource: every change of tables, from the server's own log."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from drover.connector import (
    REPLAYED,
    ConfigDef,
    ConnectorContext,
    OffsetChange,
    OffsetForm,
    SourceConnector,
    Violation,
)
from drover.connectors.aliases import POSTGRES_CDC
from drover.connectors.postgres import settings
from drover.connectors.postgres.checks import faults_of
from drover.connectors.postgres.task import POSITION, POSITION_KEYS, PostgresCdcSourceTask


class PostgresCdcSource(SourceConnector):
    """Reads every change of PostgreSQL's tables from its log: inserts, updates, deletes, in order.

    A table is read whole at first, in parallel, then followed: each change is delivered after the
    rows it was made on, and none that the rows show already. Settings and records have the names of
    Debezium's PostgreSQL connector.

    One task reads one replication slot. The slot is acknowledged behind what is committed, so that
    the server keeps what is not: every change is delivered exactly once.

    The position is the partition ``{"server": topic.prefix}``; each table that was read whole is
    one more, ``{"server": …, "table": "schema.name"}``. A table whose partition is removed is read
    whole again.
    """

    version = settings.VERSION
    aliases = ("PostgresCdcSource", "io.debezium.connector.postgresql.PostgresConnector")
    other_settings = POSTGRES_CDC
    guarantees = REPLAYED
    offset_forms = (
        OffsetForm({POSITION: str}, optional=POSITION_KEYS),
        OffsetForm({POSITION: str, "table": str}),
    )
    structured: ClassVar[bool] = True
    # a slot has one reader, and its position is the connector's
    poll_has_effects: ClassVar[bool] = True
    task_class = PostgresCdcSourceTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See the documentation of each key."""
        return settings.DEFINITION

    @classmethod
    def validate(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        """Settings that are not here, and what the server lacks."""
        return faults_of(config)

    @classmethod
    def alter_offsets(cls, config: Mapping[str, Any], changes: Sequence[OffsetChange]) -> bool:
        """The slot stays where it is; the tables are read again when their offsets are removed."""
        del config
        for place, offset in changes:
            if offset is None:
                continue
            keys = place.keys()
            if keys not in ({POSITION}, {POSITION, "table"}):
                raise ValueError(
                    f'the partition {place} has to be {{"server": prefix}}, and may '
                    'have "table": "schema.name"'
                )
            if "table" in place:
                raise ValueError(f"{place} can only be removed: then the table is read again")
            lsn = offset.get("lsn")
            if not isinstance(lsn, int) or lsn < 0 or offset.keys() - POSITION_KEYS:
                raise ValueError(f'the offset of {place} has to be {{"lsn": number}}')
        return True

    def start(self, context: ConnectorContext, config: Mapping[str, Any]) -> None:
        """Nothing to watch: the task looks for new tables."""

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """One: a slot has one reader."""
        del max_tasks
        return [{}]
