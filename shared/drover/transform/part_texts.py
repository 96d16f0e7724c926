"""The JSON of parts of records, for people."""

from collections.abc import Sequence

import pyarrow as pa

from drover.record.arrow import Texts
from drover.record.batch import HEADERS
from drover.record.json.encode import json_texts
from drover.record.json.form import JsonForm
from drover.record.json.schemaless import loads, value_text
from drover.record.schema import is_schemaless
from drover.transform.conditions import header_column, with_text
from drover.transform.field_matches import column_at, value_at


def part_texts(batch: pa.RecordBatch, side: str, path: Sequence[str], form: JsonForm) -> Texts:
    """The JSON of the part at a path in each record; ``null`` where it is absent."""
    if side == HEADERS:
        field, column = pa.field(HEADERS, pa.string()), header_column(batch, path)
    else:
        batch = with_text(batch, side) if not path else batch
        field, column = batch.schema.field(side), batch.column(side)
        if is_schemaless(field):
            parts = [
                None if text is None else value_at(loads(text), tuple(path))
                for text in column.to_pylist()
            ]
            return pa.array([value_text(each, form) for each in parts], pa.string())
        found = column_at(field, column, tuple(path))
        if found is None:
            return pa.repeat(pa.scalar("null"), batch.num_rows)
        field, column = found
    return json_texts(field, column, form).fill_null("null")
