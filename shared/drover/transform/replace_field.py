"""ReplaceField: drops and renames fields."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from drover.config.config_def import ConfigDef
from drover.config.validators import Check
from drover.record import RecordError
from drover.record.arrow import Array
from drover.record.batch import KEY, VALUE, with_column
from drover.transform.key_or_value import (
    REPLACE_NULL_WITH_DEFAULT,
    FieldTransform,
    definition,
    list_key,
    map_of,
)
from drover.transform.structs import columns_of, rebuilt_field, struct_of


def _renames_fault(renames: list[str]) -> str | None:
    bad = [each for each in renames if len(_halves(each)) != 2]
    return f"must be pairs like old:new, not {bad[0]!r}" if bad else None


def _halves(pair: str) -> list[str]:
    # as in Kafka Connect, "a:b:" is a pair and "a:" is not
    return pair.rstrip(":").split(":")


class ReplaceField(FieldTransform):
    """Drops fields and renames them. Null stays null."""

    purpose = "replacing fields"
    nulls_pass = True

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See Transform."""
        return definition(
            list_key("exclude", default=[], documentation="Fields to drop, even if included."),
            list_key("include", default=[], documentation="The fields to keep; default: all."),
            list_key(
                "renames",
                default=[],
                validator=Check(_renames_fault),
                documentation="Pairs of old and new names: foo:bar,abc:xyz.",
            ),
        )

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self._exclude, self._include = frozenset(config["exclude"]), frozenset(config["include"])
        self._renames: dict[str, str] = {}
        for each in config["renames"]:
            old, new = _halves(each)
            self._renames[old] = new
        self._old_names = {new: old for old, new in self._renames.items()}
        self._replace_nulls: bool = config[REPLACE_NULL_WITH_DEFAULT.name]

    def change_structs(
        self, batch: pa.RecordBatch, field: pa.Field, values: Array
    ) -> pa.RecordBatch:
        """See FieldTransform."""
        columns = []
        for child, column in columns_of(values, replace_nulls=self._replace_nulls):
            if not self._keeps(child.name):
                continue
            new = self._renames.get(child.name, child.name)
            old = self._old_names.get(new, new)
            if old != child.name:
                raise RecordError(f"fields {child.name!r} and {old!r} would both be named {new!r}")
            columns.append((child.with_name(new), column))
        changed = struct_of(columns, values)
        return with_column(batch, rebuilt_field(field, changed), changed)

    def change_maps(
        self, batch: pa.RecordBatch, maps: list[dict[str, Any] | None]
    ) -> pa.RecordBatch:
        """See FieldTransform."""
        return self.with_maps(batch, (None if each is None else self._map(each) for each in maps))

    def _map(self, found: Mapping[str, Any]) -> dict[str, Any]:
        return map_of(
            (self._renames.get(name, name), value)
            for name, value in found.items()
            if self._keeps(name)
        )

    def _keeps(self, name: str) -> bool:
        return name not in self._exclude and (not self._include or name in self._include)


class ReplaceFieldKey(ReplaceField, side=KEY):
    """ReplaceField on keys."""


class ReplaceFieldValue(ReplaceField, side=VALUE):
    """ReplaceField on values."""
