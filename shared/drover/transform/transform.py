"""What transforms and predicates are."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from drover.config.config_def import ConfigDef, SettingError
from drover.record.arrow import Mask


class Transform(ABC):
    """Changes records; pickled with its config, called on executors with whole batches.

    It keeps the order of records and columns that it does not know, and has no state: any cut of
    the records into batches gives the same records. It raises what is wrong with any of the rows:
    whoever runs it finds out which ones by asking for fewer.
    """

    version: ClassVar[str] = "unknown"
    aliases: ClassVar[Sequence[str]] = ()

    def __init__(self, config: Mapping[str, Any]) -> None:
        """``config`` are the parsed settings, without the prefix (``transforms.NAME.``).

        Raises:
            SettingError: they contradict each other. It is called to check a config, too.
        """
        self.config = config

    @classmethod
    @abstractmethod
    def config_def(cls) -> ConfigDef:
        """The transform's own settings."""

    @abstractmethod
    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """The records of ``batch`` (see drover.record) after the change: one batch, several when
        they come out with several schemas, none when all are dropped.

        Raises:
            RecordError: a record cannot be transformed.
        """


class Predicate(ABC):
    """Says of each record whether a transform applies to it."""

    version: ClassVar[str] = "unknown"
    aliases: ClassVar[Sequence[str]] = ()

    def __init__(self, config: Mapping[str, Any]) -> None:
        """``config`` are the parsed settings, without the prefix (``predicates.NAME.``).

        Raises:
            SettingError: they contradict each other. It is called to check a config, too.
        """
        self.config = config

    @classmethod
    @abstractmethod
    def config_def(cls) -> ConfigDef:
        """The predicate's own settings."""

    @abstractmethod
    def matches(self, batch: pa.RecordBatch) -> Mask:
        """A boolean array without nulls, one for each record.

        Raises:
            RecordError: it cannot be said of a record.
        """


__all__ = ["Predicate", "SettingError", "Transform"]
