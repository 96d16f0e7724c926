"""Follows the views for a watcher: the present state first, then what changes."""

from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover_worker.admin.reads import Reads
from drover_worker.admin.watch_hub import Changed
from drover_worker.core.config.view import ConfigView

SIGN_OF_LIFE_S = 10.0

WatchT = TypeVar("WatchT", pb.WatchStatusesResponse, pb.WatchConnectorsResponse)


async def follow(
    changed: Changed,
    wanted: Callable[[str], bool],
    view: ConfigView,
    reads: Reads,
    show: Callable[[str], WatchT],
) -> AsyncIterator[WatchT | None]:
    """What ``show`` makes of each connector, None for "synced" and signs of life.

    ``wanted`` says which connectors to follow.
    """
    shown: dict[str, bytes] = {}
    names = sorted(view.connectors)
    synced = False
    while True:
        await reads.know_plugins()
        for name in names:
            if not wanted(name):
                continue
            response = show(name)
            if response.removed and shown.pop(name, None) is None:
                continue  # gone before it was ever shown
            data = response.SerializeToString(deterministic=True)
            if response.removed or shown.get(name) != data:
                if not response.removed:
                    shown[name] = data
                yield response
        if not synced or not names:
            yield None
        synced = True
        taken = await changed.take(SIGN_OF_LIFE_S)
        # what is gone from a view that was read anew is only known from what was shown
        names = sorted({*shown, *view.connectors}) if taken is None else taken
