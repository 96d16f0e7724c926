"""Settings of new topics for a source's records and dead letters."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from drover.config.patterns import Pattern
from drover.connector import SourceBatch
from drover.connector.error_settings import ErrorSettings
from drover.connector.settings import parse_config
from drover.connector.topic_settings import source_topic_creation
from drover.dataplane.topic_creation import TopicCreation, TopicGroup, TopicRule
from drover.errors import InvalidArgumentError
from drover_worker.engine.tasks.record_path import check_creation, copies_creation
from tests.unit.engine.runner_world import LinesSource

DEAD_LETTERS = {
    "errors.tolerance": "all",
    "errors.deadletterqueue.topic.name": "dead",
    "errors.deadletterqueue.topic.replication.factor": "2",
}


def creation_of(own: Mapping[str, str]) -> TopicCreation:
    parsed = parse_config(LinesSource, {"name": "c", "connector.class": "Lines", **own})
    assert parsed.violations == ()
    values = parsed.values
    return source_topic_creation(values, ErrorSettings.of(values))


def test_dead_letters_have_a_replication_factor_of_their_own_and_one_partition() -> None:
    creation = creation_of({"topic.partitions": "4", **DEAD_LETTERS})
    assert creation.rule("dead") == TopicRule(1, 2)
    assert creation.rule("other") == TopicRule(4)


def test_a_group_of_topics_that_has_the_dead_letters_name_does_not_count_for_them() -> None:
    groups = {
        "topic.creation.default.partitions": "3",
        "topic.creation.default.replication.factor": "1",
        "topic.creation.groups": "all",
        "topic.creation.all.include": ".*",
        "topic.creation.all.partitions": "12",
    }
    assert creation_of({**groups, **DEAD_LETTERS}).rule("dead") == TopicRule(1, 2)


def test_without_dead_letters_the_rules_are_those_of_records() -> None:
    assert creation_of({"topic.partitions": "4"}).rule("dead") == TopicRule(4)


def test_copies_are_like_their_originals_and_settings_of_the_config_go_first() -> None:
    originals = {
        "east.a": TopicRule(6, config={"cleanup.policy": "compact", "retention.ms": "9"}),
        "dead": TopicRule(3),
    }
    plain = TopicCreation(TopicRule(1), named={"dead": TopicRule(1, 2)})
    copies = plain.for_copies(originals, counts_set=False)
    assert copies.rule("east.a") == originals["east.a"]
    assert copies.rule("dead") == TopicRule(1, 2)
    assert copies.rule("renamed.by.a.transform") == TopicRule(6)
    assert copies.grows
    assert not plain.grows
    chosen = TopicCreation(TopicRule(4, 2, {"retention.ms": "7"}))
    copies = chosen.for_copies(originals, counts_set=True)
    expected = TopicRule(6, 2, {"cleanup.policy": "compact", "retention.ms": "7"})
    assert copies.rule("east.a") == expected
    wide = TopicCreation(TopicRule(12)).for_copies(originals, counts_set=True)
    assert wide.rule("east.a").partition_count == 12


class Storage:
    """A plane that has only Kafka's retention.ms."""

    def setting_fault(self, name: str, value: str) -> str:
        return "" if name == "retention.ms" and value != "x" else f"is not {name}"


def test_copies_get_the_settings_of_their_originals_that_the_storage_has() -> None:
    original = TopicRule(6, config={"retention.ms": "9", "segment.bytes": "1"})
    batch = SourceBatch.table([{"a": 1}], [], topic="copy")
    batch = replace(batch, originals={"copy": original})
    parsed = parse_config(LinesSource, {"name": "c", "connector.class": "Lines"}).values
    creation = copies_creation(TopicCreation(TopicRule()), batch, parsed, cast("Any", Storage()))
    assert creation.rule("copy") == TopicRule(6, config={"retention.ms": "9"})


def test_a_source_does_not_start_with_settings_that_the_storage_lacks() -> None:
    group = TopicGroup(TopicRule(config={"retention.ms": "x"}), (Pattern("a"),))
    creation = TopicCreation(
        TopicRule(config={"segment.bytes": "1", "retention.ms": "1"}), (group,)
    )
    with pytest.raises(InvalidArgumentError) as rejected:
        check_creation(creation, cast("Any", Storage()))
    assert [each.field for each in rejected.value.violations] == ["segment.bytes", "retention.ms"]
