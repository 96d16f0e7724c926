"""Previews of a test kit's connector, which write nothing."""

from threading import Event
from types import SimpleNamespace
from typing import Any, cast

from drover.api.common.v1.preview_pb2 import Preview, PreviewedRow
from drover.connector.catalogue import PluginRegistry
from drover.connector.settings import parse_config
from drover.dataplane.embedded import EmbeddedPlane
from drover.testing import SinkKit, SourceKit
from drover_worker.engine.preview import preview
from drover_worker.engine.settings import EngineLimits
from drover_worker.engine.tasks.task_runner import TaskTools


def preview_tools(spark: Any, plane: Any) -> TaskTools:
    """What a preview uses of an engine."""
    return cast("TaskTools", SimpleNamespace(spark=spark, plane=plane, limits=EngineLimits()))


def previewed(kit: SinkKit | SourceKit, *, rows: int = 1_000) -> Preview:
    """The preview of the first rows of a kit's topics or source."""
    parse_config(kit.connector_class, kit.config).require_valid(kit.config["name"])
    plugins = PluginRegistry(
        find_other=lambda _name, _version: kit.connector_class, prefers_other=lambda _name: True
    )
    return preview(
        plugins,
        preview_tools(kit.spark, EmbeddedPlane(kit._store)),
        kit.config,
        rows,
        dead_letters=False,
        wait=Event().wait,
    )


def raw_records(kit: SourceKit, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """The keys and values of a topic with one partition, as they are stored."""
    plane = EmbeddedPlane(kit._store)
    plan = plane.plan_read({(topic, 0): 0}, max_records=1_000, max_bytes=1_000_000)
    found: list[tuple[bytes | None, bytes | None]] = []
    for batch in plane.read_here(plan):
        columns = (batch.column(name).to_pylist() for name in ("key", "value"))
        found += zip(*columns, strict=True)
    return found


def rejected(found: Preview) -> dict[str, str]:
    """The errors of the rows that do not arrive, by their place."""
    return {row.place: row.error for row in found.rows if row.failed_step}


def targets(found: Preview) -> dict[str, str]:
    """Where the other rows would be written."""
    return {row.place: row.target for row in found.rows if _arrives(row)}


def _arrives(row: PreviewedRow) -> bool:
    return not (row.failed_step or row.dropped_by)
