"""Shows the worker's views in the admin API's form; secrets stay masked."""

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.api.engine.v1 import engine_pb2
from drover.codec.common import invalid_field
from drover.codec.connect import (
    TARGET_STATES,
    encode_connector_status,
    encode_connector_type,
)
from drover.model.config import ConfigMap
from drover_worker.core.context import Context
from drover_worker.engine_link import violations_of
from drover_worker.known_plugins import KnownPlugins

MASK = "********"
PAGE_BYTES_MAX = 1024 * 1024
PAGE_COUNT_DEFAULT = 100
PAGE_COUNT_MAX = 1000

#: Settings that no plugin declares may still carry secrets.
_SECRET_KEY = re.compile(
    r"passw(or)?d|secret|token|credential|private.?key|api.?key|access.?key|jaas", re.IGNORECASE
)
#: Shown though the plugin that declares the rest is not known here.
_COMMON_KEYS = frozenset({"name", "connector.class", "tasks.max", "topic", "topics", "file"})

ItemT = TypeVar("ItemT")


class Presenter:
    """Reads the herder's views; plugins tell a connector's type and which settings are secret."""

    def __init__(self, context: Context, plugins: KnownPlugins) -> None:
        self._context = context
        self._plugins = plugins

    def class_names(self) -> set[str]:
        """What the connectors that exist have as connector.class."""
        return {_class_of(entry.config or {}) for entry in self._context.view.connectors.values()}

    def connector(self, name: str) -> pb.Connector:
        """A connector that exists."""
        view = self._context.view
        entry = view.connectors[name]
        return pb.Connector(
            name=name,
            config=self.masked(entry.config or {}, entry.config or {}),
            type=encode_connector_type(self.type_of(entry.config or {})),
            target_state=TARGET_STATES.encode(entry.target_state),
            task_indexes=sorted(view.tasks(name)),
            revision=entry.config_revision,
        )

    def find_connector(self, name: str) -> pb.Connector | None:
        """A connector; None when there is none of that name."""
        return self.connector(name) if name in self._context.view.connectors else None

    def find_status(self, name: str) -> pb.ConnectorStatus | None:
        """A connector's status; None when there is no such connector."""
        return self.status(name) if name in self._context.view.connectors else None

    def status(self, name: str) -> pb.ConnectorStatus:
        """The status of a connector that exists, and of the tasks it should have."""
        return encode_connector_status(
            name,
            self.type_of(self._context.view.config(name) or {}),
            range(len(self._context.view.tasks(name))),
            self._context.statuses,
        )

    def tasks(self, name: str) -> list[pb.TaskInfo]:
        """A connector's tasks by index."""
        view = self._context.view
        connector_config = view.config(name) or {}
        return [
            pb.TaskInfo(task=index, config=self.masked(config, connector_config))
            for index, config in sorted(view.tasks(name).items())
        ]

    def masked(self, config: ConfigMap, connector_config: ConfigMap) -> dict[str, str]:
        """A connector's or task's config without the values of its secrets.

        While the plugin is not known nothing but the common settings is shown.
        """
        plugin = self._plugins.find(_class_of(connector_config))
        types = {key.name: key.type for key in plugin.config_keys} if plugin else {}

        def hidden(key: str) -> bool:
            if key in types:
                return types[key] == "PASSWORD"
            if _SECRET_KEY.search(key):
                return True
            return plugin is None and key not in _COMMON_KEYS

        return {key: MASK if hidden(key) else value for key, value in config.items()}

    def type_of(self, config: ConfigMap) -> str:
        """Source or sink, in lower case; empty when the config's class is not known here."""
        plugin = self._plugins.find(_class_of(config))
        return plugin.type if plugin else ""


def _class_of(config: ConfigMap) -> str:
    return config.get("connector.class", "")


def present_plugin(plugin: engine_pb2.Plugin) -> pb.Plugin:
    """A plugin."""
    return pb.Plugin(
        class_name=plugin.class_name,
        aliases=plugin.aliases,
        type=encode_connector_type(plugin.type),
        version=plugin.version,
        description=plugin.description,
    )


def present_key(key: engine_pb2.ConfigKey) -> pb.ConfigKey:
    """A plugin's setting; a password's default is masked."""
    shown = pb.ConfigKey(
        name=key.name,
        type=key.type,
        required=key.required,
        importance=key.importance,
        documentation=key.documentation,
        group=key.group,
        valid_values=key.valid_values,
    )
    if key.HasField("default_value"):
        secret = key.type == "PASSWORD" and key.default_value
        shown.default_value = MASK if secret else key.default_value
    return shown


def present_validation(
    answer: engine_pb2.ConfigValidation | engine_pb2.Failure,
) -> pb.ValidateConfigResponse:
    """A config's faults: as a list, and beside each setting."""
    violations = violations_of(answer)
    response = pb.ValidateConfigResponse(
        error_count=len(violations),
        violations=[
            pb.ConfigViolation(field=v.field, description=v.description) for v in violations
        ],
    )
    if isinstance(answer, engine_pb2.ConfigValidation):
        for value in answer.values:
            shown = response.values.add(
                key=present_key(value.key), errors=value.errors, warnings=value.warnings
            )
            response.warnings.extend(
                pb.ConfigViolation(field=f'config["{value.key.name}"]', description=warning)
                for warning in value.warnings
            )
            if value.HasField("value"):
                secret = value.key.type == "PASSWORD" or _SECRET_KEY.search(value.key.name)
                shown.value = MASK if secret and value.value else value.value
    return response


def take_page(
    items: Sequence[ItemT],
    page_token: str,
    *,
    count_max: int = PAGE_COUNT_MAX,
    size_bytes: Callable[[ItemT], int] = lambda _: 0,
) -> tuple[Sequence[ItemT], str]:
    """A page of ``items`` and the next page's token: at most ``count_max``, at most 1 MiB.

    Raises:
        InvalidArgumentError: INVALID_REQUEST, the token is none of ours.
    """
    if page_token and not page_token.isdecimal():
        raise invalid_field("page_token", "must come from next_page_token")
    start = int(page_token) if page_token else 0
    end, total = start, 0
    while end < len(items) and end - start < count_max:
        total += size_bytes(items[end])
        if end > start and total > PAGE_BYTES_MAX:
            break
        end += 1
    return items[start:end], str(end) if end < len(items) else ""


def take_page_by_name(
    names: Sequence[str], page_token: str, page_size: int
) -> tuple[Sequence[str], str]:
    """A page of sorted names; the token is the last name seen, so that changes do no harm.

    Raises:
        InvalidArgumentError: INVALID_REQUEST, a page size out of range.
    """
    if not 0 <= page_size <= PAGE_COUNT_MAX:
        raise invalid_field("page_size", f"must be from 0 to {PAGE_COUNT_MAX}")
    rest = [name for name in names if name > page_token]
    page = rest[: page_size or PAGE_COUNT_DEFAULT]
    return page, page[-1] if len(page) < len(rest) else ""
