"""The test kit, for connector authors (``kit``, ``plugin``) and for Drover's own tests."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from drover.log.memory import MemoryLog, SharedMemoryLog
from drover.testing.assertions import latest_values, raises_reason, read_all
from drover.testing.clock import ManualAlarm, ManualClock

if TYPE_CHECKING:
    from drover.testing.kit import KillPoint, SinkKit, SourceKit
    from drover.testing.running import TaskFailedError, TaskFencedError
    from drover.testing.spark import local_spark
    from drover.testing.topics import Record

#: Names that need Spark, with their modules; imported on first access.
_OF_CONNECTORS = {
    "KillPoint": "kit",
    "Record": "topics",
    "SinkKit": "kit",
    "SourceKit": "kit",
    "TaskFailedError": "running",
    "TaskFencedError": "running",
    "local_spark": "spark",
}

__all__ = [
    "KillPoint",
    "ManualAlarm",
    "ManualClock",
    "MemoryLog",
    "Record",
    "SharedMemoryLog",
    "SinkKit",
    "SourceKit",
    "TaskFailedError",
    "TaskFencedError",
    "latest_values",
    "local_spark",
    "raises_reason",
    "read_all",
]


def __getattr__(name: str) -> Any:
    module = _OF_CONNECTORS.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)
