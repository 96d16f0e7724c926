"""TopicNameMatches."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from drover.config.config_def import ConfigDef
from drover.config.patterns import Pattern, pattern_fault
from drover.config.validators import All, Check, NonEmpty
from drover.record.arrow import Mask
from drover.record.batch import TOPIC
from drover.transform.key_or_value import PACKAGE, text_key
from drover.transform.topics import by_topic
from drover.transform.transform import Predicate


class TopicNameMatches(Predicate):
    """True for records whose whole topic name matches a pattern."""

    aliases = (f"{PACKAGE}.predicates.TopicNameMatches",)

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See Predicate."""
        return ConfigDef(
            text_key(
                "pattern",
                validator=All(NonEmpty(), Check(pattern_fault)),
                documentation="The pattern, a regular expression of Java.",
            )
        )

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self._regex = Pattern(config["pattern"].strip())

    def matches(self, batch: pa.RecordBatch) -> Mask:
        """See Predicate."""
        return pc.fill_null(by_topic(batch.column(TOPIC), self._regex.matches, pa.bool_()), False)
