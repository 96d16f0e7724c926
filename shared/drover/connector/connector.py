"""The common part of source and sink connectors."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from drover.config.config_def import ConfigDef
from drover.connector.offsets import OffsetChange
from drover.connector.other_settings import OtherSettings, RawConfig
from drover.convert.converter import Converter
from drover.errors import Violation


def _ignore() -> None:
    return None


def _raise(error: BaseException) -> None:
    raise error


@dataclass(frozen=True, slots=True)
class ConnectorContext:
    """The functions of the worker that a running connector may call, on any thread.

    Attributes:
        connector: The connector's name.
        request_reconfiguration: Requests that ``task_configs`` is called again soon.
        fail: Makes the connector FAILED, with the error's trace.
        config_texts: The config as it was written, before it was parsed.
        offsets: Returns the committed (partition, offset) pairs of the connector; blocks, and
            raises UnavailableError if the coordinator does not answer.
        is_preview: Whether only a preview uses the connector, which may not exist.
    """

    connector: str
    request_reconfiguration: Callable[[], None] = _ignore
    fail: Callable[[BaseException], None] = _raise
    config_texts: Mapping[str, str] = field(default_factory=dict)
    offsets: Callable[[], Sequence[tuple[dict[str, Any], dict[str, Any]]]] = list
    is_preview: bool = False


class Guarantee(StrEnum):
    """The delivery guarantee of each record, if processes are killed and suspended."""

    AT_MOST_ONCE = "at most once"
    AT_LEAST_ONCE = "at least once"
    EXACTLY_ONCE = "exactly once"


@dataclass(frozen=True, slots=True)
class Guarantees:
    """The delivery guarantees of a connector: one for topics and offsets in embedded storage, one
    for topics and offsets on Kafka.

    Declare only a guarantee that a test has verified by killing tasks between a write and its
    commit.
    """

    embedded: Guarantee
    kafka: Guarantee


#: For a source whose offsets determine exactly where it resumes; offsets are committed together
#: with the records. (On Kafka at least once if the workers' transactions are disabled.)
REPLAYED = Guarantees(Guarantee.EXACTLY_ONCE, Guarantee.EXACTLY_ONCE)
#: For a sink that detects which records it has written already.
ONCE = Guarantees(Guarantee.EXACTLY_ONCE, Guarantee.EXACTLY_ONCE)
#: For a sink that writes uncommitted records again.
REPEATED = Guarantees(Guarantee.AT_LEAST_ONCE, Guarantee.AT_LEAST_ONCE)


class Connector(ABC):
    """Splits a pipeline into tasks, and may watch an external system for changes of the split.

    Derive from ``SourceConnector`` or ``SinkConnector``. The constructor must have no required
    arguments; start work in ``start``.
    """

    #: The plugin's version, shown to operators.
    version: ClassVar[str] = "unknown"
    #: Short names that ``connector.class`` accepts besides the full name.
    aliases: ClassVar[Sequence[str]] = ()
    #: How to handle settings of other connectors, for a connector whose aliases include the class
    #: names of these connectors.
    other_settings: ClassVar[OtherSettings] = OtherSettings()
    #: The delivery guarantees with default settings, shown to operators; None if not declared.
    guarantees: ClassVar[Guarantees | None] = None
    #: Whether records are rows with columns. If so, the default converter, if neither the config
    #: nor the worker names one, is JsonConverter with schemas, and a sink receives structured
    #: values. Otherwise records are bytes: without a converter they stay unchanged, and a sink
    #: always receives bytes.
    structured: ClassVar[bool] = False
    #: Whether the bytes of a source are text, for converters and transforms.
    text: ClassVar[bool] = False
    #: The converter, with its default settings, of the bytes that the connector exchanges with
    #: converters and transforms of Drover, if its config has any. None: a source's bytes are data,
    #: and a sink receives printed values.
    exchanged: ClassVar[type[Converter] | None] = None
    #: Whether the parsed config also has the texts of all settings, as CONFIG_TEXTS of
    #: ``drover.connector.settings``, for a connector that passes its config to another program.
    needs_config_texts: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def config_def(cls) -> ConfigDef:
        """The connector's own settings; Drover adds the settings that all connectors have."""

    @classmethod
    def config_def_for(cls, raw: RawConfig) -> ConfigDef:
        """The settings of ``config_def``, and the settings of further classes that a config names.

        Args:
            raw: The config, with Drover's names of settings (``other_settings``).
        """
        del raw
        return cls.config_def()

    @classmethod
    def validate(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        """Check rules that involve several settings, without calls to other systems.

        Args:
            config: The parsed settings. Invalid settings are absent, so use ``config.get``.

        Returns:
            All violations; a ``Caution`` is a warning and does not make the config invalid.
        """
        del config
        return ()

    @classmethod
    def check_systems(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        """Check the settings with the systems that they name: can they be reached, do they accept
        the credentials, does the table exist. Must change nothing there.

        Called after ``validate`` if all settings are valid, for callers who may run the connector,
        in a process that is killed when its time is up.

        Args:
            config: The parsed settings.

        Returns:
            All violations; ``SkippedCheck`` for checks that are not possible at the moment.
        """
        del config
        return ()

    @classmethod
    def alter_offsets(cls, config: Mapping[str, Any], changes: Sequence[OffsetChange]) -> bool:
        """Called before an operator changes the committed offsets of a stopped connector (KIP-875).

        Make the matching change in external systems here, or raise an exception to reject the
        change; the operator sees its message. May be called several times for one change, and the
        change may still fail after this call.

        Args:
            config: The parsed settings.
            changes: Partitions with their new offsets; None for an offset that is removed. For a
                sink, partitions are ``{"kafka_topic": T, "kafka_partition": P}`` and offsets
                ``{"kafka_offset": N}``.

        Returns:
            Whether all state in external systems matches the change. False by default: Drover does
            not know, and reports this to the operator.
        """
        del config, changes
        return False

    def start(self, context: ConnectorContext, config: Mapping[str, Any]) -> None:  # noqa: B027 (optional)
        """Start, with a valid config. Must return soon: watch external systems from a thread."""

    @abstractmethod
    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """Split the work into task configs: at most ``max_tasks``, none if there is no work.

        Called after ``start`` and after each ``request_reconfiguration``. A task's config is the
        connector's config, overridden by the config returned here, so return only the settings in
        which tasks differ.
        """

    def stop(self) -> None:  # noqa: B027 (optional)
        """Release what ``start`` acquired; called once, also if ``start`` failed."""
