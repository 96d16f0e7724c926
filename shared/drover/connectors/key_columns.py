"""The setting `key` of sources whose rows have columns."""

from collections.abc import Sequence


def key_columns(names: Sequence[str] | None) -> str | list[str] | None:
    """The setting of key columns as ``SourceBatch.table`` takes it: one is itself the key."""
    if not names:
        return None
    return names[0] if len(names) == 1 else list(names)
