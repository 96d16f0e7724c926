"""Compresses large responses by gzip, for callers who accept it.

A response that may have secrets is never compressed: who can choose a part of it would learn the
rest from its size (BREACH).
"""

import asyncio
import gzip
import re
from collections import OrderedDict

MIN_BYTES = 1024
#: The fastest level: on a local network it is the only one that saves time.
_LEVEL = 1
#: Above this size, a thread compresses, so that other requests do not wait.
_INLINE_MAX_BYTES = 64 * 1024
_KEPT_MAX, _KEPT_MAX_BYTES = 8, 1024 * 1024
_GZIP = re.compile(r"\s*(?:gzip|x-gzip|\*)\s*(?:;\s*q\s*=\s*([0-9.]+)\s*)?", re.IGNORECASE)


def accepts_gzip(accept_encoding: str | None) -> bool:
    """Whether a header Accept-Encoding admits gzip."""
    for each in (accept_encoding or "").split(","):
        found = _GZIP.fullmatch(each)
        if found is not None:
            return found[1] is None or found[1].strip("0.") != ""
    return False


class Compressor:
    """Compresses bodies, and keeps the last ones: lists from memory are sent many times."""

    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, bytes] = OrderedDict()

    async def compressed(self, body: bytes) -> bytes:
        """A body, compressed."""
        found = self._kept.get(body)
        if found is not None:
            self._kept.move_to_end(body)
            return found
        if len(body) > _INLINE_MAX_BYTES:
            found = await asyncio.to_thread(gzip.compress, body, _LEVEL, mtime=0)
        else:
            found = gzip.compress(body, _LEVEL, mtime=0)
        if len(body) <= _KEPT_MAX_BYTES:
            self._kept[body] = found
            if len(self._kept) > _KEPT_MAX:
                self._kept.popitem(last=False)
        return found
