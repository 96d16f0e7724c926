"""The common part of cluster figures: the connectors of a file copy, and waiting for it."""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from drover.client import ConnectClient
from tests.support.waiting import pause

_POLL_S = 0.02

T = TypeVar("T")
SideT = TypeVar("SideT")


async def wait_for(condition: Callable[[], bool], *, timeout_s: float, what: str) -> float:
    """Poll until a condition holds; returns when it did (monotonic seconds)."""
    end_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end_s:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s")
        await pause(_POLL_S)
    return time.monotonic()


def write_lines(path: Path, line_count: int) -> None:
    """Write ASCII lines of about 40 bytes."""
    with path.open("w") as file:
        for number in range(line_count):
            file.write(f"{number},line {number * 7919 % 1000003},some text to carry\n")


def size_of(path: Path) -> int:
    """A file's size; 0 while it is not there."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def sha256_of(path: Path) -> str:
    """Of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def create_copy(client: ConnectClient, name: str, source: Path, sink: Path) -> None:
    """Create the connectors that copy a file through a topic."""
    await client.create_connector(
        f"{name}-sink",
        {"connector.class": "FileStreamSink", "topics": name, "file": str(sink)},
    )
    await client.create_connector(
        f"{name}-source",
        {"connector.class": "FileStreamSource", "topic": name, "file": str(source)},
    )


async def delete_copy(client: ConnectClient, name: str) -> None:
    """Delete them."""
    for kind in ("source", "sink"):
        await client.delete_connector(f"{name}-{kind}")


async def in_turn(
    sides: Sequence[SideT],
    run: Callable[[SideT, int], Awaitable[T]],
    *,
    rounds: int,
    prepare: Callable[[], None] = lambda: None,
) -> list[list[T]]:
    """The results of each side's rounds; the order alternates, and the first round is a warm-up.

    ``prepare`` is called before each round.
    """
    found: list[list[T]] = [[] for _ in sides]
    for number in range(rounds + 1):
        await asyncio.to_thread(prepare)
        turns = list(enumerate(sides))
        for index, side in turns if number % 2 else reversed(turns):
            result = await run(side, number)
            if number:
                found[index].append(result)
    return found
