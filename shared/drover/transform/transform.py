"""Base classes of transforms and predicates."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from drover.config.config_def import ConfigDef, SettingError
from drover.config.configurable import Configurable
from drover.record.arrow import Mask


class Transform(Configurable):
    """Changes records.

    A transform is pickled with its config and called on executors with whole batches. It keeps the
    order of records and unknown columns. It has no state: the result does not depend on the batch
    boundaries. If any row fails, it raises; the pipeline calls it again with fewer rows to find
    the bad ones.
    """

    version: ClassVar[str] = "unknown"
    aliases: ClassVar[Sequence[str]] = ()

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Also called to validate a config.

        Args:
            config: Parsed settings by name, without the prefix ``transforms.NAME.``.

        Raises:
            SettingError: The settings contradict each other.
        """
        self.config = config

    @classmethod
    @abstractmethod
    def config_def(cls) -> ConfigDef:
        """The transform's own settings."""

    @abstractmethod
    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """Transform a batch of records (see drover.record).

        Returns:
            One batch; several if the results have different schemas; none if all are dropped.

        Raises:
            RecordError: A record cannot be transformed.
        """


class Predicate(Configurable):
    """Decides for each record whether a transform applies to it."""

    version: ClassVar[str] = "unknown"
    aliases: ClassVar[Sequence[str]] = ()

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Also called to validate a config.

        Args:
            config: Parsed settings by name, without the prefix ``predicates.NAME.``.

        Raises:
            SettingError: The settings contradict each other.
        """
        self.config = config

    @classmethod
    @abstractmethod
    def config_def(cls) -> ConfigDef:
        """The predicate's own settings."""

    @abstractmethod
    def matches(self, batch: pa.RecordBatch) -> Mask:
        """A boolean array without nulls, one value per record.

        Raises:
            RecordError: The predicate cannot be evaluated for a record.
        """


__all__ = ["Predicate", "SettingError", "Transform"]
