"""Limits for pages of lists, and for chunks of snapshots."""

from typing import Final

#: A page or chunk ends at the entry that exceeds this size, which is far below gRPC's message
#: limit.
PAGE_BYTES_MAX: Final = 1024 * 1024
#: The number of entries in a page: the maximum and the default.
PAGE_SIZE_MAX: Final = 1_000
PAGE_SIZE_DEFAULT: Final = 100
