"""Reads the records of a page within limits of number, size and time, and follows new ones."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from drover.api.common.v1.topics_pb2 import TopicRecord
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client import ConnectClient
from drover.errors import DroverError, UnauthenticatedError
from drover_gateway.console.html import Html
from drover_gateway.console.live import PING_S, message
from drover_gateway.console.record_windows import Positions, RecordWindow

#: Limits of a page.
READ_S = 8.0
_BYTES_MAX = 4 * 1024 * 1024
#: Limits of the stream of new records: records of a message, and the time between two messages.
FOLLOWED_ROWS = 50
FOLLOWED_EVERY_S = 0.5
_RETRIES_S = (1.0, 2.0, 4.0, 8.0, 15.0)


@dataclass(slots=True)
class Records:
    """The records of a page.

    Attributes:
        records: In the order of the response; of one partition in the order of offsets.
        next: Where the records after these start; None if unknown.
        synced: Whether all records were read that the request names.
        ended: Why the read ended before: ``time``, ``size`` or ``error``; empty if it did not.
        error: The reason of the workers, if an error ended the read.
    """

    records: Sequence[TopicRecord] = ()
    next: Positions | None = None
    synced: bool = False
    ended: str = ""
    error: DroverError | None = None


async def read_records(client: ConnectClient, window: RecordWindow) -> Records:
    """The records of a window. An error of the workers is part of the result.

    Raises:
        UnauthenticatedError: The workers do not accept the caller's token.
    """
    found = Records(next=window.at)
    kept: deque[TopicRecord] = deque()
    try:
        async with asyncio.timeout(READ_S):
            await _read(client, window, found, kept)
    except TimeoutError:
        found.ended = "time"
    except UnauthenticatedError:
        raise
    except DroverError as error:
        found.ended, found.error = "error", error
    found.records = list(kept)
    if window.partition is not None:
        # the last records come in the order of their timestamps
        found.records = sorted(kept, key=lambda each: each.offset)
    return found


async def _read(
    client: ConnectClient, window: RecordWindow, found: Records, kept: deque[TopicRecord]
) -> None:
    size_bytes = 0
    async with aclosing(client.watch_topic(window.request())) as responses:
        async for response in responses:
            for record in response.records:
                if window.before is not None and record.offset >= window.before:
                    found.synced = True
                    return
                size_bytes += record.ByteSize()
                if size_bytes > _BYTES_MAX and kept:
                    found.ended = "size"
                    if not window.keeps_newest:
                        return
                kept.append(record)
                while len(kept) > window.count or (size_bytes > _BYTES_MAX and len(kept) > 1):
                    size_bytes -= kept.popleft().ByteSize()
                _advance(found, record)
            if response.positions:
                found.next = Positions.of(response.positions)
            found.synced = found.synced or response.synced


def _advance(found: Records, record: TopicRecord) -> None:
    """Note that a record is shown, since a response with further ones may not be."""
    if found.next is not None:
        offsets = {**found.next.offsets, record.partition: record.offset + 1}
        found.next = Positions(offsets, found.next.topic_id)


async def followed(
    client: ConnectClient,
    window: RecordWindow,
    version: str,
    render: Callable[[Sequence[TopicRecord], int], Html],
) -> AsyncGenerator[bytes, None]:
    """The events of a page that follows a topic from the positions ``version`` on.

    Of many new records the last ones are shown, and ``render`` gets the number of the others.
    """
    failures = 0
    positions = Positions.parsed(version) if version else None
    yield message("live", "", version="" if positions is None else positions.text)
    while True:
        responses = client.watch_topic(window.following(positions))
        step: asyncio.Future[pb.WatchTopicResponse] | None = None
        try:
            while True:
                step = asyncio.ensure_future(anext(responses))
                while not (await asyncio.wait({step}, timeout=PING_S))[0]:
                    yield message("ping", "")
                response, failures = step.result(), 0
                if response.positions:
                    positions = Positions.of(response.positions)
                shown = response.records[-FOLLOWED_ROWS:]
                version = "" if positions is None else positions.text
                if shown:
                    rows = render(shown, len(response.records) - len(shown))
                    yield message("rows", rows, version=version)
                    await asyncio.sleep(FOLLOWED_EVERY_S)
                else:
                    yield message("live", "", version=version)
        except StopAsyncIteration:
            continue
        except UnauthenticatedError as error:
            yield message("refused", error.message)
            return
        except DroverError as error:
            retry_s = _RETRIES_S[min(failures, len(_RETRIES_S) - 1)]
            failures += 1
            what = {"title": "New records cannot be read", "message": error.message}
            yield message("failed", json.dumps(what | {"retry_s": retry_s}))
            await asyncio.sleep(retry_s)
        finally:
            if step is not None and not step.done():
                step.cancel()
                await asyncio.gather(step, return_exceptions=True)
            await responses.aclose()
