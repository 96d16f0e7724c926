"""Checks of a connector's name and config that do not need its plugin."""

from collections.abc import Sequence

from drover.errors import InvalidArgumentError, NotFoundError, Reason, Violation
from drover.model.config import CONSUMER_GROUP_SETTING, JAVA_SPACE, ConfigMap
from drover.model.names import CONNECTOR_NAME_MAX_CHARS

CONFIG_MAX_BYTES = 1024 * 1024

_SHOWN_CHARS = CONNECTOR_NAME_MAX_CHARS


def connector_not_found(name: str) -> NotFoundError:
    """The error for an unknown connector; long names are shortened."""
    shown = name if len(name) <= _SHOWN_CHARS else f"{name[:_SHOWN_CHARS]}…"
    return NotFoundError(Reason.CONNECTOR_NOT_FOUND, f"connector {shown!r} does not exist")


def config_name_violations(name: str, config: ConfigMap) -> list[Violation]:
    """A violation if the config's own ``name`` differs from the connector's."""
    own = config.get("name")
    if own is None or own.strip() == name:
        return []
    text = f"the config names connector {own.strip()!r}, the call names {name!r}: use one name"
    return [Violation('config["name"]', text)]


def config_size_bytes(config: ConfigMap) -> int:
    """The size of a config: its keys and values in UTF-8."""
    return sum(len(key.encode()) + len(value.encode()) for key, value in config.items())


def sink_group_violations(name: str, config: ConfigMap, worker_group: str) -> list[Violation]:
    """A violation if the sink's consumer group is the workers' own, or another connector's."""
    override = config.get(CONSUMER_GROUP_SETTING)
    own = f"connect-{name}"
    if override is not None:
        field, group = f'config["{CONSUMER_GROUP_SETTING}"]', override.strip(JAVA_SPACE)
        if group.startswith("connect-") and group not in (own, worker_group):
            text = (
                f"the group {group[:_SHOWN_CHARS]!r} is that of another connector's sink: choose "
                "another, or give the connector that name; no setting of the worker allows it"
            )
            return [Violation(field, text)]
    else:
        field, group = "name", own
    if group != worker_group:
        return []
    text = f"the sink's consumer group {group!r} is the workers' own group: choose another"
    return [Violation(field, text)]


def config_error(name: str, violations: Sequence[Violation]) -> InvalidArgumentError:
    """The error for a config with violations; it lists them all."""
    count = "1 fault" if len(violations) == 1 else f"{len(violations)} faults"
    text = f"the config of connector {name!r} has {count}"
    return InvalidArgumentError(Reason.INVALID_CONFIG, text, violations=violations)
