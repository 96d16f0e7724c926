"""PostgresCdcSource: captures every change of tables from the server's log."""

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
from drover.connectors.postgres.checks import contradictions, server_faults
from drover.connectors.postgres.preview_task import PostgresCdcPreviewTask
from drover.connectors.postgres.task import POSITION, POSITION_KEYS, PostgresCdcSourceTask


class PostgresCdcSource(SourceConnector):
    """Captures every change of PostgreSQL tables from the log: inserts, updates, deletes, in order.

    A table is first read completely, in parallel, then followed: each change is delivered after the
    row versions it applies to, and no change that these rows already include. Settings and records
    have the names of Debezium's PostgreSQL connector.

    One task reads one replication slot. The slot is acknowledged up to the committed position, so
    that the server retains uncommitted changes: every change is delivered exactly once.

    The position is the source partition ``{"server": topic.prefix}``; each table that was read
    completely is another one, ``{"server": …, "table": "schema.name"}``. A table is read again when
    its partition is removed.
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
    # a slot has one reader, and reading moves the connector's position
    poll_has_effects: ClassVar[bool] = True
    task_class = PostgresCdcSourceTask
    preview_task_class = PostgresCdcPreviewTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See the documentation of each key."""
        return settings.DEFINITION

    @classmethod
    def validate(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        """The settings must not contradict each other."""
        return contradictions(config)

    @classmethod
    def check_systems(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        """The server must permit the stream."""
        return server_faults(config)

    @classmethod
    def alter_offsets(cls, config: Mapping[str, Any], changes: Sequence[OffsetChange]) -> bool:
        """The slot is not changed; tables are read again when their offsets are removed."""
        del config
        for place, offset in changes:
            if offset is None:
                continue
            keys = place.keys()
            if keys not in ({POSITION}, {POSITION, "table"}):
                raise ValueError(
                    f'the partition {place} must be {{"server": prefix}}, and may '
                    'have "table": "schema.name"'
                )
            if "table" in place:
                raise ValueError(f"{place} can only be removed, which reads the table again")
            lsn = offset.get("lsn")
            if not isinstance(lsn, int) or lsn < 0 or offset.keys() - POSITION_KEYS:
                raise ValueError(f'the offset of {place} must be {{"lsn": number}}')
        return True

    def start(self, context: ConnectorContext, config: Mapping[str, Any]) -> None:
        """The connector object does no work: the task checks for new tables."""

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """One task, because a slot has one reader."""
        del max_tasks
        return [{}]
