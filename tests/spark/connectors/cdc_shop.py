"""Helpers for tests of change capture."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg

from drover.connectors.files.files_sink import FilesSink
from tests.spark.pipeline import Pipeline, RunningSource
from tests.support.postgres import Postgres
from tests.support.waiting import wait_until


def dropped(postgres: Postgres, slot: str) -> bool:
    """End a slot's session and drop the slot; returns whether it is gone."""
    where = f"FROM pg_replication_slots WHERE slot_name = '{slot}'"
    # each time: a session that is just starting acquires the slot later
    postgres.execute(f"SELECT pg_terminate_backend(active_pid) {where} AND active")
    with suppress(psycopg.errors.ObjectInUse):
        postgres.execute(f"SELECT pg_drop_replication_slot(slot_name) {where} AND NOT active")
    return not postgres.rows(f"SELECT {where}")


def raw_of(postgres: Postgres, **changes: str) -> dict[str, str]:
    """A config with changes; an underscore in a name replaces a dot."""
    changed = {key.replace("_", "."): value for key, value in changes.items()}
    slot = {"slot.name": f"slot_{postgres.database}"}
    return {"name": "cdc", **postgres.cdc_settings, "topic.prefix": "db", **slot, **changed}


def run_until(source: RunningSource, count: int) -> None:
    """Move batches until ``count`` records are moved and no batch is left."""
    moved = 0

    def there() -> bool:
        nonlocal moved
        moved += source.run_until_idle()
        return moved >= count

    wait_until(there, describe=lambda: f"{moved} of {count} records")
    assert moved == count


def records_of(pipeline: Pipeline, topic: str, directory: Path) -> list[dict[str, Any]]:
    """A topic's values, as JSON; without tombstones."""
    raw = {"name": f"out-{topic}", "topics": topic, "path": str(directory), "format": "json"}
    pipeline.start_sink(FilesSink, raw).run_until_idle()
    files = sorted(directory.rglob("*.json"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def stored_in(pipeline: Pipeline, topic: str, column: str) -> list[Any]:
    """A topic's keys or values, as JSON with their schemas."""
    plan = pipeline.store.plan_read({(topic, 0): 0}, max_records=1_000)
    rows = pipeline.plane.rows(pipeline.spark, plan).run(iter)
    return [json.loads(row[column] or b"null") for row in rows]
