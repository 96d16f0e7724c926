"""Follows the views for a watcher: the present state, then the changes."""

from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover_worker.admin.reads import Reads
from drover_worker.admin.watch_hub import Changed
from drover_worker.core.config.view import ConfigView

PROGRESS_INTERVAL_S = 10.0

WatchT = TypeVar("WatchT", pb.WatchStatusesResponse, pb.WatchConnectorsResponse)


async def follow(
    changed: Changed,
    is_watched: Callable[[str], bool],
    view: ConfigView,
    reads: Reads,
    show: Callable[[str], WatchT],
) -> AsyncIterator[WatchT | None]:
    """The messages of ``show`` for each changed connector; None for "synced" and progress marks.

    Only connectors for which ``is_watched`` is true are followed.
    """
    shown: dict[str, bytes] = {}
    names = sorted(view.connectors)
    synced = False
    while True:
        await reads.know_plugins()
        for name in names:
            if not is_watched(name):
                continue
            response = show(name)
            if response.removed and shown.pop(name, None) is None:
                continue  # removed before it was shown
            data = response.SerializeToString(deterministic=True)
            if response.removed or shown.get(name) != data:
                if not response.removed:
                    shown[name] = data
                yield response
        if not synced or not names:
            yield None
        synced = True
        changed_names = await changed.take(PROGRESS_INTERVAL_S)
        # after a reload of the view, connectors that were shown before may have been removed
        names = sorted({*shown, *view.connectors}) if changed_names is None else changed_names
