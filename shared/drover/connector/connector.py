"""What source and sink connectors have in common."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from drover.config.config_def import ConfigDef
from drover.connector.offsets import OffsetChange
from drover.connector.other_settings import OtherSettings
from drover.errors import Violation


def _ignore() -> None:
    return None


def _raise(error: BaseException) -> None:
    raise error


@dataclass(frozen=True, slots=True)
class ConnectorContext:
    """What a running connector may ask of the worker; its functions may be called on any thread.

    ``request_reconfiguration()`` has ``task_configs`` called again, soon. ``fail(error)`` makes the
    connector FAILED with the error's trace. ``config_texts`` is the config as it was written.
    """

    connector: str
    request_reconfiguration: Callable[[], None] = _ignore
    fail: Callable[[BaseException], None] = _raise
    config_texts: Mapping[str, str] = field(default_factory=dict)


class Guarantee(StrEnum):
    """How often each record arrives, whatever is killed and suspended on the way."""

    AT_MOST_ONCE = "at most once"
    AT_LEAST_ONCE = "at least once"
    EXACTLY_ONCE = "exactly once"


@dataclass(frozen=True, slots=True)
class Guarantees:
    """What a connector guarantees where topics and offsets are in embedded storage, and on Kafka.

    Claim what a test has shown that kills tasks between a write and its commit.
    """

    embedded: Guarantee
    kafka: Guarantee


#: Of a source whose offsets say exactly where it goes on: they are committed with the records. (On
#: Kafka at least once where workers are told to do without transactions.)
REPLAYED = Guarantees(Guarantee.EXACTLY_ONCE, Guarantee.EXACTLY_ONCE)
#: Of a sink that finds out what it has written already.
ONCE = Guarantees(Guarantee.EXACTLY_ONCE, Guarantee.EXACTLY_ONCE)
#: Of a sink that writes again what it had not committed.
REPEATED = Guarantees(Guarantee.AT_LEAST_ONCE, Guarantee.AT_LEAST_ONCE)


class Connector(ABC):
    """Splits a pipeline into tasks, and may watch the outside world for changes to the split.

    It needs a constructor without arguments; work begins in ``start``. Derive from
    ``SourceConnector`` or ``SinkConnector``.
    """

    #: The plugin's version, shown to operators.
    version: ClassVar[str] = "unknown"
    #: Short names that ``connector.class`` may use as well as the full one.
    aliases: ClassVar[Sequence[str]] = ()
    #: What it makes of settings that it does not have, of connectors whose names are its aliases.
    other_settings: ClassVar[OtherSettings] = OtherSettings()
    #: What it guarantees under its default settings, shown to operators; None for nothing said.
    guarantees: ClassVar[Guarantees | None] = None
    #: Whether records are rows with columns. Then JsonConverter with schemas is the converter where
    #: config and worker name none, and a sink gets values as they are structured. Else records are
    #: bytes: without a converter they pass as they are, and a sink gets bytes in any case.
    structured: ClassVar[bool] = False
    #: Whether a source's bytes are text, for converters and transforms.
    text: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def config_def(cls) -> ConfigDef:
        """The connector's own settings; those of every connector are added."""

    @classmethod
    def validate(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        """Faults that only several settings together show; must not start anything.

        Args:
            config: the parsed settings; those with a fault of their own are absent, so use
                ``config.get``.
        """
        del config
        return ()

    @classmethod
    def alter_offsets(cls, config: Mapping[str, Any], changes: Sequence[OffsetChange]) -> bool:
        """The committed offsets of a stopped connector are about to be changed by an operator.

        Change what belongs to them in other systems here, and raise an exception with a message for
        the operator to refuse. May be called several times for one change, and the change may still
        fail afterwards (KIP-875).

        Args:
            config: The parsed settings.
            changes: Partitions with their new offsets, None for those that are removed. A sink's
                are ``{"kafka_topic": T, "kafka_partition": P}`` and ``{"kafka_offset": N}``.

        Returns:
            True when nothing is left to change elsewhere. By default False: Drover does not know,
            and tells the operator so.
        """
        del config, changes
        return False

    def start(self, context: ConnectorContext, config: Mapping[str, Any]) -> None:  # noqa: B027 (optional)
        """Begin, with a config that has no faults. Must return soon: watch from a thread."""

    @abstractmethod
    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """What each task does: at most ``max_tasks`` configs, none when there is nothing to do.

        A task sees the connector's config overlaid by its own, so only what tells tasks apart has
        to be here. Called after ``start`` and after each ``request_reconfiguration``.
        """

    def stop(self) -> None:  # noqa: B027 (optional)
        """End what ``start`` began; called once, also when ``start`` failed."""
