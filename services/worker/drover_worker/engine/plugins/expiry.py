"""Watches the expiry of values that config providers returned for a connector or task."""

import threading
from collections.abc import Callable

from drover.config.resolution import Resolution
from drover.connector.restart_settings import CONFIG_ACTION_RELOAD, NONE

#: A shorter lifetime does not restart connectors more often than this.
TTL_MIN_MS = 1_000


def watch_expiry(*resolutions: Resolution, expired: Callable[[], object]) -> Callable[[], None]:
    """Call ``expired``, on another thread, when the first of the resolved configs expires.


    Does nothing for a connector with ``config.action.reload=none``.

    Returns:
        A function that cancels the watch; idempotent.
    """
    ttls_ms = [each.ttl_ms for each in resolutions if each.ttl_ms is not None]
    if not ttls_ms or resolutions[0].config.get(CONFIG_ACTION_RELOAD) == NONE:
        return lambda: None
    timer = threading.Timer(max(min(ttls_ms), TTL_MIN_MS) / 1000, expired)
    timer.daemon = True
    timer.name = "config-ttl"
    timer.start()
    return timer.cancel
