"""Forwards librdkafka's log lines to Drover's log, without repetitions."""

import logging
import re
import time
from collections import OrderedDict

import structlog

_logger = structlog.get_logger(__name__)

MAX_REMEMBERED_LINES = 256
AGAIN_AFTER_S = 600.0
_CHANGING = re.compile(r"\d+|0x[0-9a-f]+")


class _RepeatedLineFilter(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self._logged_at: OrderedDict[str, float] = OrderedDict()

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        kind, now_s = _CHANGING.sub("#", line), time.monotonic()
        logged_s = self._logged_at.pop(kind, None)
        is_due = logged_s is None or now_s - logged_s >= AGAIN_AFTER_S
        self._logged_at[kind] = now_s if logged_s is None or is_due else logged_s
        if len(self._logged_at) > MAX_REMEMBERED_LINES:
            self._logged_at.popitem(last=False)
        if is_due:
            # at most WARNING, because relevant errors are raised too; fencing is expected if
            # several processes write under one transactional id
            most = logging.INFO if "fenced" in line else logging.WARNING
            level = min(record.levelno, most)
            _logger.log(level, "kafka client", line=line)


def repeated_line_filter() -> logging.Logger:
    """A logger for the Kafka clients of a process."""
    logger = logging.Logger("drover kafka", logging.INFO)
    logger.addHandler(_RepeatedLineFilter())
    return logger
