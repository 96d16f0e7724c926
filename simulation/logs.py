"""The log of production code that runs in the simulation: only defects matter."""

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog

from simulation.world import BrokenRuleError


@contextmanager
def quiet_logs() -> Iterator[None]:
    """Drop every line in the block; an exception that was logged is a broken rule."""
    before = structlog.get_config()
    structlog.configure(
        processors=[_only_defects],
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        cache_logger_on_first_use=False,
    )
    try:
        yield
    finally:
        structlog.configure(**before)


def _only_defects(logger: object, method: str, event: Any) -> Any:
    found = event.get("exc_info")
    if found:
        where = (
            "".join(traceback.format_exception(found)[-4:])
            if isinstance(found, BaseException)
            else ""
        )
        where = where or traceback.format_exc(limit=-4)
        raise BrokenRuleError("nothing crashes", f"{event.get('event')}\n{where}")
    raise structlog.DropEvent
