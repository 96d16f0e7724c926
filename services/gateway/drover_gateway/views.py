"""Statuses and lists from memory, for callers who read them often.

A caller's second read within ``OPENS_WITHIN_S`` opens a *view*: two streams of a worker with that
caller's credential. So it has the connectors that this caller may see, and ends when the worker
ends a stream, for example because the token was revoked. JSON texts are kept until the connector
changes. Kafka Connect answers from memory too: from its copy of the status topic.

A view is only used while it is complete. After a change that the caller made here it is not used
for ``AFTER_CHANGE_S``, so that callers read their own changes.

The console reads a caller's view too. It opens it at once, and follows its changes.
"""

import asyncio
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import Generic, Protocol, TypeVar

import structlog

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client import ConnectClient
from drover.errors import (
    DeadlineExceededError,
    DroverError,
    Reason,
    ResourceExhaustedError,
    UnavailableError,
)
from drover.metrics import table
from drover.metrics.metric import Sample
from drover_gateway.identity.credentials import Caller
from drover_gateway.workers import Workers

#: A second read within this time opens a view.
OPENS_WITHIN_S = 30.0
#: A view without reads for this time is closed.
CLOSES_AFTER_S = 60.0
AFTER_CHANGE_S = 2.0
#: The maximum number of views, and of connectors in one. Others are answered by calls.
VIEWS_MAX = 500
CONNECTORS_MAX = 20_000
_CHECK_EVERY_S = 5.0
#: How long a page waits for a view.
_SYNCED_WITHIN_S = 10.0
#: The same while an earlier view can be shown.
_SYNCED_AGAIN_WITHIN_S = 2.0
#: How long the last state is shown at most while no worker answers.
LAST_STATE_MAX_S = 3_600.0
#: How long a caller with too many connectors gets no view.
_TOO_MANY_S = 600.0

_log = structlog.get_logger("drover.gateway")


class Change(Protocol):
    """A message of a watch stream."""

    @property
    def removed(self) -> bool:
        """The connector was removed."""

    @property
    def synced(self) -> bool:
        """All current items have been sent."""


ItemT = TypeVar("ItemT", pb.ConnectorStatus, pb.Connector)
ChangeT = TypeVar("ChangeT", bound=Change)


class Feed(Generic[ItemT]):
    """The items of one stream by the name of their connector, with their JSON texts."""

    def __init__(self, encode: Callable[[ItemT], bytes]) -> None:
        self._encode: Callable[[ItemT], bytes] = encode
        self._items: dict[str, ItemT] = {}
        self._texts: dict[str, bytes] = {}
        self.synced = False

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def item(self, name: str) -> ItemT | None:
        """An item; None if there is none."""
        return self._items.get(name)

    def put(self, item: ItemT) -> None:
        """Add or replace an item."""
        self._items[item.name] = item
        self._texts.pop(item.name, None)

    def remove(self, name: str) -> None:
        """Remove an item, if there is one."""
        self._items.pop(name, None)
        self._texts.pop(name, None)

    def text(self, name: str) -> bytes | None:
        """An item as JSON; None if there is none."""
        text = self._texts.get(name)
        if text is None:
            item = self._items.get(name)
            if item is None:
                return None
            text = self._texts[name] = self._encode(item)
        return text


class View:
    """The connectors that one caller may see, with their statuses.

    Args:
        client: Sends the caller's credential.
        encode_status: A status as the body of ``GET /connectors/NAME/status``.
        encode_connector: A connector as the body of ``GET /connectors/NAME``.
    """

    def __init__(
        self,
        client: ConnectClient,
        encode_status: Callable[[pb.ConnectorStatus], bytes],
        encode_connector: Callable[[pb.Connector], bytes],
    ) -> None:
        self._client = client
        self._statuses = Feed(encode_status)
        self._connectors = Feed(encode_connector)
        self._names: tuple[str, ...] | None = None
        self._lists: dict[tuple[bool, bool], bytes] = {}
        self._id = secrets.token_hex(4)
        self._change_count = 0
        #: The number of the last change of each connector, in the order of these numbers.
        self._changed: OrderedDict[str, int] = OrderedDict()
        self._next_change = asyncio.Event()
        self._is_settled = asyncio.Event()
        self._end_error: DroverError | None = None
        self.is_too_large = False

    @property
    def client(self) -> ConnectClient:
        """Calls the workers with the credential of the view's caller."""
        return self._client

    @property
    def synced(self) -> bool:
        """Whether it is complete."""
        return self._statuses.synced and self._connectors.synced

    def names(self) -> tuple[str, ...]:
        """The names of all connectors, sorted."""
        if self._names is None:
            self._names = tuple(sorted(each for each in self._connectors if each in self._statuses))
        return self._names

    def status_message(self, name: str) -> pb.ConnectorStatus | None:
        """The status of a connector; None if it has none."""
        return self._statuses.item(name)

    def connector(self, name: str) -> pb.Connector | None:
        """A connector; None if there is none."""
        return self._connectors.item(name)

    @property
    def version(self) -> str:
        """Identifies what the view has now, for ``changed_since``."""
        return f"{self._id}.{self._change_count}"

    @property
    def has_ended(self) -> bool:
        """Whether the view is no longer filled."""
        return self._end_error is not None

    def changed_since(self, version: str) -> list[str] | None:
        """The connectors that changed after a version; None if it is not a version of this view."""
        view_id, _, number = version.partition(".")
        if view_id != self._id or not (number.isascii() and number.isdecimal()):
            return None
        since = int(number[:20])
        names = takewhile(lambda each: self._changed[each] > since, reversed(self._changed))
        return list(names)

    async def wait_changed(self, version: str, timeout_s: float) -> None:
        """Wait until there is a later version, the view has ended, or the time is over."""
        if version == self.version and not self.has_ended:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._next_change.wait()

    async def wait_synced(self, timeout_s: float) -> None:
        """Wait until the view is complete.

        Raises:
            DroverError: The view ended before, for this reason.
            UnavailableError: SERVICE_UNREACHABLE: it is not complete within ``timeout_s``.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._is_settled.wait()
        if self._end_error is not None:
            raise self._end_error
        if not self.synced:
            raise UnavailableError(
                Reason.SERVICE_UNREACHABLE,
                f"the worker did not send all connectors within {timeout_s:g} s",
            )

    def end(self, error: DroverError) -> None:
        """The view is no longer filled, for this reason."""
        self._end_error = error
        self._is_settled.set()
        self._next_change.set()

    def _note_change(self, name: str) -> None:
        self._change_count += 1
        self._changed[name] = self._change_count
        self._changed.move_to_end(name)
        self._next_change.set()
        self._next_change = asyncio.Event()

    def status(self, name: str) -> bytes | None:
        """The status of a connector as JSON; None if it has none."""
        return self._statuses.text(name)

    def info(self, name: str) -> bytes | None:
        """A connector as JSON; None if there is none."""
        return self._connectors.text(name)

    def expanded(self, *, with_status: bool, with_info: bool) -> bytes:
        """All connectors by name as a JSON object: each with its ``info`` and its ``status``."""
        text = self._lists.get((with_status, with_info))
        if text is None:
            text = b"{" + b",".join(self._entries(with_status, with_info)) + b"}"
            self._lists[with_status, with_info] = text
        return text

    async def follow(self) -> None:
        """Fill the view until a stream ends or it has too many connectors.

        Raises:
            DroverError: The worker's reason for the end of a stream.
        """
        filling = [
            asyncio.create_task(
                self._fill(self._statuses, self._client.watch_statuses(), lambda c: c.status)
            ),
            asyncio.create_task(
                self._fill(self._connectors, self._client.watch_connectors(), lambda c: c.connector)
            ),
        ]
        try:
            done, _ = await asyncio.wait(filling, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await task
        finally:
            for task in filling:
                task.cancel()
            await asyncio.gather(*filling, return_exceptions=True)

    async def _fill(
        self,
        feed: Feed[ItemT],
        messages: AsyncGenerator[ChangeT, None],
        item_of: Callable[[ChangeT], ItemT],
    ) -> None:
        async with aclosing(messages) as changes:
            async for change in changes:
                item = item_of(change)
                if item.name:
                    if change.removed:
                        feed.remove(item.name)
                        self._names = None
                    else:
                        if item.name not in feed:
                            self._names = None
                        feed.put(item)
                    self._lists.clear()
                    self._note_change(item.name)
                feed.synced = feed.synced or change.synced
                if self.synced:
                    self._is_settled.set()
                if len(feed) > CONNECTORS_MAX:
                    self.is_too_large = True
                    return

    def _entries(self, with_status: bool, with_info: bool) -> Iterator[bytes]:
        for name in self.names():
            shown = []
            if with_info:
                shown.append(b'"info":' + (self.info(name) or b"null"))
            if with_status:
                shown.append(b'"status":' + (self.status(name) or b"null"))
            quoted = json.dumps(name, ensure_ascii=False).encode("utf-8", "replace")
            yield quoted + b":{" + b",".join(shown) + b"}"


class _Open:
    """An open view, with the task that fills it and the time of its last read."""

    def __init__(self, view: View, task: "asyncio.Task[None]") -> None:
        self.view = view
        self.task = task
        self.read_s = _now_s()


@dataclass(slots=True)
class LastState:
    """A view whose streams have ended, and its last content.

    Attributes:
        view: The view.
        end_ms: When its stream ended, in ms since 1970.
        error: Why there is no newer state.
        ended_s: When its stream ended, in seconds of the loop's clock.
        read_s: When it was read last, likewise.
    """

    view: View
    end_ms: int
    error: DroverError
    ended_s: float
    read_s: float


class Views:
    """The views of all callers.

    Args:
        workers: The workers.
        encode_status: As in ``View``.
        encode_connector: As in ``View``.
    """

    def __init__(
        self,
        workers: Workers,
        encode_status: Callable[[pb.ConnectorStatus], bytes],
        encode_connector: Callable[[pb.Connector], bytes],
    ) -> None:
        self._workers = workers
        self._encode_status = encode_status
        self._encode_connector = encode_connector
        self._open: dict[str, _Open] = {}
        self._last: dict[str, LastState] = {}
        self._first_reads: OrderedDict[str, float] = OrderedDict()
        self._bypassed_until_s: dict[str, float] = {}
        self._read_count = 0

    def find(self, caller: Caller) -> View | None:
        """The caller's view, for a read; None while the read needs a call."""
        if caller.token not in self._open:
            if self._may_open(caller):
                self._begin(caller)
            return None
        return self.present(caller)

    def present(self, caller: Caller) -> View | None:
        """As ``find``, but it opens no view."""
        found = self._open.get(caller.token)
        if found is None:
            return None
        found.read_s = _now_s()
        if not found.view.synced or self._is_bypassed(caller):
            return None
        self._read_count += 1
        return found.view

    async def opened(self, caller: Caller) -> View:
        """The caller's view, complete; opens it if there is none. Counts as a read.

        Raises:
            DroverError: A worker's reason why there is no view.
            ResourceExhaustedError: QUEUE_FULL: there are too many views, or too many connectors.
            UnavailableError: SERVICE_UNREACHABLE: no worker sends the connectors.
        """
        found = self._open.get(caller.token)
        if found is None:
            if len(self._open) >= VIEWS_MAX:
                raise ResourceExhaustedError(
                    Reason.QUEUE_FULL, f"{VIEWS_MAX} callers use the gateway already: retry later"
                )
            self._begin(caller)
            found = self._open[caller.token]
        found.read_s = _now_s()
        was_open = caller.token in self._last
        await found.view.wait_synced(_SYNCED_AGAIN_WITHIN_S if was_open else _SYNCED_WITHIN_S)
        self._last.pop(caller.token, None)
        return found.view

    async def opened_or_last(self, caller: Caller) -> tuple[View, LastState | None]:
        """As ``opened``; if no worker answers, the caller's last view and its state.

        There is such a view while it is read, and at most for ``LAST_STATE_MAX_S``. After a
        worker has refused the caller, there is none.
        """
        try:
            return await self.opened(caller), None
        except (UnavailableError, DeadlineExceededError) as error:
            last = self._last.get(caller.token)
            if last is None:
                raise
            last.read_s = _now_s()
            last.error = error
            return last.view, last

    def note_change(self, caller: Caller) -> None:
        """The caller changed something: the view may be older for a moment."""
        until_s = _now_s() + AFTER_CHANGE_S
        self._bypassed_until_s[caller.token] = max(
            until_s, self._bypassed_until_s.get(caller.token, 0.0)
        )

    async def run(self) -> None:
        """Close views that are not read, until cancelled; then close all."""
        try:
            while True:
                await asyncio.sleep(_CHECK_EVERY_S)
                self.close_unread(_now_s())
        finally:
            tasks = [each.task for each in self._open.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def close_unread(self, now_s: float) -> None:
        """Close the views whose last read is ``CLOSES_AFTER_S`` before ``now_s``."""
        for each in self._open.values():
            if now_s - each.read_s >= CLOSES_AFTER_S:
                each.task.cancel()
        for token, last in [*self._last.items()]:
            is_unread = now_s - last.read_s >= CLOSES_AFTER_S
            if is_unread or now_s - last.ended_s >= LAST_STATE_MAX_S:
                del self._last[token]
        for token in [t for t, until_s in self._bypassed_until_s.items() if until_s <= now_s]:
            del self._bypassed_until_s[token]
        for token in [t for t, s in self._first_reads.items() if now_s - s > OPENS_WITHIN_S]:
            del self._first_reads[token]

    def samples(self) -> list[Sample]:
        """The metrics of the views."""
        return [
            table.GATEWAY_VIEWS.at(len(self._open)),
            table.GATEWAY_VIEW_READS.at(self._read_count),
        ]

    def _is_bypassed(self, caller: Caller) -> bool:
        until_s = self._bypassed_until_s.get(caller.token)
        return until_s is not None and until_s > _now_s()

    def _may_open(self, caller: Caller) -> bool:
        """Whether this is the second read of a caller who may have a view."""
        if self._is_bypassed(caller):
            return False
        now_s = _now_s()
        first_s = self._first_reads.pop(caller.token, None)
        if first_s is not None and now_s - first_s <= OPENS_WITHIN_S:
            return len(self._open) < VIEWS_MAX
        self._first_reads[caller.token] = now_s
        if len(self._first_reads) > 2 * VIEWS_MAX:
            self._first_reads.popitem(last=False)
        return False

    def _begin(self, caller: Caller) -> None:
        client = self._workers.client(caller)
        view = View(client, self._encode_status, self._encode_connector)
        task = asyncio.create_task(self._follow(caller, view), name="view")
        self._open[caller.token] = _Open(view, task)

    async def _follow(self, caller: Caller, view: View) -> None:
        end: DroverError = UnavailableError(
            Reason.SERVICE_UNREACHABLE, "the worker ended its stream of statuses"
        )
        try:
            await view.follow()
            if view.is_too_large:
                self._bypassed_until_s[caller.token] = _now_s() + _TOO_MANY_S
                _log.warning("a view was closed: too many connectors", most=CONNECTORS_MAX)
                end = ResourceExhaustedError(
                    Reason.QUEUE_FULL,
                    f"more than {CONNECTORS_MAX:,} connectors: use `drover connector list`",
                )
            self._note_end(caller, view, end)
        except asyncio.CancelledError:
            pass  # it was not read, or the process stops
        except DroverError as error:
            _log.debug("a view was ended", why=error.message)
            end = error
            self._note_end(caller, view, error)
        finally:
            del self._open[caller.token]
            view.end(end)

    def _note_end(self, caller: Caller, view: View, error: DroverError) -> None:
        """Keep the last state for the time in which no worker answers."""
        if not isinstance(error, UnavailableError | DeadlineExceededError):
            self._last.pop(caller.token, None)
        elif view.synced:
            now_s = _now_s()
            end_ms = int(time.time() * 1000)
            self._last[caller.token] = LastState(view, end_ms, error, now_s, now_s)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
