"""The test kit: for connector authors and for Drover's own tests."""

from drover.log.memory import MemoryLog
from drover.testing.clock import ManualClock

__all__ = ["ManualClock", "MemoryLog"]
