"""Converts the worker's views into messages of the admin API, with secrets masked."""

from collections.abc import Collection, Mapping, Sequence

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.api.engine.v1 import engine_pb2
from drover.codec.connect import (
    TARGET_STATES,
    encode_connector_status,
    encode_connector_type,
)
from drover.config.secret_texts import SecretTexts
from drover.errors import Caution, SkippedCheck, Violation
from drover.model.config import ConfigMap
from drover.model.secrets import MASK
from drover_worker.admin.masking import Masking, masked_default, masked_value
from drover_worker.core.context import Context
from drover_worker.shell.engine_violations import violations_on_all
from drover_worker.shell.known_plugins import KnownPlugins


class ConnectorViews:
    """Messages for the herder's views; plugins declare types and secret settings."""

    def __init__(
        self, context: Context, plugins: KnownPlugins, providers: Collection[str] = ()
    ) -> None:
        self._context = context
        self._plugins = plugins
        self._masking = Masking(plugins, providers)

    def class_names(self) -> set[str]:
        """The values of connector.class of all connectors."""
        return {_class_of(entry.config or {}) for entry in self._context.view.connectors.values()}

    def connector(self, name: str, *, show_undefined: bool) -> pb.Connector:
        """The message of an existing connector."""
        view = self._context.view
        entry = view.connectors[name]
        return pb.Connector(
            name=name,
            config=self.masked(
                entry.config or {}, entry.config or {}, show_undefined=show_undefined
            ),
            type=encode_connector_type(self.type_of(entry.config or {})),
            target_state=TARGET_STATES.encode(entry.target_state),
            task_indexes=sorted(view.tasks(name)),
            revision=entry.config_revision,
        )

    def secrets(self, name: str) -> dict[str, str]:
        """The settings of an existing connector that ``connector`` masks for every caller."""
        config = self._context.view.config(name) or {}
        masked = self.masked(config, config, show_undefined=True)
        return {key: value for key, value in config.items() if masked[key] != value}

    def find_connector(self, name: str) -> pb.Connector | None:
        """The message of a connector for a caller who changed it; None if it does not exist."""
        if name not in self._context.view.connectors:
            return None
        return self.connector(name, show_undefined=True)

    def find_status(self, name: str) -> pb.ConnectorStatus | None:
        """A connector's status; None if it does not exist."""
        return self.status(name) if name in self._context.view.connectors else None

    def status(self, name: str) -> pb.ConnectorStatus:
        """The status of an existing connector and of its configured tasks."""
        return encode_connector_status(
            name,
            self.type_of(self._context.view.config(name) or {}),
            range(len(self._context.view.tasks(name))),
            self._context.statuses,
        )

    def tasks(self, name: str, *, show_undefined: bool) -> list[pb.TaskInfo]:
        """A connector's tasks by index."""
        view = self._context.view
        connector_config = view.config(name) or {}
        return [
            pb.TaskInfo(
                task=index,
                config=self.masked(config, connector_config, show_undefined=show_undefined),
            )
            for index, config in sorted(view.tasks(name).items())
        ]

    def masked(
        self, config: ConfigMap, connector_config: ConfigMap, *, show_undefined: bool
    ) -> dict[str, str]:
        """A connector's or task's config with its secrets masked.

        ``show_undefined``: also show settings that no plugin defines, for callers who may change
        the connector.
        """
        return self._masking.masked(config, connector_config, show_undefined=show_undefined)

    def type_of(self, config: ConfigMap) -> str:
        """Either "source" or "sink"; empty if the plugin is unknown."""
        plugin = self._plugins.find(_class_of(config))
        return plugin.type if plugin else ""


def _class_of(config: ConfigMap) -> str:
    return config.get("connector.class", "")


_GUARANTEES: Mapping[str, pb.Guarantee.ValueType] = {
    "at most once": pb.GUARANTEE_AT_MOST_ONCE,
    "at least once": pb.GUARANTEE_AT_LEAST_ONCE,
    "exactly once": pb.GUARANTEE_EXACTLY_ONCE,
}


def plugin_view(plugin: engine_pb2.Plugin) -> pb.Plugin:
    """The message of a plugin."""
    return pb.Plugin(
        class_name=plugin.class_name,
        aliases=plugin.aliases,
        type=encode_connector_type(plugin.type),
        version=plugin.version,
        description=plugin.description,
        guarantee_embedded=_GUARANTEES.get(plugin.guarantee_embedded, pb.GUARANTEE_UNSPECIFIED),
        guarantee_kafka=_GUARANTEES.get(plugin.guarantee_kafka, pb.GUARANTEE_UNSPECIFIED),
    )


def record_plugin_view(plugin: engine_pb2.RecordPlugin) -> pb.RecordPlugin:
    """The message of a converter, transform or predicate."""
    return pb.RecordPlugin(
        kind=plugin.kind,
        class_name=plugin.class_name,
        aliases=plugin.aliases,
        version=plugin.version,
    )


def key_view(key: engine_pb2.ConfigKey) -> pb.ConfigKey:
    """The message of a plugin's setting; a password's default is masked."""
    shown = pb.ConfigKey(
        name=key.name,
        type=key.type,
        required=key.required,
        importance=key.importance,
        documentation=key.documentation,
        group=key.group,
        valid_values=key.valid_values,
        width=key.width,
        display_name=key.display_name,
        order=key.order,
        dependents=key.dependents,
        common=key.common,
    )
    if key.HasField("default_value"):
        shown.default_value = masked_default(key)
    return shown


def validation_view(
    answer: engine_pb2.ConfigValidation | engine_pb2.Failure,
    of_cluster: Sequence[Violation] = (),
    *,
    show_undefined: bool,
) -> pb.ValidateConfigResponse:
    """The result of a validation: all violations, and the errors of each setting.

    Args:
        answer: The engine's answer.
        of_cluster: See ``ClusterPlugins.faults``.
        show_undefined: As in ``ConnectorViews.masked``.
    """
    violations = violations_on_all(answer, of_cluster)
    response = pb.ValidateConfigResponse(
        error_count=len(violations),
        violations=[
            pb.ConfigViolation(field=v.field, description=v.description) for v in violations
        ],
    )
    cautions = [each for each in of_cluster if isinstance(each, Caution)]
    if isinstance(answer, engine_pb2.ConfigValidation):
        for value in answer.values:
            field = f'config["{value.key.name}"]'
            warnings = [*value.warnings, *(c.description for c in cautions if c.field == field)]
            shown = response.values.add(
                key=key_view(value.key),
                errors=[each.description for each in violations if each.field == field],
                warnings=warnings,
                recommended_values=value.recommended_values,
                visible=value.visible,
            )
            response.warnings.extend(
                pb.ConfigViolation(field=field, description=warning) for warning in warnings
            )
            if value.HasField("value"):
                shown.value = masked_value(value, show_undefined=show_undefined)
        response.skipped_checks.extend(
            pb.SkippedCheck(setting=each.setting, reason=each.reason)
            for each in answer.skipped_checks
        )
        response.groups.extend(dict.fromkeys(value.key.group for value in answer.values))
    response.skipped_checks.extend(
        pb.SkippedCheck(
            setting=each.field.removeprefix('config["').removesuffix('"]'), reason=each.description
        )
        for each in of_cluster
        if isinstance(each, SkippedCheck)
    )
    return response


def hide_values(response: pb.ValidateConfigResponse, values: ConfigMap) -> None:
    """Mask values of settings, also in the texts of a validation's result."""
    if not values:
        return
    secrets = SecretTexts()
    secrets.add(dict.fromkeys(values.values(), MASK))
    for value in response.values:
        if value.key.name in values:
            value.value = MASK
        for texts in (value.errors, value.warnings, value.recommended_values):
            texts[:] = [secrets.hidden(each) for each in texts]
    for fault in (*response.violations, *response.warnings):
        fault.description = secrets.hidden(fault.description)
    for check in response.skipped_checks:
        check.reason = secrets.hidden(check.reason)


def add_fault(response: pb.ValidateConfigResponse, fault: Violation) -> None:
    """Add a violation to a validation's result."""
    response.error_count += 1
    response.violations.add(field=fault.field, description=fault.description)
    for value in response.values:
        if fault.field in (value.key.name, f'config["{value.key.name}"]'):
            value.errors.append(fault.description)
