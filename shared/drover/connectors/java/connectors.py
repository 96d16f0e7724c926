"""Makes a connector class of a Java class."""

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from types import new_class
from typing import Any, ClassVar

from drover.connector import (
    REPEATED,
    REPLAYED,
    ConfigDef,
    Connector,
    ConnectorContext,
    OffsetChange,
    SinkConnector,
    SourceConnector,
    Violation,
)
from drover.connector.exactly_once_settings import EXACTLY_ONCE_SUPPORT, REQUIRED
from drover.connector.other_settings import RawConfig
from drover.connector.task import preview_owner
from drover.connectors.java.chain import HostSettings, hosted_config
from drover.connectors.java.hosted_settings import hosted_config_def
from drover.connectors.java.made_classes import python_class
from drover.connectors.java.places import has_class, hosting, plugins_of
from drover.connectors.java.settings import (
    CONFIG_TEXTS,
    JAVA_SETTINGS,
    PREVIEW,
    SOURCE_SETTINGS,
    TASK_CLASS,
    TASK_LACKS,
    task_changes,
)
from drover.connectors.java.tasks import (
    JavaSinkTask,
    JavaSourceTask,
    JavaTaskError,
    hanging,
)
from drover.convert.json_converter import JsonConverter
from drover.errors import DroverError
from drover.java_plugins.allowed import (
    class_fault,
    client_setting_violations,
    worker_catalogue,
)
from drover.java_plugins.catalogue import JavaClass, Kind
from drover.java_plugins.class_settings import settings_of
from drover.java_plugins.describe import config_def, from_document, validate
from drover.java_plugins.host import (
    CALL_LIMIT,
    HOSTS,
    Host,
    Lease,
    describing_jvm,
    disposable,
    limit_s,
)
from drover.java_plugins.places import plugin_home
from drover.java_plugins.wire import JavaCallError, JavaCallHangsError, JavaHostEndedError
from drover.model.dead_letters import REPLAY
from drover.policy.client_settings import OverridePolicy

_EVENTS_WAIT_MS = 1_000
_SUPPORTED = "SUPPORTED"
#: The plugin's methods, by the calls of the host that execute them.
_METHODS = {
    "alter_offsets": "alterOffsets()",
    "definition": "config()",
    "start_connector": "start()",
    "stop_connector": "stop()",
    "task_configs": "taskConfigs()",
}
#: Settings of every connector, which Drover checks.
_OF_DROVER = frozenset(
    {"name", "connector.class", "tasks.max", "topics", "topics.regex", "transforms", "predicates"}
)


class _JavaConnector(Connector):
    """A connector in the host."""

    java_class: ClassVar[JavaClass]
    #: Whether the class is for running connectors: its settings are asked of the host that runs
    #: them. Otherwise each call of the plugin has a JVM that ends with it.
    in_engine: ClassVar[bool]
    #: Whether its context has a reader of the committed offsets.
    reads_offsets: ClassVar[bool] = False
    needs_config_texts = True

    def __init__(self) -> None:
        self._lease: Lease | None = None
        self._texts: Mapping[str, str] = {}
        self._run: int | None = None
        self._stopped = threading.Event()

    @classmethod
    def config_def(cls) -> ConfigDef:
        """The plugin's settings, and Drover's for its host."""
        find = _settings_of_host if cls.in_engine else _settings
        return JAVA_SETTINGS | find(cls.java_class)

    @classmethod
    def config_def_for(cls, raw: RawConfig) -> ConfigDef:
        """Also the settings of the converters, transforms and predicates that run in the host."""
        # a running connector was validated before it was stored
        return cls.config_def() if cls.in_engine else cls.config_def() | hosted_config_def(raw)

    @classmethod
    def validate(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        """Reject settings of the plugin's Kafka clients that would load code."""
        texts = config[CONFIG_TEXTS]
        faults = list(client_setting_violations(texts, OverridePolicy.of_worker()))
        if TASK_LACKS in texts:
            faults.append(Violation(TASK_LACKS, "is set by Drover for each task: remove it"))
        return faults

    @classmethod
    def check_systems(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        """The plugin's own validation, in a JVM without configs of other connectors.

        It may connect to the systems that the config names.
        """
        if cls.in_engine:  # it was validated before it was stored
            return ()
        texts = _texts(cls.java_class, config[CONFIG_TEXTS])
        found = validate(describing_jvm(), cls.java_class.path, cls.java_class.name, texts)
        faults = [Violation(each.name, error) for each in found.values for error in each.errors]
        wants_once = config.get(EXACTLY_ONCE_SUPPORT) == REQUIRED
        if wants_once and not faults and found.exactly_once_support != _SUPPORTED:
            faults.append(
                Violation(
                    EXACTLY_ONCE_SUPPORT,
                    f"cannot be {REQUIRED}: the plugin does not declare that it supports it",
                )
            )
        return faults

    @classmethod
    def alter_offsets(cls, config: Mapping[str, Any], changes: Sequence[OffsetChange]) -> bool:
        """Ask the plugin."""
        hosted = hosting(cls.java_class, _texts(cls.java_class, config[CONFIG_TEXTS]))
        with disposable(hosted.plugins) as host:
            found = _called(
                cls.java_class,
                host,
                "alter_offsets",
                config=hosted.config,
                changes=[list(each) for each in changes],
            )
        return bool(found["matches"])

    def start(self, context: ConnectorContext, config: Mapping[str, Any]) -> None:
        """See Connector."""
        del config
        texts = self.other_settings.translated(context.config_texts, ()).config
        hosted = hosting(self.java_class, _texts(self.java_class, texts))
        self._texts = hosted.config
        owner = preview_owner(context.connector) if context.is_preview else ""
        self._lease = HOSTS.use(hosted.plugins, owner)
        found = self._called(
            "start_connector",
            connector=context.connector,
            config=self._texts,
            offsets=self._offsets(context),
        )
        self._run = found["run"]
        threading.Thread(
            target=self._watch, args=(context,), name=f"java:{context.connector}", daemon=True
        ).start()

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """See Connector."""
        found = self._called("task_configs", run=self._run, max=max_tasks)
        chosen = {TASK_CLASS: found["task_class"]}  # a null setting counts as missing
        return [task_changes(self._texts, {**each, **chosen}) for each in found["configs"]]

    def stop(self) -> None:
        """See Connector."""
        self._stopped.set()
        if self._lease is None:
            return
        try:
            if self._run is not None and self._lease.host.is_running:
                self._called("stop_connector", run=self._run)
        finally:
            self._lease.release()

    def _called(self, name: str, **arguments: Any) -> dict[str, Any]:
        assert self._lease is not None
        return _called(self.java_class, self._lease.host, name, **arguments)

    def _watch(self, context: ConnectorContext) -> None:
        """Pass on what the plugin requests, until the connector is stopped."""
        while not self._stopped.is_set():
            try:
                found = self._called("connector_events", run=self._run, wait_ms=_EVENTS_WAIT_MS)
            except (JavaHostEndedError, JavaTaskError) as error:
                if not self._stopped.is_set():
                    context.fail(error)
                return
            if found.get("ended"):
                return
            if found["wants_offsets"]:
                self._answer_offsets(context)
            if found["reconfigure"]:
                context.request_reconfiguration()
            if "error" in found:
                name = self.java_class.name
                context.fail(JavaTaskError(f"{name} raised an error: {found['error']}"))

    def _answer_offsets(self, context: ConnectorContext) -> None:
        """Answer the plugin's offset reader, which waits for it."""
        try:
            answer: dict[str, Any] = {"offsets": self._offsets(context)}
        except DroverError as error:
            answer = {"error": error.message}
        with suppress(JavaHostEndedError, JavaTaskError):  # the next call reports it
            self._called("connector_offsets", run=self._run, **answer)

    def _offsets(self, context: ConnectorContext) -> Sequence[Any]:
        """The committed offsets that the plugin may read; a sink reads none."""
        return [list(each) for each in context.offsets()] if self.reads_offsets else []


class JavaSource(_JavaConnector, SourceConnector):
    """A Java source; subclasses are made for each class."""

    #: The poll of a Java source may acknowledge records at its server.
    poll_has_effects = True
    reads_offsets = True
    guarantees = REPLAYED
    task_class = JavaSourceTask
    exchanged = JsonConverter

    @classmethod
    def config_def(cls) -> ConfigDef:
        """The plugin's settings, and Drover's for its host."""
        return SOURCE_SETTINGS | super().config_def()

    @classmethod
    def preview_refusal(cls, config: Mapping[str, Any]) -> str:
        """See SourceConnector."""
        if config[PREVIEW]:
            return ""
        return (
            f"{cls.java_class.name} cannot be previewed: poll() of a Java source may change the "
            f"system that it reads. {PREVIEW}=true in the config permits it"
        )

    @classmethod
    def validate(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        """Also reject replays, which would leave out the steps that run in the host."""
        faults = list(super().validate(config))
        if config[CONFIG_TEXTS].get(REPLAY):
            faults.append(
                Violation(
                    REPLAY,
                    "cannot replay dead letters of a Java source: its converters and transforms "
                    "run in the plugin's JVM, which takes records of the source only. Correct the "
                    "records at the source, or write them to the topic with a producer",
                )
            )
        return faults


class JavaSink(_JavaConnector, SinkConnector):
    """A Java sink; subclasses are made for each class."""

    guarantees = REPEATED
    task_class = JavaSinkTask
    exchanged = JsonConverter


@lru_cache(maxsize=1_000)
def connector_of(java_class: JavaClass, *, in_engine: bool) -> type[Connector]:
    """The connector class of a Java class; ``in_engine`` if it is for running connectors."""
    is_source = java_class.kind is Kind.SOURCE
    base: type[Any] = JavaSource if is_source else JavaSink
    task_base: type[Any] = JavaSourceTask if is_source else JavaSinkTask
    package, _, simple = java_class.name.rpartition(".")
    task = new_class(
        f"{simple}Task",
        (task_base,),
        exec_body=lambda body: body.update(java_class=java_class, __module__=package),
    )
    made: type[Connector] = python_class(
        java_class,
        base,
        in_engine=in_engine,
        task_class=task,
        other_settings=HostSettings(
            passed_on=("*",),
            is_source=is_source,
            has_class=has_class,
            in_plugin=lambda name: _in_plugin(java_class, name),
            class_fault=class_fault,
        ),
    )
    return made


def _in_plugin(java_class: JavaClass, name: str) -> bool:
    """Whether the plugin of a connector has the class ``name``."""
    return any(
        each.name == name and each.plugin == java_class.plugin
        for each in worker_catalogue().classes
    )


def _texts(java_class: JavaClass, texts: Mapping[str, str | None]) -> dict[str, str]:
    return {**hosted_config(texts), "connector.class": java_class.name}


def _called(java_class: JavaClass, host: Host, name: str, **arguments: Any) -> dict[str, Any]:
    seconds = limit_s(CALL_LIMIT)
    try:
        return host.address.call_within(seconds, name, **arguments)
    except JavaCallHangsError:
        method = _METHODS.get(name, name)
        raise hanging(host, java_class, method, seconds=seconds, limit=CALL_LIMIT[0]) from None
    except JavaCallError as error:
        raise JavaTaskError(
            f"{name.replace('_', ' ')} of {java_class.name} ({java_class.plugin}) failed: {error}\n"
            f"{error.trace}"
        ) from error


@lru_cache(maxsize=1_000)
def _settings(java_class: JavaClass) -> ConfigDef:
    """The plugin's settings, asked of a JVM once.

    Raises:
        JavaPluginError: The plugin fails or does not answer.
    """
    return _own(config_def(settings_of(java_class, describing_jvm(), plugin_home())))


@lru_cache(maxsize=1_000)
def _settings_of_host(java_class: JavaClass) -> ConfigDef:
    """The plugin's settings, asked of the host that runs its connectors."""
    lease = HOSTS.use(plugins_of(java_class, {}))
    try:
        found = _called(java_class, lease.host, "definition", **{"class": java_class.name})
    finally:
        lease.release()
    return _own(config_def(from_document(found)))


def _own(definition: ConfigDef) -> ConfigDef:
    return ConfigDef(*(each for each in definition if each.name not in _OF_DROVER))
