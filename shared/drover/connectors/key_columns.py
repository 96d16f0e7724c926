"""The setting `key` of sources with columns."""

from collections.abc import Sequence


def key_columns(names: Sequence[str] | None) -> str | list[str] | None:
    """The key columns in the form for ``SourceBatch.table``: a single column is itself the key."""
    if not names:
        return None
    return names[0] if len(names) == 1 else list(names)
