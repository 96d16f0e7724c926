"""Checks the settings of a source's new topics (topic.creation.*) with the cluster's storage."""

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice

from drover.api.engine.v1 import engine_pb2
from drover.connector.topic_settings import (
    DEFAULT,
    GROUPS,
    PREFIX,
    topic_configs,
    topic_creation_config_def,
    topic_creation_of,
)
from drover.dataplane.plane import TopicChecks
from drover.dataplane.topic_creation import TopicCreation
from drover.errors import DroverError

#: The most existing topics whose settings are compared with a config's.
_TOPICS_MAX = 100
_NEEDS_ADMIN = (
    "whether the cluster's topics can have this setting was not checked: this needs the role ADMIN "
    "for the connector"
)
_REPLICATION = ".replication.factor"


def check_topic_settings(
    answer: engine_pb2.ConfigValidation,
    config: Mapping[str, str],
    open_plane: Callable[[], TopicChecks] | None,
) -> None:
    """Add the faults of topic.creation.* in this cluster, and warnings about existing topics with
    other settings; ``open_plane`` is None for callers who may not use the cluster's systems.
    """
    values = {value.key.name: value for value in answer.values}
    given = {name: setting for name, setting in topic_configs(config) if name in values}
    copies = [
        name
        for name in values
        if name.startswith(PREFIX) and name.endswith(_REPLICATION) and config.get(name)
    ]
    if not given and not copies:
        return
    if open_plane is None:
        for name in given:
            answer.skipped_checks.add(setting=name, reason=_NEEDS_ADMIN)
        return
    try:
        plane = open_plane()
        for name, setting in given.items():
            fault = plane.setting_fault(setting, config[name])
            if fault and not values[name].errors:
                values[name].errors.append(fault)
        for name in copies:
            if plane.one_copy and config[name].strip() not in ("-1", "1"):
                values[name].warnings.append(
                    "has no effect: a topic of embedded storage has one copy"
                )
        for name, warning in _differences(plane, config):
            if name in values and not values[name].errors:
                values[name].warnings.append(warning)
    except DroverError as error:
        for name in given:
            reason = f"the cluster's storage could not be asked about topics: {error.message}"
            answer.skipped_checks.add(setting=name, reason=reason)


def _differences(plane: TopicChecks, config: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The settings that an existing topic of the source has with another value."""
    parsed = topic_creation_config_def(config).parse(config)
    creation = None if parsed.violations else topic_creation_of(parsed.values)
    if creation is None:
        return
    groups = dict(zip(parsed.values[GROUPS] or (), creation.groups, strict=True))
    warned: set[str] = set()
    for topic in islice(_existing(plane, config, creation), _TOPICS_MAX):
        matching = [name for name, group in groups.items() if group.matches(topic)][:1]
        stored = plane.topic_settings(topic)
        for setting, value in creation.rule(topic).config.items():
            places = [f"{PREFIX}{group}.{setting}" for group in (*matching, DEFAULT)]
            name = next(place for place in places if config.get(place) is not None)
            found = stored.get(setting)
            if name not in warned and found is not None and found != value.strip():
                warned.add(name)
                yield (
                    name,
                    f"the topic {topic} exists with {setting}={found}, and keeps it: this setting "
                    "is only for topics that the connector creates",
                )


def _existing(
    plane: TopicChecks, config: Mapping[str, str], creation: TopicCreation
) -> Iterator[str]:
    """The existing topics that the source writes to, as far as its config names them."""
    topics: Collection[str] = plane.topics()
    named = config.get("topic", "").strip()
    prefix = config.get("topic.prefix", "").strip()
    if config.get("transforms"):  # they may rename topics
        named = prefix = ""
    for topic in sorted(topics):
        is_named = topic == named or (prefix and topic.startswith(prefix))
        if is_named or any(group.matches(topic) for group in creation.groups):
            yield topic
