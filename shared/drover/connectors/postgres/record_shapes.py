"""The form of records that a config asks for."""

import time
from collections.abc import Mapping
from typing import Any

from drover.connectors.postgres.change_rows import RecordShape
from drover.connectors.postgres.settings import (
    COLUMN_EXCLUDE,
    COLUMN_INCLUDE,
    DATABASE,
    DECIMALS,
    HSTORES,
    INTERVALS,
    KEY_COLUMNS,
    LAYOUT,
    PLACEHOLDER,
    SKIPPED,
    TIMES,
    TOMBSTONES,
    TOPIC_PREFIX,
    VERSION,
)
from drover.connectors.postgres.values import DatabaseTypes


def record_shape(config: Mapping[str, Any], types: DatabaseTypes) -> RecordShape:
    """The form of records that are made now.

    Args:
        config: The parsed config.
        types: The types of the database.
    """
    return RecordShape(
        version=VERSION,
        prefix=config[TOPIC_PREFIX],
        database=config[DATABASE],
        now_ms=time.time_ns() // 1_000_000,
        layout=config[LAYOUT],
        decimals=config[DECIMALS],
        placeholder=config[PLACEHOLDER],
        tombstones=config[TOMBSTONES],
        skipped=frozenset(config[SKIPPED]),
        types=types,
        times=config[TIMES],
        intervals=config[INTERVALS],
        hstores=config[HSTORES],
        columns_include=tuple(config[COLUMN_INCLUDE] or ()),
        columns_exclude=tuple(config[COLUMN_EXCLUDE] or ()),
        nullable_keys=config[KEY_COLUMNS] is not None,
    )
