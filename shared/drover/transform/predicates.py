"""HasHeaderKey and RecordIsTombstone."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from drover.config.config_def import ConfigDef
from drover.config.validators import NonEmpty
from drover.record.arrow import Mask
from drover.record.batch import HEADERS, VALUE
from drover.transform.header_columns import have_key
from drover.transform.key_or_value import PACKAGE, text_key
from drover.transform.transform import Predicate


class HasHeaderKey(Predicate):
    """True for records that have a header with the key ``name``."""

    aliases = (f"{PACKAGE}.predicates.HasHeaderKey",)

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See Predicate."""
        return ConfigDef(
            text_key("name", validator=NonEmpty(), documentation="The key of the header.")
        )

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self._key: str = config["name"].strip()

    def matches(self, batch: pa.RecordBatch) -> Mask:
        """See Predicate."""
        return have_key(batch.column(HEADERS), self._key)


class RecordIsTombstone(Predicate):
    """True for records whose value is null."""

    aliases = (f"{PACKAGE}.predicates.RecordIsTombstone",)

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See Predicate."""
        return ConfigDef()

    def matches(self, batch: pa.RecordBatch) -> Mask:
        """See Predicate."""
        return pc.is_null(batch.column(VALUE))
