"""Streams with the updates of open pages (server-sent events).

A page names the version of the view that it shows, and gets what has changed since. After a lost
stream it does the same, so that nothing is missed.
"""

import asyncio
import json
import math
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol, runtime_checkable

from drover.errors import DroverError, UnauthenticatedError
from drover_gateway.console.html import Html
from drover_gateway.console.http import wait_for_disconnect
from drover_gateway.console.sessions import SESSION_S, Session
from drover_gateway.server import Receive
from drover_gateway.views import View

#: Changes within this time are one message: at most four messages per second.
GATHER_S = 0.25
#: A message without content, so that a lost connection is noticed.
PING_S = 15.0
_RETRIES_S = (1.0, 2.0, 4.0, 8.0, 15.0)


@dataclass(frozen=True, slots=True)
class StreamBounds:
    """The maximum numbers of streams: of a session, of a caller, and in all."""

    per_session: int = 4
    per_caller: int = 64
    total: int = 1_000


@dataclass(slots=True)
class Place:
    """A place for a stream.

    Attributes:
        ended: Done when the stream has to end. A future: an event needs a task that waits for it,
            and takes 2 KiB more.
        is_replaced: Whether it ends because a newer one of its session takes the place.
    """

    ended: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    is_replaced: bool = False

    def end(self) -> None:
        """Make the stream end."""
        if not self.ended.done():
            self.ended.set_result(None)


class Streams:
    """The open streams; all end when ``stopping`` is set."""

    def __init__(self, stopping: asyncio.Event, bounds: StreamBounds | None = None) -> None:
        self._stopping = stopping
        self._stop: asyncio.Task[None] | None = None
        self._bounds = bounds or StreamBounds()
        self._callers: Counter[str] = Counter()
        self._sessions: dict[str, dict[int, Place]] = {}
        self._numbers = count()
        self._taken = 0

    @contextmanager
    def place(self, session_id: str, caller: str) -> Iterator[Place | None]:
        """A place for a stream; None if there is none left."""
        bounds = self._bounds
        if self._taken >= bounds.total or self._callers[caller] >= bounds.per_caller:
            yield None
            return
        if self._stop is None:
            # one task for all streams, since each task takes memory
            self._stop = asyncio.create_task(self._end_all())
        number, place = next(self._numbers), Place()
        own = self._sessions.setdefault(session_id, {})
        own[number] = place
        self._callers[caller] += 1
        self._taken += 1
        if len(own) > bounds.per_session:
            oldest = own.pop(next(iter(own)))
            oldest.is_replaced = True
            oldest.end()
        try:
            yield place
        finally:
            self._taken -= 1
            self._callers[caller] -= 1
            if not self._callers[caller]:
                del self._callers[caller]
            own.pop(number, None)
            if not own and self._sessions.get(session_id) is own:
                del self._sessions[session_id]

    def end_session(self, session_id: str) -> None:
        """End the streams of a session."""
        for place in self._sessions.get(session_id, {}).values():
            place.end()

    async def _end_all(self) -> None:
        await self._stopping.wait()
        for own in self._sessions.values():
            for place in own.values():
                place.end()


class LivePage(Protocol):
    """What is live on a page."""

    async def start(self, view: View) -> None:
        """The page shows the view as it is now, or will load it again."""

    async def update(self, view: View, changed: list[str]) -> Html:
        """Elements that replace the elements of the page with the same ids."""


@runtime_checkable
class RefreshedPage(LivePage, Protocol):
    """A page with more than its view has: it is updated after this time also without a change."""

    @property
    def every_s(self) -> float:
        """The time between two updates at most."""


def message(event: str, data: str, *, version: str = "") -> bytes:
    """An event of a stream."""
    head = f"event: {event}\nid: {version}" if version else f"event: {event}"
    # a part after the end of a line must not be read as a field
    lines = data.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\ndata: ")
    return f"{head}\ndata: {lines}\n\n".encode("utf-8", "replace")


def failed(error: DroverError, *, retry_s: float) -> bytes:
    """The event with the reason why there are no updates at present."""
    what = {"message": error.message, "retry_s": retry_s}
    return message("failed", json.dumps(what))


async def updates(
    open_view: Callable[[], Awaitable[View]], page: LivePage, version: str
) -> AsyncGenerator[bytes, None]:
    """The events for a page that shows ``version``, without an end unless the caller is refused."""
    failures = 0
    every_s = page.every_s if isinstance(page, RefreshedPage) else None
    while True:
        try:
            view = await open_view()
            await page.start(view)
            if view.changed_since(version) is None:
                # another view, such as one of another copy of the gateway: all may have changed
                version = view.version
                yield message("reload", "", version=version)
                yield message("swap", await page.update(view, []), version=version)
            else:
                yield message("live", "", version=version)
            failures = 0
            while not view.has_ended:
                await view.wait_changed(version, every_s or PING_S)
                await open_view_again(open_view)
                if view.version == version and every_s is None:
                    yield message("ping", "")
                    continue
                await asyncio.sleep(GATHER_S)
                names = view.changed_since(version) or []
                # what changes during the update is part of the next one
                present = view.version
                yield message("swap", await page.update(view, names), version=present)
                version = present
        except UnauthenticatedError as error:
            yield message("refused", error.message)
            return
        except DroverError as error:
            retry_s = _RETRIES_S[min(failures, len(_RETRIES_S) - 1)]
            failures += 1
            yield failed(error, retry_s=retry_s)
            await asyncio.sleep(retry_s)
            continue
        await asyncio.sleep(GATHER_S)


async def one_event(event: str, data: str) -> AsyncGenerator[bytes, None]:
    """A stream with one event."""
    yield message(event, data)


async def open_view_again(open_view: Callable[[], Awaitable[View]]) -> None:
    """Count a read, so that the view stays open; a failure is found by the caller's next round."""
    with suppress(DroverError):
        await open_view()


async def until_end(
    events: AsyncGenerator[bytes, None],
    place: Place,
    receive: Receive,
    session: Session,
    renew_s: float = math.inf,
) -> AsyncIterator[bytes]:
    """The events, until the client is gone, the session ends, or the stream loses its place.

    From ``renew_s`` on, in seconds since 1970, the token needs to be renewed: the page opens the
    stream again, because only a new response can set a cookie.
    """
    end_s = min(session.begin_s + SESSION_S, renew_s)
    left_s = max(0.0, end_s - time.time())
    session_end = asyncio.get_running_loop().call_later(left_s, place.end)
    gone = asyncio.create_task(wait_for_disconnect(receive))
    wait = _Wait(place.ended, gone)
    try:
        while not wait.is_over:
            event = await wait.next_of(events)
            if event is not None:
                yield event
                del event  # not kept while the stream waits
            elif not wait.is_over:
                return
        if place.is_replaced:
            yield message("replaced", "")
        elif time.time() >= renew_s:
            yield message("renew", "")
    finally:
        session_end.cancel()
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        await events.aclose()


class _Wait:
    """Waits for events until one of ``ends`` is done, by a cancellation as in ``asyncio.timeout``:
    a task for each event takes memory in each stream.
    """

    __slots__ = ("_ends", "_task")

    def __init__(self, *ends: asyncio.Future[None]) -> None:
        self._ends = ends
        #: What waits for an event.
        self._task: asyncio.Task[Any] | None = None
        for each in ends:
            each.add_done_callback(self._wake)

    @property
    def is_over(self) -> bool:
        """Whether one of the ends is done."""
        return any(each.done() for each in self._ends)

    async def next_of(self, events: AsyncGenerator[bytes, None]) -> bytes | None:
        """The next event; None if there is none, or if an end was done before it."""
        self._task = task = asyncio.current_task()
        assert task is not None
        try:
            return await anext(events, None)
        except asyncio.CancelledError:
            if self._task is None and not task.uncancel():
                return None
            raise
        finally:
            self._task = None

    def _wake(self, _: asyncio.Future[None]) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
