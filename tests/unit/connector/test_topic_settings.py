"""How a source's topics are made: the rules of KIP-158."""

import pytest

from drover.connector.topic_settings import topic_creation_config_def, topic_creation_of
from drover.dataplane.topic_creation import TopicRule

DEFAULT = {
    "topic.creation.default.partitions": "3",
    "topic.creation.default.replication.factor": "2",
}
GROUPS = {
    **DEFAULT,
    "topic.creation.groups": "logs,wide",
    "topic.creation.logs.include": "log-.*,audit",
    "topic.creation.logs.exclude": "log-wide-.*",
    "topic.creation.logs.cleanup.policy": "compact",
    "topic.creation.wide.include": ".*wide.*",
    "topic.creation.wide.partitions": "12",
}


def faults(raw: dict[str, str]) -> list[tuple[str, str]]:
    parsed = topic_creation_config_def(raw).parse(raw)
    return [(each.field, each.description) for each in parsed.violations]


@pytest.mark.parametrize(
    ("topic", "rule"),
    [
        ("log-a", TopicRule(3, 2, {"cleanup.policy": "compact"})),
        ("audit", TopicRule(3, 2, {"cleanup.policy": "compact"})),
        ("log-wide-a", TopicRule(12, 2)),
        ("other", TopicRule(3, 2)),
        ("not-log-a", TopicRule(3, 2)),
    ],
)
def test_the_first_group_that_matches_decides_and_takes_the_rest_from_the_default(
    topic: str, rule: TopicRule
) -> None:
    assert faults(GROUPS) == []
    creation = topic_creation_of(topic_creation_config_def(GROUPS).parse(GROUPS).values)
    assert creation is not None
    assert creation.rule(topic) == rule


def test_a_config_that_says_nothing_of_it_changes_nothing() -> None:
    assert faults({}) == []
    assert topic_creation_of(topic_creation_config_def({}).parse({}).values) is None


def test_the_default_is_required_as_soon_as_topic_creation_is_used() -> None:
    raw = {"topic.creation.groups": "logs", "topic.creation.logs.include": "a"}
    assert faults(raw) == [
        ("topic.creation.default.replication.factor", "is required"),
        ("topic.creation.default.partitions", "is required"),
    ]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"topic.creation.default.partitions": "0"}, "topic.creation.default.partitions"),
        ({"topic.creation.logs.include": "a("}, "topic.creation.logs.include"),
        ({"topic.creation.groups": "logs,logs"}, "topic.creation.groups"),
        ({"topic.creation.groups": "logs,wide,default"}, "topic.creation.groups"),
    ],
)
def test_faults_are_at_their_setting(change: dict[str, str], field: str) -> None:
    assert [each[0] for each in faults({**GROUPS, **change})] == [field]
