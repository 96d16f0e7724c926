"""The topics of connectors, which each need a call of a worker; kept for a while."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from weakref import WeakKeyDictionary

from drover.client import ConnectClient
from drover.errors import DroverError
from drover_gateway.views import View

#: Topics are asked for again after this time.
KEPT_S = 60.0
#: How long a page waits for topics; the next one has the rest.
_WAIT_S = 2.0
_AT_A_TIME = 8


class Topics:
    """The topics of the connectors of each view."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[View, dict[str, tuple[float, Sequence[str]]]] = (
            WeakKeyDictionary()
        )

    async def of(self, view: View, client: ConnectClient) -> Mapping[str, Sequence[str]]:
        """The topics by connector; a connector whose topics are not known is left out."""
        known = self._known.setdefault(view, {})
        now_s = asyncio.get_running_loop().time()
        names = set(view.names())
        for gone in known.keys() - names:
            del known[gone]
        old = [each for each in names if each not in known or now_s - known[each][0] > KEPT_S]
        queue = iter(sorted(old, key=lambda each: known[each][0] if each in known else 0.0))

        async def ask() -> None:
            for name in queue:
                with suppress(DroverError):
                    known[name] = (now_s, tuple(await client.get_connector_topics(name)))

        with suppress(TimeoutError):
            async with asyncio.timeout(_WAIT_S):
                await asyncio.gather(*(ask() for _ in range(_AT_A_TIME)))
        return {name: found for name, (_, found) in known.items()}
