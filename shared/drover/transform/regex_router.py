"""RegexRouter: renames topics by a regular expression."""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from drover.config.config_def import ConfigDef
from drover.config.patterns import Pattern, pattern_fault
from drover.config.validators import Check
from drover.record.batch import TOPIC, with_column
from drover.transform.key_or_value import PACKAGE, text_key
from drover.transform.topics import by_topic
from drover.transform.transform import SettingError, Transform


class RegexRouter(Transform):
    """Renames topics whose whole name matches a pattern."""

    aliases = (f"{PACKAGE}.RegexRouter",)

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See Transform."""
        return ConfigDef(
            text_key(
                "regex",
                validator=Check(pattern_fault),
                documentation="What topics have to match, as a regular expression of Java.",
            ),
            text_key("replacement", documentation="The new name; $1 and ${name} are its groups."),
        )

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self._regex = Pattern(config["regex"].strip())
        try:
            self._replacement = self._regex.replacement(config["replacement"].strip())
        except ValueError as error:
            raise SettingError("replacement", f"cannot be used: {error}") from error

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """See Transform."""
        names = by_topic(batch.column(TOPIC), self._renamed, pa.string())
        return [with_column(batch, batch.schema.field(TOPIC), names)]

    def _renamed(self, topic: str) -> str:
        if not self._regex.matches(topic):
            return topic
        return self._regex.replace_first(self._replacement, topic)
