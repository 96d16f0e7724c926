"""TimestampRouter: renames topics by the timestamps of records."""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from drover.config.config_def import ConfigDef
from drover.record import RecordError
from drover.record.arrow import Texts
from drover.record.batch import TIMESTAMP, TOPIC, with_column
from drover.transform.java_date_columns import DateColumns
from drover.transform.key_or_value import PACKAGE, text_key
from drover.transform.transform import SettingError, Transform

_TOPIC, _TIMESTAMP = "${topic}", "${timestamp}"
_PATTERN = "timestamp.format"


class TimestampRouter(Transform):
    """Builds the topic from the old topic and the record's timestamp in UTC."""

    aliases = (f"{PACKAGE}.TimestampRouter",)

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See Transform."""
        return ConfigDef(
            text_key(
                "topic.format",
                default=f"{_TOPIC}-{_TIMESTAMP}",
                documentation=f"The new name; {_TOPIC} and {_TIMESTAMP} stand for what is there.",
            ),
            text_key(
                _PATTERN,
                default="yyyyMMdd",
                documentation="How the time is written, as for Java's SimpleDateFormat.",
            ),
        )

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self._format: str = config["topic.format"].strip()
        try:
            self._dates = DateColumns(config[_PATTERN].strip())
        except ValueError as error:
            raise SettingError(_PATTERN, f"is no pattern of dates: {error}") from error

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """See Transform."""
        stamps = batch.column(TIMESTAMP)
        if stamps.null_count:
            raise RecordError("a topic by time needs records with a timestamp")
        texts = self._dates.format(stamps.cast(pa.int64()))
        names = self._names(batch.column(TOPIC), texts)
        return [with_column(batch, batch.schema.field(TOPIC), names)]

    def _names(self, topics: Texts, texts: Texts) -> Texts:
        pieces: list[Any] = []
        for at, around in enumerate(self._format.split(_TOPIC)):
            if at:
                pieces.append(topics)
            for index, literal in enumerate(around.split(_TIMESTAMP)):
                pieces += ([texts] if index else []) + [literal]
        joined = pc.binary_join_element_wise(*pieces, "")
        return joined if isinstance(joined, pa.Array) else pa.repeat(joined, len(topics))
