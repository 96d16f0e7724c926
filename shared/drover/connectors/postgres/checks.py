"""Checks a config on the server before the connector starts."""

import re
from collections.abc import Mapping
from typing import Any

from drover.connector import Violation
from drover.connectors.postgres.server import EXTRA, first_line
from drover.connectors.postgres.settings import (
    COLUMN_EXCLUDE,
    COLUMN_INCLUDE,
    DATABASE,
    FLAT,
    HOST,
    LAYOUT,
    PASSWORD,
    PORT,
    SKIPPED,
    TOMBSTONES,
    USER,
    address_of,
)
from drover.policy.egress import AllowedHosts


def contradictions(config: Mapping[str, Any]) -> list[Violation]:
    """Contradicting settings."""
    faults = []
    if config.get(COLUMN_INCLUDE) and config.get(COLUMN_EXCLUDE):
        text = f"must not be set together with {COLUMN_INCLUDE}"
        faults.append(Violation(COLUMN_EXCLUDE, text))
    if config.get(LAYOUT) == FLAT:
        skipped = config.get(SKIPPED, ("t", "d"))
        if "t" not in skipped:
            text = f"must contain t with {LAYOUT}={FLAT}, which cannot express TRUNCATE"
            faults.append(Violation(SKIPPED, text))
        if not config.get(TOMBSTONES, True) and "d" not in skipped:
            text = (
                f"must be true with {LAYOUT}={FLAT}, in which a deletion is a tombstone; to omit "
                f"deletions, add d to {SKIPPED}"
            )
            faults.append(Violation(TOMBSTONES, text))
    if HOST in config and PORT in config:
        fault = AllowedHosts.of_worker().fault(config[HOST], config[PORT])
        if fault is not None:
            faults.append(Violation(HOST, fault))
    return faults


def server_faults(config: Mapping[str, Any]) -> list[Violation]:
    """Faults that the server reports, and the checks that it does not permit."""
    try:
        import psycopg
    except ImportError:
        return [Violation("connector.class", EXTRA)]
    from drover.connectors.postgres.server_checks import ServerChecks

    address = address_of(config)
    try:
        with address.connected() as connection:
            return list(ServerChecks(connection, address, config).faults())
    except psycopg.Error as error:
        text = first_line(error, address)
        return [Violation(_blamed(text), f"{address}: {text}")]


#: The setting at fault when the server refuses a session.
_BLAMED = (
    (r"pg_hba\.conf", HOST),
    (r"password", PASSWORD),
    (r'database "|for database', DATABASE),
    (r'role "|for role|user "', USER),
)


def _blamed(text: str) -> str:
    refusal = text.partition("FATAL:")[2] or text
    return next((setting for pattern, setting in _BLAMED if re.search(pattern, refusal)), HOST)
