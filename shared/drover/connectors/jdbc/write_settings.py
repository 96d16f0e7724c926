"""The settings of a sink for its tables."""

import re
from dataclasses import dataclass

from drover.connectors.unavailable import PLACEHOLDER

INSERT, UPSERT, UPDATE = "insert", "upsert", "update"
NONE, KAFKA, RECORD_KEY, RECORD_VALUE = "none", "kafka", "record_key", "record_value"
#: The columns of pk.mode=kafka, with the names of Confluent's JDBC sink.
KAFKA_FIELDS = ("__connect_topic", "__connect_partition", "__connect_offset")
LOCK_TIMEOUT_MS = 60_000


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """How records become rows; ``lock_timeout_ms`` limits waits for locks.

    ``placeholder`` marks values that the source could not send.
    """

    table_format: str
    insert_mode: str
    pk_mode: str
    pk_fields: tuple[str, ...]
    deletes: bool
    creates: bool
    evolves: bool
    fields: tuple[str, ...] | None
    ledger: str | None
    lock_timeout_ms: int = LOCK_TIMEOUT_MS
    placeholder: str = PLACEHOLDER

    @property
    def keeps_unavailable(self) -> bool:
        """Whether columns without a value are left unchanged; otherwise rows are only added."""
        return self.insert_mode != INSERT and self.pk_mode in (RECORD_KEY, RECORD_VALUE)

    def table_of(self, topic: str) -> str:
        """The table for a topic, optionally with a schema before a dot."""
        return self.table_format.replace("${topic}", topic)


def split_name(name: str) -> tuple[str | None, str]:
    """The schema and the name of a table; parts in double quotes or backticks may have dots.

    Raises:
        ValueError: The quotes do not enclose whole parts.
    """
    if not _QUOTES.intersection(name):
        schema, dot, own = name.rpartition(".")
        return schema if dot else None, own
    parts = _QUOTED.fullmatch(name)
    if parts is None:
        raise ValueError('has quotes that do not enclose whole parts, as in "SCHEMA"."NAME"')
    schema, own = parts["schema"], parts["own"]
    return None if schema is None else _unquoted(schema), _unquoted(own)


_QUOTES = frozenset('"`')
_PART = r'(?:"(?:[^"]|"")*"|`(?:[^`]|``)*`|[^"`]*)'
_QUOTED = re.compile(rf"(?:(?P<schema>{_PART})\.)?(?P<own>{_PART})", re.DOTALL)


def _unquoted(part: str) -> str:
    mark = part[:1]
    return part[1:-1].replace(mark * 2, mark) if mark in _QUOTES else part
