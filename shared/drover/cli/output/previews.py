"""A preview as tables, one for each step of the pipeline."""

import json
from collections.abc import Iterator, Sequence

from drover.api.common.v1.preview_pb2 import Preview, PreviewedRecord, PreviewedRow
from drover.cli.console import shortened
from drover.cli.tables import Table

_CELL_MAX_LENGTH = 100
_COLUMNS_MAX = 20
#: The step after which the target of a record is shown.
_LAST = "write"


def preview_tables(preview: Preview) -> Iterator[Table]:
    """A table for each step: its output records, and in their rows the failed or dropped ones."""
    for index, step in enumerate(preview.steps):
        shown = [(row, _at(row, index)) for row in preview.rows]
        rows = [(row, record) for row, record in shown if record is not None or _ends(row, step)]
        if rows:
            yield _table(step, rows)


def _at(row: PreviewedRow, index: int) -> PreviewedRecord | None:
    return row.records[index] if index < len(row.records) else None


def _ends(row: PreviewedRow, step: str) -> bool:
    return step in (row.failed_step, row.dropped_by)


def _table(step: str, rows: Sequence[tuple[PreviewedRow, PreviewedRecord | None]]) -> Table:
    records = [record for _, record in rows if record is not None]
    fields = _fields(records)
    with_key = any(record.HasField("key") for record in records)
    with_headers = any(record.headers for record in records)
    columns = ["FROM", *(["KEY"] if with_key else []), *(fields or ["VALUE"])]
    columns += ["HEADERS"] if with_headers else []
    with_target = step == _LAST and any(row.target for row, _ in rows)
    columns += ["TARGET"] if with_target else []
    shown: list[list[str]] = []
    for row, record in rows:
        if record is None:
            shown.append(
                [row.place, f"failed: {row.error}" if row.failed_step == step else "dropped"]
            )
            continue
        cells = [row.place]
        if with_key:
            cells.append(_short(record.key) if record.HasField("key") else "")
        cells += _cells(record, fields)
        if with_headers:
            cells.append(_short(", ".join(f"{each.key}={each.value}" for each in record.headers)))
        cells += [row.target] if with_target else []
        shown.append(cells)
    return Table(columns, shown, title=step)


def _fields(records: Sequence[PreviewedRecord]) -> list[str]:
    """The fields of the values in order; none if a value is no object or there are too many."""
    names: dict[str, None] = {}
    for record in records:
        value = _object(record)
        if value is None:
            return []
        names.update(dict.fromkeys(value))
    return list(names) if len(names) <= _COLUMNS_MAX and "payload" not in names else []


def _object(record: PreviewedRecord) -> dict[str, object] | None:
    try:
        value = json.loads(record.value) if record.HasField("value") else None
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _cells(record: PreviewedRecord, fields: Sequence[str]) -> list[str]:
    if not fields:
        return [_short(_without_schema(record)) if record.HasField("value") else "null"]
    value = _object(record) or {}
    return ["" if value.get(name) is None else _cell(value[name]) for name in fields]


def _without_schema(record: PreviewedRecord) -> str:
    """A value's text; a JsonConverter envelope without its schema, which would fill the line."""
    value = _object(record)
    if value is None or list(value) != ["schema", "payload"]:
        return record.value
    payload = json.dumps(value["payload"], ensure_ascii=False, separators=(",", ":"))
    return f'{{"schema":…,"payload":{payload}}}'


def _cell(value: object) -> str:
    return _short(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _short(text: str) -> str:
    return shortened(text, _CELL_MAX_LENGTH)
