"""The topics of tables: their names in the characters of topics, each for one table."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from drover.connector import TOPIC_NAME
from drover.connectors.jdbc.source_settings import (
    QUALIFY_TOPICS,
    QUERY,
    TABLE_BLACKLIST,
    TOPIC_PREFIX,
    TableName,
)


def topic_of(config: Mapping[str, Any], table: TableName) -> str:
    """The topic of a table's rows, or of a query's; characters that topics cannot have are replaced
    by ``_``, as in change capture.
    """
    prefix = str(config[TOPIC_PREFIX])
    if config.get(QUERY):
        return prefix
    schema, name = table
    own = f"{schema}.{name}" if schema and config.get(QUALIFY_TOPICS) else name
    return re.sub(r"[^A-Za-z0-9._-]", "_", prefix + own)


def topic_faults(config: Mapping[str, Any], tables: Sequence[TableName]) -> Iterator[str]:
    """Tables that share a topic, and topics that cannot exist, with the remedy."""
    by_topic: dict[str, list[TableName]] = {}
    for table in tables:
        by_topic.setdefault(topic_of(config, table), []).append(table)
    for topic, found in by_topic.items():
        names = ", ".join(repr(_shown(each)) for each in found)
        if len(found) > 1:
            apart = len({name for _, name in found}) < len(found) and not config.get(QUALIFY_TOPICS)
            remedy = f"set {QUALIFY_TOPICS}=true, or " if apart else ""
            yield (
                f"the tables {names} would share the topic {topic!r}: {remedy}read all but one of "
                f"them with another connector, and name them in {TABLE_BLACKLIST} here"
            )
        for fault in TOPIC_NAME.faults(topic):
            yield f"the topic {topic!r} of table {names} {fault}"


def _shown(table: TableName) -> str:
    schema, name = table
    return f"{schema}.{name}" if schema else name
