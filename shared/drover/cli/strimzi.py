"""Reads the custom resource KafkaConnector of Strimzi (https://strimzi.io) as a definition.

The operator sends ``spec.config`` with ``spec.class`` and ``spec.tasksMax`` to Kafka Connect under
the name in ``metadata``, and sets the target state to ``spec.state``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from drover.cli.documents import Document, Value
from drover.model.command_lines import drover_command

_API_GROUP = "kafka.strimzi.io"
_KIND = "KafkaConnector"
_LIST_KINDS = {"List", f"{_KIND}List"}
_STATES = {"running": "STARTED", "paused": "PAUSED", "stopped": "STOPPED"}
_OFFSET_FIELDS = ("listOffsets", "alterOffsets")
_FIELDS = frozenset(
    ("class", "tasksMax", "config", "state", "pause", "autoRestart", "version", *_OFFSET_FIELDS)
)
_ANNOTATION = "strimzi.io/"
_OTHER_KINDS = {
    "KafkaConnect": "describes the workers; they are configured by settings (docs/settings.md)",
    "KafkaMirrorMaker2": "is a deployment of connectors: KafkaSource copies topics "
    "(docs/kafka-mirror.md)",
}


@dataclass(frozen=True, slots=True)
class Resource:
    """A connector's resource.

    Attributes:
        name: The connector's name.
        config: Its settings; scalars as text, other values as they were parsed.
        initial_state: STARTED, PAUSED or STOPPED; empty if the resource gives none.
        problems: What prevents its use.
        warnings: What has no effect or another effect here.
    """

    name: str
    config: Mapping[str, Value]
    initial_state: str
    problems: Sequence[str]
    warnings: Sequence[str]


def is_resource(value: Value) -> bool:
    """Whether a document is a resource of Kubernetes, also one without kind or apiVersion."""
    if not isinstance(value, dict) or "connector.class" in value:
        return False
    return (
        "apiVersion" in value or value.get("kind") == _KIND or {"metadata", "spec"} <= value.keys()
    )


def resources_in(document: Document, place: str) -> Iterator[tuple[Value, str]]:
    """The resources of a document, of a list of `kubectl get` too, with their places."""
    value = document.as_kubernetes
    items = value.get("items") if isinstance(value, dict) else None
    kind = value.get("kind") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind in _LIST_KINDS and isinstance(items, list):
        for number, item in enumerate(items, 1):
            yield item, f"{place}, item {number}"
    else:
        yield value, place


def read_resource(value: Value) -> Resource:
    """Read a resource; every problem is found at once."""
    problems: list[str] = []
    warnings: list[str] = []
    if not isinstance(value, dict):
        return Resource("", {}, "", ["an item of the list is no resource"], [])
    problems += _kind_problems(value)
    if problems:
        return Resource("", {}, "", problems, [])
    metadata = _mapping(value, "metadata", "", problems)
    spec = _mapping(value, "spec", "", problems)
    name = metadata.get("name")
    if not isinstance(name, str) or not name.strip():
        problems.append("metadata.name is missing: it is the connector's name")
        name = ""
    for field in sorted(spec.keys() - _FIELDS):
        problems.append(f"spec.{field} is no field of a {_KIND}")
    has_config = spec.get("config") is not None
    config = dict(_mapping(spec, "config", "spec.", problems)) if has_config else {}
    _read_class(spec, config, problems, warnings)
    state = _state(spec, problems, warnings)
    _read_operations(spec, metadata, name, problems, warnings)
    return Resource(name, config, state, problems, warnings)


def _kind_problems(value: Mapping[str, Value]) -> Iterator[str]:
    kind = value.get("kind")
    if kind is None:
        yield f"kind is missing: a connector has kind: {_KIND}"
    elif kind != _KIND:
        kind_text = kind if isinstance(kind, str) else "of another form"
        reason = _OTHER_KINDS.get(kind_text, f"is no connector: that has kind: {_KIND}")
        yield f"kind {kind_text} {reason}"
        return
    version = value.get("apiVersion")
    if not isinstance(version, str) or version.partition("/")[0] != _API_GROUP:
        given = f"is {version}" if isinstance(version, str) else "is missing"
        yield f"apiVersion {given}: a {_KIND} has one of {_API_GROUP}, such as {_API_GROUP}/v1"


def _read_class(
    spec: Mapping[str, Value],
    config: dict[str, Value],
    problems: list[str],
    warnings: list[str],
) -> None:
    """Add spec.class and spec.tasksMax to the config, as the operator does."""
    fields = (("class", "connector.class"), ("tasksMax", "tasks.max"))
    for field, setting in fields:
        given = spec.get(field)
        if given is None:
            if field == "class":
                problems.append("spec.class is missing: it is the connector's class")
            continue
        if not isinstance(given, str):
            problems.append(f"spec.{field} must be a single value")
            continue
        if setting in config and config[setting] != given:
            warnings.append(
                f"spec.config.{setting} has no effect: spec.{field} replaces it, as in Strimzi"
            )
        config[setting] = given


def _state(spec: Mapping[str, Value], problems: list[str], warnings: list[str]) -> str:
    state, pause = spec.get("state"), spec.get("pause")
    if pause not in (None, "true", "false"):
        problems.append("spec.pause must be true or false")
    if state is None:
        return "PAUSED" if pause == "true" else ""
    if not isinstance(state, str) or state not in _STATES:
        problems.append(f"spec.state must be one of {', '.join(_STATES)}")
        return ""
    if pause is not None and (pause == "true") != (state == "paused"):
        warnings.append(f"spec.pause has no effect: spec.state is {state}")
    return _STATES[state]


def _read_operations(
    spec: Mapping[str, Value],
    metadata: Mapping[str, Value],
    name: str,
    problems: list[str],
    warnings: list[str],
) -> None:
    """The fields and annotations by which the operator acts on a connector."""
    if "version" in spec:
        problems.append(
            "spec.version selects one of several installed versions of the class; a worker has one "
            "version: remove the field, and compare with `drover plugin list`"
        )
    if "autoRestart" in spec:
        given = spec["autoRestart"]
        is_off = isinstance(given, dict) and given.get("enabled") == "false"
        remedy = (
            "restart.policy: never in spec.config prevents it"
            if is_off
            else "restart.attempts.max in spec.config limits the attempts"
        )
        warnings.append(
            "spec.autoRestart has no effect: failed connectors and tasks restart automatically; "
            + remedy
        )
    offsets = drover_command("connector offsets", name or "NAME")
    warnings += [
        f"spec.{field} has no effect: `{offsets}` shows offsets, and with --file alters them"
        for field in _OFFSET_FIELDS
        if field in spec
    ]
    annotations = metadata.get("annotations")
    for key, value in (annotations if isinstance(annotations, dict) else {}).items():
        if not key.startswith(_ANNOTATION):
            continue
        what = key.removeprefix(_ANNOTATION)
        if what == "connector-offsets" and value != "list":
            problems.append(
                f"the annotation {key}: {value} is an action of the operator on offsets: remove "
                f"it, and use `{offsets}`"
            )
        elif what in ("restart", "restart-task"):
            command = drover_command("connector restart", name or "NAME")
            warnings.append(f"the annotation {key} has no effect: `{command}`")
        elif what.startswith("pause"):
            warnings.append(f"the annotation {key} has no effect: spec.state: paused pauses")
        else:
            warnings.append(f"the annotation {key} has no effect")


def _mapping(
    value: Mapping[str, Value], key: str, prefix: str, problems: list[str]
) -> Mapping[str, Value]:
    found = value.get(key)
    if isinstance(found, dict):
        return found
    problems.append(f"{prefix}{key} is missing" if found is None else f"{prefix}{key} is no object")
    return {}
