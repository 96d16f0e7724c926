"""Floods of calls by callers without a grant: the others are served."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from drover.rpc.bounds import INTERNAL_BOUNDS, Bounds
from drover.security.development_ca import Authority
from tests.integration.security.test_call_bounds import FLUSH, connect, is_open, watches
from tests.integration.security.test_tls_server import NAME, flush, serving
from tests.support.certificates import issue

pytestmark = [pytest.mark.faults("security"), pytest.mark.timeout(600)]

FLOOD_COUNT = 20_000

Flood = Callable[[grpc.aio.Channel], Awaitable[list[Any]]]


async def health_watches(connection: grpc.aio.Channel) -> list[Any]:
    return await watches(connection, FLOOD_COUNT)


async def calls_without_request(connection: grpc.aio.Channel) -> list[Any]:
    start: Any = connection.stream_unary(FLUSH)
    calls = [start() for _ in range(FLOOD_COUNT)]
    # most are refused; the few that have a place stay open
    await asyncio.wait([asyncio.ensure_future(each.code()) for each in calls], timeout=120)
    return calls


@pytest.mark.parametrize("flood", [health_watches, calls_without_request])
@pytest.mark.parametrize("internal", [True, False])
async def test_twenty_thousand_calls_of_an_unknown_caller_leave_the_others_served(
    tmp_path: Path, internal: bool, flood: Flood
) -> None:
    authority = Authority.make()
    files = issue(tmp_path / "s", authority, name=NAME)
    stranger = issue(tmp_path / "x", authority, name="stranger", hosts=())
    bounds = INTERNAL_BOUNDS if internal else Bounds()
    async with (
        serving(tmp_path, files, internal=internal) as running,
        connect(running, stranger) as unknown,
        connect(running, files) as known,
    ):
        calls = await flood(unknown)
        await flush(known)
        assert is_open((await watches(known, 1))[0])
        open_count = sum(map(is_open, calls))
        assert open_count <= bounds.unknown_streams.per_host + bounds.unknown_calls.per_host
        codes = Counter([await each.code() for each in calls if not is_open(each)])
        assert set(codes) <= {
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            grpc.StatusCode.PERMISSION_DENIED,
            grpc.StatusCode.DEADLINE_EXCEEDED,
        }
