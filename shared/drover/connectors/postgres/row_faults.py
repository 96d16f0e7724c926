"""Names the records that cannot be delivered: why not, and which row it is."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from drover.connectors.postgres.row_columns import NO_ROW, TextColumn

_SHOWN_CHARACTERS = 80


def unsent_keys(names: Mapping[int, str], columns: Sequence[TextColumn]) -> dict[int, str]:
    """The rows of which the server did not send the key, with the reason.

    Args:
        names: The key's columns: their numbers and names.
        columns: The values of all columns.
    """
    found: dict[int, str] = {}
    for number, name in names.items():
        unchanged = columns[number].unchanged
        if unchanged is not None:
            why = (
                f"column {name!r} of the key was not sent, because it is large and unchanged: "
                "ALTER TABLE … REPLICA IDENTITY FULL sends it"
            )
            found |= dict.fromkeys(np.flatnonzero(unchanged).tolist(), why)
    return found


def with_keys(
    faults: Mapping[int, str], names: Mapping[int, str], columns: Sequence[pa.Array], rows: Any
) -> dict[int, str]:
    """Faults of records, each with the key of its row.

    Args:
        faults: The reasons, by the number of the record.
        names: The key's columns: their numbers and names.
        columns: The texts of all columns.
        rows: The row with the key of each record, or NO_ROW.
    """
    return {
        record: f"{why} (key: {_key(names, columns, int(rows[record]))})" if names else why
        for record, why in faults.items()
    }


def _key(names: Mapping[int, str], columns: Sequence[pa.Array], row: int) -> str:
    if row == NO_ROW:
        return "none"
    parts = []
    for number, name in names.items():
        text = columns[number][row].as_py()
        parts.append(f"{name}={'NULL' if text is None else text[:_SHOWN_CHARACTERS]}")
    return ", ".join(parts)
