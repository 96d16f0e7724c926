"""The topics of connectors, which are asked for in one call and kept for a while."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from drover.client import ConnectClient
from drover.errors import DroverError
from drover_gateway.views import View

#: Topics are asked for again after this time.
KEPT_S = 30.0
#: Connectors without topics, such as new ones, are asked for after this time.
_NEW_AFTER_S = 2.0
#: How long a page waits for topics; the next one has them.
_WAIT_S = 2.0
_TIMEOUT_S = 30.0


@dataclass(slots=True)
class _Known:
    """The topics of a view.

    Attributes:
        topics: The topics by connector.
        asked_s: When they were asked for, in seconds of the loop's clock; None before.
        asking: The call in progress.
    """

    topics: Mapping[str, Sequence[str]] = field(default_factory=dict)
    asked_s: float | None = None
    asking: "asyncio.Task[None] | None" = None

    def is_old(self, names: Sequence[str], now_s: float) -> bool:
        """Whether to ask for the topics now."""
        if self.asked_s is None:
            return True
        age_s = now_s - self.asked_s
        return age_s > KEPT_S or (
            age_s > _NEW_AFTER_S and not all(self.topics.get(name) for name in names)
        )


class Topics:
    """The topics of the connectors of each view."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[View, _Known] = WeakKeyDictionary()

    async def of(self, view: View, client: ConnectClient) -> Mapping[str, Sequence[str]]:
        """The topics by connector; a connector whose topics are not known is left out."""
        known = self._known.setdefault(view, _Known())
        names = view.names()
        if known.asking is None and known.is_old(names, asyncio.get_running_loop().time()):
            known.asking = asyncio.create_task(_ask(known, client))
        if known.asking is not None:
            await asyncio.wait({known.asking}, timeout=_WAIT_S)
        return {name: known.topics[name] for name in names if name in known.topics}


async def _ask(known: _Known, client: ConnectClient) -> None:
    now_s = asyncio.get_running_loop().time()
    try:
        with suppress(DroverError):
            known.topics = await client.list_connector_topics(timeout_s=_TIMEOUT_S)
            known.asked_s = now_s
    finally:
        known.asking = None
