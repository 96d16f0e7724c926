"""Structured logs on stderr: one JSON object or one line of text per event.

It handles events of ``structlog.get_logger()`` and of the standard library. Values bound with
``log_context`` (connector, task, generation, request_id) are added to every event logged inside the
block, also across awaits.
"""

import logging
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Literal

import structlog

from drover.model.secrets import MASK, sounds_secret

LogFormat = Literal["json", "text"]
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]

#: Tokens that encode positions, not secrets.
_HARMLESS_KEYS = frozenset({"page_token", "next_page_token"})


def configure_logging(
    service: str, level: LogLevel = "INFO", log_format: LogFormat = "json"
) -> None:
    """Write all logs of this process to stderr, with ``service`` in each event.

    A second call replaces the configuration.
    """
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _AddService(service),
        mask_secrets,
    ]
    renderer: list[Any]
    if log_format == "json":
        renderer = [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(default=str),
        ]
    else:
        # the plain traceback: a rich one shows local variables, which may be secrets
        renderer = [
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            )
        ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    # these libraries log at INFO what an operator does not need
    for name in ("asyncio", "grpc", "py4j"):
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


def log_context(**values: str | int) -> AbstractContextManager[None]:
    """Bind values (connector, task, generation, request_id) to every event logged inside the block.

    Tasks and plugin calls that start inside the block inherit the values.
    """
    return structlog.contextvars.bound_contextvars(**values)


def current_request_id() -> str:
    """The request id of the current call; empty outside of a call."""
    return str(structlog.contextvars.get_contextvars().get("request_id", ""))


def mask_secrets(_logger: Any, _method: str, event: Any) -> Any:
    """Mask values with keys that sound secret, also in nested mappings."""
    return _masked(event, 0)


def _masked(values: Any, depth: int) -> Any:
    if not isinstance(values, Mapping) or depth > 4:
        return values
    return {
        key: MASK
        if isinstance(key, str) and key not in _HARMLESS_KEYS and sounds_secret(key)
        else _masked(value, depth + 1)
        for key, value in values.items()
    }


class _AddService:
    def __init__(self, service: str) -> None:
        self._service = service

    def __call__(self, _logger: Any, _method: str, event: Any) -> Any:
        event["service"] = self._service
        return event
