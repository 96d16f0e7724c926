"""What the config form proposes: classes of converters, transforms and predicates, and topics.

With JavaScript the form asks after each change, so the answers for a caller are kept for a while.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence

from drover.client import ConnectClient
from drover.errors import DroverError
from drover_gateway.console.config_fields import TOPIC
from drover_gateway.identity.credentials import Caller

#: The kinds of ``RecordPlugin``.
_KINDS = ("converter", "transforms", "predicates")
#: Proposals are read again after this time.
_KEPT_S = 30.0
_CALLERS_MAX = 50
#: A form with all topics of a large cluster would be slow.
TOPICS_MAX = 500
_TIMEOUT_S = 5.0

#: Names by kind: the kinds of ``RecordPlugin``, and ``TOPIC``.
Proposals = Mapping[str, Sequence[str]]


class KnownProposals:
    """The proposals for each caller."""

    def __init__(self) -> None:
        self._known: dict[Caller, tuple[float, Proposals]] = {}

    async def of(self, caller: Caller, client: ConnectClient) -> Proposals:
        """The proposals for a caller; what cannot be read is left out."""
        now_s = time.monotonic()
        at_s, found = self._known.get(caller, (-_KEPT_S, {}))
        if now_s - at_s < _KEPT_S:
            return found
        classes, topics = await asyncio.gather(_classes(client), _topics(client))
        found = {**classes, TOPIC: topics}
        self._known.pop(caller, None)
        while len(self._known) >= _CALLERS_MAX:
            del self._known[next(iter(self._known))]
        self._known[caller] = now_s, found
        return found


async def _classes(client: ConnectClient) -> Proposals:
    """The shortest names of the classes, by kind."""
    found: dict[str, list[str]] = {each: [] for each in _KINDS}
    try:
        listed = await client.list_plugins(kinds=_KINDS, timeout_s=_TIMEOUT_S)
    except DroverError:
        return found
    for each in listed.record_plugins:
        names = [each.class_name, *each.aliases]
        found[each.kind].append(min(names, key=lambda name: ("." in name, len(name))))
    return {kind: sorted(set(names)) for kind, names in found.items()}


async def _topics(client: ConnectClient) -> Sequence[str]:
    """The first topics; none without the role for the whole cluster."""
    try:
        found = await client.list_topics(timeout_s=_TIMEOUT_S)
    except DroverError:
        return ()
    return [each.name for each in found[:TOPICS_MAX]]
