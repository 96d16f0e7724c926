"""Filter: drops records."""

from collections.abc import Iterable

import pyarrow as pa

from drover.config.config_def import ConfigDef
from drover.transform.key_or_value import PACKAGE
from drover.transform.transform import Transform


class Filter(Transform):
    """Drops every record to which it applies; use it with a predicate."""

    aliases = (f"{PACKAGE}.Filter",)

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See Transform."""
        return ConfigDef()

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """See Transform."""
        return []
