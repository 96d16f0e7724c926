"""What a connector is going to use of the storage, from its config."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from drover.connector import SourceConnector
from drover.connector.connector import Connector
from drover.connector.error_settings import ErrorSettings
from drover.connector.settings import TOPICS, parse_config
from drover.connector.topic_settings import source_topic_creation
from drover.dataplane.topic_creation import READ, WRITE, PlannedTopic, PlannedUse, TopicCreation
from drover.dataplane.topics import name_fault
from drover.errors import Violation
from drover.model.config import CONSUMER_GROUP_SETTING, OFFSETS_TOPIC_SETTING
from drover.model.dead_letters import DEAD_LETTER_TOPIC
from drover.model.sink_offsets import group_of
from drover.record.batch import TIMESTAMP, TOPIC, make_batch
from drover.transform.chain import build_chain
from drover.transform.step import TransformStep

_TOPIC = "topic"
_TRANSFORMS = "transforms"
_WRITE = frozenset({WRITE})
_READ = frozenset({READ})
_BUILT_IN = "drover.transform."


def planned_use(
    connector_class: type[Connector], raw: Mapping[str, str]
) -> tuple[PlannedUse, list[Violation]] | None:
    """What a connector is going to use, and faults of the names of its topics; None if a setting
    that this depends on is invalid.
    """
    config = parse_config(connector_class, raw, use_systems=False).values
    connector = raw.get("name", "")
    try:
        errors = ErrorSettings.of(config)
        if issubclass(connector_class, SourceConnector):
            return _of_source(connector, config, errors)
        topics = [PlannedTopic(TOPICS, topic, _READ) for topic in config[TOPICS] or ()]
        topics += _of_dead_letters(errors)
        group = config[CONSUMER_GROUP_SETTING] or group_of(connector)
        return PlannedUse(connector=connector, topics=topics, group=group), []
    except KeyError:
        return None


def _of_dead_letters(errors: ErrorSettings) -> list[PlannedTopic]:
    name = errors.dead_letter_topic
    if not (errors.tolerate and name):
        return []
    return [PlannedTopic(DEAD_LETTER_TOPIC, name, _WRITE, errors.dead_letter_rule)]


def _of_source(
    connector: str, config: Mapping[str, Any], errors: ErrorSettings
) -> tuple[PlannedUse, list[Violation]]:
    creation = source_topic_creation(config, errors)
    faults: list[Violation] = []
    topics = _of_dead_letters(errors)
    name = config.get(_TOPIC)
    try:
        name = _routed(name, build_chain(config)) if isinstance(name, str) and name else None
    except _RoutingError as error:
        faults.append(Violation(_TRANSFORMS, str(error)))
    else:
        if name is None:
            topics += _of_rules(creation)
        elif topics and name == errors.dead_letter_topic:
            text = f"must not be {name}, to which the connector writes its records"
            faults.append(Violation(DEAD_LETTER_TOPIC, text))
        else:
            topics.append(PlannedTopic(_TOPIC, name, _WRITE, creation.rule(name)))
    own_offsets = config[OFFSETS_TOPIC_SETTING] or ""
    return PlannedUse(connector=connector, topics=topics, offsets_topic=own_offsets), faults


def _of_rules(creation: TopicCreation) -> Iterator[PlannedTopic]:
    """The rules of topics whose names are not known before the connector runs."""
    for rule in (creation.default, *(group.rule for group in creation.groups)):
        yield PlannedTopic(_TOPIC, "", _WRITE, rule)


class _RoutingError(Exception):
    """A transform gives a topic a name that no topic can have."""


def _routed(topic: str, steps: tuple[TransformStep, ...]) -> str | None:
    """The topic of the records after the transforms; None if it depends on the records.

    Raises:
        _RoutingError: See there.
    """
    if not steps:
        return topic
    # imported lazily: most configs have no transforms
    from drover.transform.arrow_function import ArrowFunction
    from drover.transform.predicates_topic import TopicNameMatches
    from drover.transform.regex_router import RegexRouter
    from drover.transform.sql.transform import Sql
    from drover.transform.timestamp_router import TimestampRouter

    name: str | None = topic
    for step in steps:
        kind = type(step.transform)
        if isinstance(step.transform, RegexRouter | TimestampRouter):
            if name is None or not isinstance(step.predicate, TopicNameMatches | None):
                return None
            now = pa.array([time.time_ns() // 1_000_000], pa.timestamp("ms", tz="UTC"))
            batch = make_batch(1, **{TOPIC: pa.array([name]), TIMESTAMP: now})
            (changed,) = step(batch)
            name = str(changed.column(TOPIC)[0].as_py())
            fault = name_fault(name)
            if fault:
                raise _RoutingError(f"{step.name} renames the topic {topic}: its name {fault}")
            if isinstance(step.transform, TimestampRouter):
                name = None
        elif not kind.__module__.startswith(_BUILT_IN) or kind in (ArrowFunction, Sql):
            return None
    return name
