"""The test kit: for connector authors and for Drover's own tests."""

from drover.log.memory import MemoryLog, SharedMemoryLog
from drover.testing.assertions import latest_values, raises_reason, read_all
from drover.testing.clock import ManualAlarm, ManualClock

__all__ = [
    "ManualAlarm",
    "ManualClock",
    "MemoryLog",
    "SharedMemoryLog",
    "latest_values",
    "raises_reason",
    "read_all",
]
