"""How much one answer carries, of lists that come in pages and of snapshots that come in chunks."""

from typing import Final

#: A page or chunk ends at the entry that exceeds it; far below what one gRPC message may hold.
PAGE_BYTES_MAX: Final = 1024 * 1024
#: Entries of a page, at most and by default.
PAGE_SIZE_MAX: Final = 1_000
PAGE_SIZE_DEFAULT: Final = 100
