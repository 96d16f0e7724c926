"""Compares the connectors of Kafka Connect with what Drover does with their configs. Pure."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from drover.config.class_registry import ClassRegistry
from drover.config.providers import BUILT_IN_NAMES
from drover.config.resolution import placeholder_providers
from drover.config.secret_texts import SecretTexts
from drover.connector import SourceConnector
from drover.connector.connector import Connector
from drover.connector.record_settings import (
    CONVERTER_SETTINGS,
    HEADER_CONVERTER,
    with_worker_converters,
)
from drover.connector.settings import CONNECTOR_CLASS
from drover.convert.registry import CONVERTERS
from drover.migrate.files import connector_id
from drover.migrate.read import OldCluster, OldConnector, OldTask
from drover.migrate.secrets import Placeholder, placeholder, secret_settings
from drover.migrate.worker_properties import WorkerProperties, provider_fault
from drover.model.config import CONSUMER_GROUP_SETTING, OFFSETS_TOPIC_SETTING, setting_text
from drover.model.names import connector_name_violations
from drover.model.secrets import MASK
from drover.model.sink_offsets import group_of
from drover.policy.consumer_groups import sink_group_violations
from drover.transform.registry import PREDICATES, TRANSFORMS

#: What placeholders name in a report without files.
_NO_FILE = "/run/secrets/kafka-connect.properties"
_TOPIC_CREATION = "topic.creation."
_TEXT_MAX_CHARS = 1_000
_FOUND_MAX = 200

_JAVA_HOST = "it needs the Java host, which this version does not have"
#: It keeps its offsets in a group of its control topic, see the section "Source topic offsets" of
#: the README of github.com/databricks/iceberg-kafka-connect.
_TABULAR_SINK = "io.tabular.iceberg.connect.IcebergSinkConnector"
_CONTROL_GROUP = "iceberg.control.group-id"
_STAY = "leave the connector in Kafka Connect"
_CHANGE = "change the setting in the written definition before the connector moves"
_RENAME = "create the connector under another name in Kafka Connect, and move that one"
_OTHER_GROUP = (
    f"set {CONSUMER_GROUP_SETTING} in the written definition to a group in ASCII, and copy the "
    "group's offsets to it with kafka-consumer-groups.sh while the connector is stopped"
)


class Verdict(StrEnum):
    """What happens to a connector that moves.

    UNCHANGED: it runs with its config as it is.
    DIFFERS: it runs, and differs as listed, or has to be changed first.
    NEEDS_JAVA_HOST: one of its classes has no equivalent here; Kafka Connect has its jar.
    MISSING: one of its classes has no equivalent here, and Kafka Connect does not list it either.
    """

    UNCHANGED = "unchanged"
    DIFFERS = "differs"
    NEEDS_JAVA_HOST = "needs_java_host"
    MISSING = "missing"


class Kind(StrEnum):
    """The kind of a difference."""

    CLASS = "class"
    FAULT = "fault"
    WARNING = "warning"
    MEANING = "meaning"
    PROVIDER = "provider"
    OFFSETS = "offsets"
    NAME = "name"


@dataclass(frozen=True, slots=True)
class Finding:
    """A text about a setting."""

    setting: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """The validation of a config.

    Attributes:
        runs_as: The short name of the connector here; empty if there is none.
        missing: Why there is none.
        guarantee: The connector's delivery guarantee on Kafka.
        faults: What prevents that it is created.
        warnings: What has no effect, or may be a mistake.
        skipped: Checks that were not made.
        secret_settings: The settings that are passwords here.
        plain_settings: The settings that have another type here.
    """

    runs_as: str = ""
    missing: str = ""
    guarantee: str = ""
    faults: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()
    skipped: tuple[Finding, ...] = ()
    secret_settings: frozenset[str] = frozenset()
    plain_settings: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference, and what to do.

    Attributes:
        kind: Its kind.
        setting: The setting; empty if it is about none.
        text: What differs.
        action: What to do.
    """

    kind: Kind
    setting: str
    text: str
    action: str


@dataclass(frozen=True, slots=True)
class Target:
    """Where the connectors move.

    Attributes:
        address: The address of the cluster; empty if configs are checked by the installed library.
        names: The connectors that exist there.
    """

    address: str = ""
    names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The report about one connector.

    Attributes:
        old: The connector, whose config may have secrets.
        verdict: The verdict.
        runs_as: The connector here; empty if there is none.
        cause: The cause of the failure of the connector itself, without secrets.
        tasks: Its tasks' statuses, with causes without secrets.
        differences: What differs.
        notes: What is good to know, and changes nothing.
        secrets: The settings with secrets in clear.
        delivery_before: The delivery guarantee in Kafka Connect.
        delivery_after: The delivery guarantee here.
        offsets_place: Where its offsets are.
        offsets_readable: Whether the connector here can read its offsets; None if not known.
        definition: The config to write: with placeholders, and with the workers' converters.
        can_move: Whether its definition is valid as it is.
    """

    old: OldConnector
    verdict: Verdict
    runs_as: str = ""
    cause: str = ""
    tasks: tuple[OldTask, ...] = ()
    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()
    secrets: tuple[Placeholder, ...] = ()
    delivery_before: str = ""
    delivery_after: str = ""
    offsets_place: str = ""
    offsets_readable: bool | None = None
    definition: Mapping[str, str] = field(default_factory=dict, repr=False)
    can_move: bool = False

    @property
    def topic_creation(self) -> dict[str, str]:
        """The settings with which its topics were created."""
        return {
            name: value
            for name, value in self.old.config.items()
            if name.startswith(_TOPIC_CREATION)
        }


@dataclass(frozen=True, slots=True)
class Report:
    """The report about a cluster."""

    cluster: OldCluster
    target: Target
    worker: WorkerProperties | None
    connectors: tuple[Finished, ...]

    def count(self, verdict: Verdict) -> int:
        """The number of connectors with a verdict."""
        return sum(each.verdict is verdict for each in self.connectors)

    @property
    def is_complete(self) -> bool:
        """Whether every connector was read, and runs here, perhaps after changes."""
        lacking = self.count(Verdict.MISSING) + self.count(Verdict.NEEDS_JAVA_HOST)
        return not (lacking or self.cluster.unread)


def effective_config(old: OldConnector, worker: WorkerProperties | None) -> dict[str, str]:
    """The config with the workers' converters, where it names none."""
    # a config of an old version may have another name, which no newer version accepts
    config = {**old.config, "name": old.name}
    return with_worker_converters(config, worker.converters) if worker else config


def check_cluster(
    cluster: OldCluster,
    validations: Mapping[str, Validation],
    *,
    target: Target,
    worker: WorkerProperties | None,
    find: Callable[[str], type[Connector] | None],
    secrets_file: str = "",
) -> Report:
    """The report about a cluster.

    Args:
        cluster: What was read.
        validations: The validation of each connector's ``effective_config``, by its name.
        target: Where the connectors move.
        worker: The workers' properties; None if not known.
        find: Finds an installed connector, to compare the form of offsets.
        secrets_file: The file that placeholders name; empty if no files are written.
    """
    finished = []
    for old in cluster.connectors:
        check = _Check(cluster, old, validations[old.name], target, worker, find(old.class_name))
        finished.append(check.finished(secrets_file or _NO_FILE))
    return Report(cluster, target, worker, tuple(finished))


class _Check:
    """The check of one connector."""

    def __init__(
        self,
        cluster: OldCluster,
        old: OldConnector,
        validation: Validation,
        target: Target,
        worker: WorkerProperties | None,
        installed: type[Connector] | None,
    ) -> None:
        self._cluster = cluster
        self._old = old
        self._validation = validation
        self._target = target
        self._worker = worker
        self._installed = installed
        self._config = effective_config(old, worker)

    def finished(self, secrets_file: str) -> Finished:
        """The report about it."""
        found = self._validation
        secrets = self._secrets(secrets_file)
        hidden = self._hidden(secrets)
        missing = list(self._missing_classes())
        readable = self._offsets_readable()
        differences = [
            *(each for each, _ in missing),
            *self._faults({each.setting for each, _ in missing}),
            *self._warnings(),
            *self._meanings(),
            *self._providers(),
            *self._offsets(readable),
            *self._names(),
        ]
        shown = tuple(
            Difference(each.kind, each.setting, hidden(each.text), hidden(each.action))
            for each in differences[:_FOUND_MAX]
        )
        blocking = {Kind.CLASS, Kind.FAULT, Kind.NAME, Kind.PROVIDER}
        return Finished(
            old=self._old,
            verdict=_verdict(differences, [verdict for _, verdict in missing]),
            runs_as=found.runs_as,
            cause=hidden(self._old.cause),
            tasks=tuple(
                OldTask(each.number, each.state, hidden(each.cause)) for each in self._old.tasks
            ),
            differences=shown,
            notes=tuple(map(hidden, self._notes(secrets))),
            secrets=secrets,
            delivery_before=self._delivery_before(),
            delivery_after=self._delivery_after(),
            offsets_place=self._offsets_place(),
            offsets_readable=readable,
            definition={**self._config, **{each.setting: each.text for each in secrets}},
            can_move=not any(each.kind in blocking for each in differences),
        )

    def _secrets(self, file: str) -> tuple[Placeholder, ...]:
        found = secret_settings(
            self._config,
            passwords={
                *self._validation.secret_settings,
                *self._cluster.secret_settings.get(self._old.class_name, ()),
            },
            plain=self._validation.plain_settings,
        )
        own = connector_id(self._old.name)
        return tuple(placeholder(own, each, file) for each in found)

    def _hidden(self, secrets: Collection[Placeholder]) -> Callable[[str], str]:
        """Replaces the secrets in texts, which the old or the new cluster wrote."""
        texts = SecretTexts()
        texts.add({self._config[each.setting]: MASK for each in secrets})
        return lambda text: texts.hidden(text)[:_TEXT_MAX_CHARS]

    def _missing_classes(self) -> Iterator[tuple[Difference, Verdict]]:
        found = self._validation
        named = [(CONNECTOR_CLASS, self._old.class_name, found.missing)] if found.missing else []
        named += [
            (fault.setting, self._config.get(fault.setting, ""), fault.text)
            for fault in found.faults
            if _is_unknown_class(fault.setting, self._config.get(fault.setting, ""))
        ]
        for setting, class_name, text in named:
            plugins = self._cluster.plugins
            has_jar = plugins is None or class_name.strip() in plugins
            if not class_name.strip():
                yield Difference(Kind.CLASS, setting, text, "name a class"), Verdict.MISSING
            elif has_jar:
                action = f"{_JAVA_HOST}: use the nearest class here, or {_STAY}"
                yield Difference(Kind.CLASS, setting, text, action), Verdict.NEEDS_JAVA_HOST
            else:
                action = (
                    "Kafka Connect does not list the class either: install its plugin there, use "
                    "the nearest class here, or delete the connector"
                )
                yield Difference(Kind.CLASS, setting, text, action), Verdict.MISSING

    def _faults(self, missing: Collection[str]) -> Iterator[Difference]:
        of_group = {each.description for each in sink_group_violations(self._config)}
        for each in self._validation.faults:
            if each.setting not in missing:
                action = _OTHER_GROUP if each.text in of_group else _CHANGE
                yield Difference(Kind.FAULT, each.setting, each.text, action)

    def _warnings(self) -> Iterator[Difference]:
        for each in self._validation.warnings:
            action = "remove the setting, or replace it as described"
            yield Difference(Kind.WARNING, each.setting, each.text, action)

    def _meanings(self) -> Iterator[Difference]:
        if self._validation.missing:
            return
        unset = [
            each
            for each in CONVERTER_SETTINGS
            if self._config.get(each) is None and each != HEADER_CONVERTER
        ]
        if unset and self._worker is None:
            yield Difference(
                Kind.MEANING,
                unset[0],
                f"the config does not set {' and '.join(unset)}: Kafka Connect uses the worker's "
                "converters, which its REST API does not show",
                "give the worker's properties with --worker-properties, or set the converters",
            )

    def _providers(self) -> Iterator[Difference]:
        known = self._worker.provider_classes if self._worker else {}
        names = {each for text in self._config.values() for each in placeholder_providers(text)}
        for name in sorted(names):
            settings = sorted(
                setting
                for setting, text in self._config.items()
                if name in placeholder_providers(text)
            )
            class_name = known.get(name) or (name if name in BUILT_IN_NAMES else "")
            fault = provider_fault(class_name) if class_name else ""
            if fault:
                action = "use one of file, directory or env, or a provider plugin"
                yield Difference(Kind.PROVIDER, settings[0], f"{name}: {fault}", action)
            elif not class_name and not self._target.address:
                yield Difference(
                    Kind.MEANING,
                    settings[0],
                    f"the class of the config provider {name} is not known",
                    "give the worker's properties with --worker-properties, and define the "
                    "provider in DROVER_CONFIG_PROVIDERS",
                )

    def _offsets_readable(self) -> bool | None:
        """Whether the connector here reads the committed offsets; a sink's always are."""
        if self._old.offsets is None or self._installed is None:
            return None
        if not issubclass(self._installed, SourceConnector):
            return True
        forms = self._installed.offset_forms
        return not forms or all(
            any(each.fits(partition, offset) for each in forms)
            for partition, offset in self._old.offsets
            if offset is not None
        )

    def _offsets(self, readable: bool | None) -> Iterator[Difference]:
        if readable is False:
            yield Difference(
                Kind.OFFSETS,
                "",
                "the committed offsets have a form that the connector here cannot read, and its "
                "tasks would fail",
                "give the connector another name, or reset its offsets "
                "(drover connector offsets NAME --reset): it then starts from the beginning",
            )
        if self._old.class_name == _TABULAR_SINK:
            group_id = setting_text(self._config, _CONTROL_GROUP) or f"cg-control-{self._old.name}"
            yield Difference(
                Kind.OFFSETS,
                _CONTROL_GROUP,
                f"its offsets are in the consumer group {group_id}; the group {self._group_id()}, "
                "which is used here, may have older ones",
                "stop the connector in Kafka Connect, and copy the offsets of the first group to "
                "the second one with kafka-consumer-groups.sh, before the connector moves",
            )

    def _group_id(self) -> str:
        return setting_text(self._config, CONSUMER_GROUP_SETTING) or group_of(self._old.name)

    def _names(self) -> Iterator[Difference]:
        if self._old.name in self._target.names:
            yield Difference(
                Kind.NAME,
                "name",
                "the target cluster has a connector with this name",
                "delete or rename one of the two",
            )
        if not any(each.setting == "name" for each in self._validation.faults):
            for each in connector_name_violations(self._old.name):
                yield Difference(Kind.NAME, "name", each.description, _RENAME)

    def _notes(self, secrets: Collection[Placeholder]) -> Iterator[str]:
        if secrets:
            names = ", ".join(each.setting for each in secrets)
            yield (
                f"secrets in clear in Kafka Connect: {names}. The written definition has "
                "placeholders: put the values into the file that they name"
            )
        for each in self._validation.skipped:
            yield f"not checked: {f'{each.setting}: ' if each.setting else ''}{each.text}"
        if self._config.get(OFFSETS_TOPIC_SETTING):
            yield (
                f"{OFFSETS_TOPIC_SETTING}: it keeps its offsets in a separate topic, which is used "
                "here too if sources deliver exactly once"
            )
        if self._validation.runs_as == "FileStreamSource":
            yield (
                "only \\n ends a line here, \\r is part of it; positions count bytes, as in Kafka "
                "Connect for ASCII text: after the move lines with other characters may be read "
                "again"
            )

    def _offsets_place(self) -> str:
        if self._old.kind == "sink":
            return f"consumer group {self._group_id()}"
        topic = self._config.get(OFFSETS_TOPIC_SETTING)
        if topic:
            return f"topic {topic}"
        if self._worker:
            return f"topic {self._worker.values['offset.storage.topic'].strip()}"
        return "the workers' offsets topic"

    def _delivery_before(self) -> str:
        if self._old.kind == "sink":
            return "at least once, or as its connector documents"
        if self._worker is None:
            return "not known: exactly.once.source.support is a setting of the worker"
        if self._worker.exactly_once:
            return "exactly once, if its connector supports it"
        return "at least once"

    def _delivery_after(self) -> str:
        guarantee = self._validation.guarantee
        if not guarantee:
            return "not known" if self._validation.runs_as else "none"
        if self._old.kind == "source" and guarantee == "exactly once":
            if self._worker is not None and not self._worker.exactly_once:
                return "at least once over the same topics; exactly once in separate topics"
            return guarantee
        return guarantee


def _is_unknown_class(setting: str, class_name: str) -> bool:
    """Whether a setting names a converter, transform or predicate that does not exist here."""
    registry: ClassRegistry[Any]
    if setting in CONVERTER_SETTINGS:
        registry = CONVERTERS
    elif setting.startswith("transforms.") and setting.endswith(".type"):
        registry = TRANSFORMS
    elif setting.startswith("predicates.") and setting.endswith(".type"):
        registry = PREDICATES
    else:
        return False
    try:
        registry.find(class_name)
    except ValueError:
        return True
    return False


def _verdict(differences: Collection[Difference], missing: Collection[Verdict]) -> Verdict:
    if Verdict.MISSING in missing:
        return Verdict.MISSING
    if missing:
        return Verdict.NEEDS_JAVA_HOST
    return Verdict.DIFFERS if differences else Verdict.UNCHANGED
