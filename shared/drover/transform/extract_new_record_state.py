"""ExtractNewRecordState: replaces a change event with its row, like Debezium's transform."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from drover.config.config_def import ConfigDef, ConfigKey, ConfigType, SettingError
from drover.config.validators import Check, OneOf
from drover.record.arrow import Array, Mask, Texts
from drover.record.batch import VALUE, with_column
from drover.record.json.schemaless import loads
from drover.record.schema import Schema, Type, arrow_field, is_schemaless
from drover.transform.field_path import find_column, find_value
from drover.transform.key_or_value import list_key, map_of, text_key, to_texts
from drover.transform.structs import columns_of, rebuilt_field, struct_of
from drover.transform.transform import Transform

_DROP, _TOMBSTONE, _REWRITE = "drop", "tombstone", "rewrite"
_REWRITE_TOMBSTONE, _TO_TOMBSTONE = "rewrite-with-tombstone", "delete-to-tombstone"
_BEFORE, _AFTER, _OP, _SOURCE = "before", "after", "op", "source"
_DELETION = "d"
#: Events without a row: TRUNCATE, and logical decoding messages.
_OF_NO_ROW = ("t", "m")
_DELETED = "__deleted"
_MODE = "delete.tombstone.handling.mode"
_FIELDS, _PREFIX = "add.fields", "add.fields.prefix"
#: Settings of Debezium before 2.5, and the modes that they mean together.
_OLD_MODE, _DROPS = "delete.handling.mode", "drop.tombstones"
_NONE = "none"
_MEANT = {
    (_DROP, True): _DROP,
    (_DROP, False): _TOMBSTONE,
    (_REWRITE, True): _REWRITE,
    (_REWRITE, False): _REWRITE_TOMBSTONE,
    (_NONE, True): _TO_TOMBSTONE,
}
#: Settings that would change records and are not supported, with the value that changes nothing.
_OTHERS = {
    "add.headers": "",
    "add.source.fields": "",
    "drop.fields.from.key": "false",
    "drop.fields.header.name": "",
    "operation.header": "false",
    "replace.null.with.default": "true",
    "route.by.field": "",
}


class ExtractNewRecordState(Transform):
    """Replaces a change event with the row after the change; other records are not changed.

    By default a delete event is dropped and its tombstone is kept; see the setting for the mode.
    """

    aliases = ("io.debezium.transforms.ExtractNewRecordState",)

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See Transform."""
        modes = (_DROP, _TOMBSTONE, _REWRITE, _REWRITE_TOMBSTONE, _TO_TOMBSTONE)
        return ConfigDef(
            ConfigKey(
                _MODE,
                ConfigType.STRING,
                default=_TOMBSTONE,
                documentation="How delete events and their tombstones are handled. drop: both are "
                "dropped. tombstone: only the tombstone is kept. rewrite: the delete event becomes "
                "the deleted row with a field __deleted; rewrite-with-tombstone keeps the "
                "tombstone too. delete-to-tombstone: the delete event becomes a tombstone.",
                validator=OneOf(*modes),
            ),
            list_key(
                _FIELDS,
                default=None,
                documentation="Fields of the event to add to the row, such as op, ts_ms, table (of "
                "source) or source.lsn.",
            ),
            text_key(_PREFIX, default="__", documentation="Prefix of the names of added fields."),
            ConfigKey(
                _OLD_MODE,
                ConfigType.STRING,
                default=None,
                documentation=f"With drop.tombstones, the former form of {_MODE}.",
                validator=OneOf(_DROP, _REWRITE, _NONE),
            ),
            ConfigKey(
                _DROPS,
                ConfigType.BOOLEAN,
                default=None,
                documentation=f"Whether tombstones are dropped; see {_OLD_MODE}.",
            ),
            *(
                ConfigKey(
                    name,
                    ConfigType.STRING,
                    default=None,
                    documentation="Not supported.",
                    validator=Check(partial(_unsupported, value)),
                )
                for name, value in _OTHERS.items()
            ),
        )

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        mode = _mode_of(config)
        self._rewrites = mode in (_REWRITE, _REWRITE_TOMBSTONE)
        self._keeps_tombstones = mode in (_TOMBSTONE, _REWRITE_TOMBSTONE)
        self._keeps_deletions = self._rewrites or mode == _TO_TOMBSTONE
        self._added = tuple(each.strip() for each in config[_FIELDS] or ())

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """See Transform."""
        field, values = batch.schema.field(VALUE), batch.column(VALUE)
        if values.null_count == len(values):
            return [batch] if self._keeps_tombstones else []
        if is_schemaless(field):
            return self._of_maps(batch)
        if not pa.types.is_struct(field.type) or not {_OP, _AFTER} <= {e.name for e in field.type}:
            return [batch]
        ops = pc.struct_field(values, [_OP])
        deletes = pc.fill_null(pc.equal(ops, _DELETION), False)
        kept = self._kept(values.is_null(), ops, deletes)
        if not pc.all(kept).as_py():
            batch, deletes = batch.filter(kept), deletes.filter(kept)
            values = batch.column(VALUE)
        return [self._unwrapped(batch, field, values, deletes)] if batch.num_rows else []

    def _kept(self, tombstones: Mask, ops: Texts, deletes: Mask) -> Mask:
        of_no_row = pc.fill_null(pc.is_in(ops, pa.array(_OF_NO_ROW)), False)
        kept = pc.invert(of_no_row)
        if not self._keeps_tombstones:
            kept = pc.and_(kept, pc.invert(tombstones))
        return kept if self._keeps_deletions else pc.and_(kept, pc.invert(deletes))

    def _unwrapped(
        self, batch: pa.RecordBatch, field: pa.Field, values: Array, deletes: Mask
    ) -> pa.RecordBatch:
        row_field = field.type.field(_AFTER)
        rows = pc.struct_field(values, [_AFTER])
        if self._rewrites:
            rows = pc.if_else(deletes, pc.struct_field(values, [_BEFORE]), rows)
        if not self._rewrites and not self._added:
            return with_column(batch, row_field.with_name(VALUE).with_nullable(False), rows)
        columns = columns_of(rows)
        if self._rewrites:
            texts = pc.if_else(deletes, "true", "false")
            columns.append((arrow_field(_DELETED, Schema(Type.STRING, optional=True)), texts))
        for text in self._added:
            found = find_column(field, values, self._path(text, field.type), replace_nulls=False)
            if found is not None:
                columns.append((found[0].with_name(self._name(text)).with_nullable(True), found[1]))
        changed = struct_of(columns, rows)
        return with_column(batch, rebuilt_field(row_field.with_name(VALUE), changed), changed)

    def _path(self, text: str, event: pa.StructType) -> tuple[str, ...]:
        """The path of an added field; a name that the event lacks is looked up in ``source``."""
        path = tuple(text.split("."))
        return path if event.get_field_index(path[0]) >= 0 else (_SOURCE, *path)

    def _name(self, text: str) -> str:
        return str(self.config[_PREFIX]) + text.replace(".", "_")

    def _of_maps(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        kept: list[bool] = []
        rows: list[Any] = []
        for text in batch.column(VALUE).to_pylist():
            event: Any = None if text is None else loads(text)
            is_event = isinstance(event, dict) and {_OP, _AFTER} <= event.keys()
            op = event[_OP] if is_event else None
            keeps = self._keeps_tombstones if event is None else op not in _OF_NO_ROW
            kept.append(keeps and (op != _DELETION or self._keeps_deletions))
            if kept[-1]:
                rows.append(self._row_of(event) if is_event else event)
        if not rows:
            return []
        batch = batch.filter(pa.array(kept))
        return [with_column(batch, batch.schema.field(VALUE), to_texts(rows))]

    def _row_of(self, event: Mapping[str, Any]) -> Any:
        deleted = event[_OP] == _DELETION
        row = event.get(_BEFORE) if deleted and self._rewrites else event[_AFTER]
        if not isinstance(row, dict):
            return row
        more = {_DELETED: str(deleted).lower()} if self._rewrites else {}
        for text in self._added:
            path = tuple(text.split("."))
            value = find_value(event, path if path[0] in event else (_SOURCE, *path))
            if value is not None:
                more[self._name(text)] = value
        return map_of([*row.items(), *more.items()])


def _unsupported(accepted: str, given: str) -> str | None:
    if given == accepted:
        return None
    advice = f", or set it to {accepted}" if accepted else ""
    return f"is not supported and would change the data: remove it{advice}"


def _mode_of(config: Mapping[str, Any]) -> str:
    """The mode, also from the settings of Debezium before 2.5.

    Raises:
        SettingError: The settings contradict each other, or mean two tombstones.
    """
    old, drops = config.get(_OLD_MODE), config.get(_DROPS)
    if old is None and drops is None:
        return str(config[_MODE])
    named = _OLD_MODE if old is not None else _DROPS
    if config[_MODE] != _TOMBSTONE:
        raise SettingError(named, f"must not be set together with {_MODE}, which replaces it")
    mode = _MEANT.get((old or _DROP, drops is not False))
    if mode is None:
        raise SettingError(
            _DROPS, f"must be true with {_OLD_MODE}={_NONE}, or a deletion has two tombstones"
        )
    return mode
