"""What librdkafka logs, in our log: each line once, however often it is repeated."""

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
        self._told_at: OrderedDict[str, float] = OrderedDict()

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        kind, now_s = _CHANGING.sub("#", line), time.monotonic()
        told_s = self._told_at.pop(kind, None)
        is_news = told_s is None or now_s - told_s >= AGAIN_AFTER_S
        self._told_at[kind] = now_s if told_s is None or is_news else told_s
        if len(self._told_at) > MAX_REMEMBERED_LINES:
            self._told_at.popitem(last=False)
        if is_news:
            # what matters is raised as an error as well, where it matters; and to be fenced is an
            # expected turn where several processes write under one transactional id
            most = logging.INFO if "fenced" in line else logging.WARNING
            level = min(record.levelno, most)
            _logger.log(level, "kafka client", line=line)


def repeated_line_filter() -> logging.Logger:
    """A logger for clients of Kafka; one for all of a process's."""
    logger = logging.Logger("drover kafka", logging.INFO)
    logger.addHandler(_RepeatedLineFilter())
    return logger
