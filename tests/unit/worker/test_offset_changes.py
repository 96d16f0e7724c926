"""Offset changes by operators: of stopped connectors, by the leader, after the plugin's check."""

import pytest

from drover.errors import (
    DroverError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    Reason,
    UnavailableError,
    Violation,
)
from drover.model.claims import TaskSet
from drover.model.config import TargetState
from drover.model.offsets import CommittedOffset
from drover_worker.core import events, instructions, requests
from drover_worker.core.config.offset_checks import as_sink_offsets, offset_violations
from drover_worker.core.rebalance.protocol import MemberMetadata
from tests.support.herder_driver import OTHER, HerderDriver, connector_config, entry

FILE = CommittedOffset('{"filename":"/f"}', '{"position":7}')
ALTER = requests.AlterOffsets("c", [FILE])
RESET = requests.AlterOffsets("c", None)


def sink(topic: str, partition: object, offset_json: str | None) -> CommittedOffset:
    return CommittedOffset(
        f'{{"kafka_topic":"{topic}","kafka_partition":{partition}}}', offset_json
    )


def error_of(herder: HerderDriver) -> DroverError:
    """The error that the caller got."""
    error = herder.answers["call"]
    assert isinstance(error, DroverError)
    return error


@pytest.fixture
def leader(herder: HerderDriver) -> HerderDriver:
    """Leads a cluster with a connector that is stopped."""
    herder.ready(entry("c", target=TargetState.STOPPED))
    herder.settle_as_leader(others={"member-b": MemberMetadata(OTHER, 0)})
    herder.run_engine()
    return herder


def test_the_plugin_is_looked_up_and_then_the_offsets_are_changed(leader: HerderDriver) -> None:
    leader.ask(ALTER)
    leader.validated(leader.take(instructions.ValidateConfig).cause_id)
    call = leader.take(instructions.AlterOffsets)
    view = leader.herder.context.view
    assert call.config == view.config("c")
    assert call.member_id == leader.herder.context.member_id
    assert call.change.connector == "c"
    assert call.change.offsets == [FILE]
    assert call.change.without_positions
    generation = leader.herder.context.generation
    number = view.connectors["c"].task_config_generation
    assert call.change.task_set == TaskSet(generation, number)
    assert not leader.answers
    leader.step(events.OffsetsAltered(call.cause_id, complete=True))
    assert leader.answers == {"call": requests.OffsetsChanged(complete=True)}


def test_a_reset_removes_all_of_them(leader: HerderDriver) -> None:
    leader.ask(RESET)
    leader.validated(leader.take(instructions.ValidateConfig).cause_id, "sink")
    change = leader.take(instructions.AlterOffsets).change
    assert change.offsets is None
    assert not change.without_positions


def test_a_sinks_numbers_may_be_texts_and_its_group_is_the_one_of_its_config(
    leader: HerderDriver,
) -> None:
    config = connector_config("c", **{"consumer.override.group.id": "mine"})
    leader.put("c", config=config)
    leader.ask(requests.AlterOffsets("c", [sink("t", '"3"', '{"kafka_offset":"42"}')]))
    leader.validated(leader.take(instructions.ValidateConfig).cause_id, "sink")
    change = leader.take(instructions.AlterOffsets).change
    assert change.offsets == [sink("t", 3, '{"kafka_offset":42}')]
    assert change.consumer_group == "mine"


def test_what_is_no_sinks_offset_is_refused_with_every_fault(leader: HerderDriver) -> None:
    faulty = [FILE, sink("t", -1, '{"kafka_offset":1}'), sink("t", 1, '{"kafka_offset":"x"}')]
    leader.ask(requests.AlterOffsets("c", faulty))
    leader.validated(leader.take(instructions.ValidateConfig).cause_id, "sink")
    error = error_of(leader)
    assert isinstance(error, InvalidArgumentError)
    assert [each.field for each in error.violations] == [
        "offsets[0].partition_json",
        "offsets[0].offset_json",
        "offsets[1].partition_json",
        "offsets[2].offset_json",
    ]
    assert not leader.find(instructions.AlterOffsets)


@pytest.mark.parametrize("state", [TargetState.STARTED, TargetState.PAUSED])
def test_a_connector_that_is_not_stopped_keeps_its_offsets(
    leader: HerderDriver, state: TargetState
) -> None:
    leader.target("c", state)
    leader.ask(ALTER)
    error = error_of(leader)
    assert isinstance(error, FailedPreconditionError)
    assert error.reason is Reason.CONNECTOR_NOT_STOPPED
    assert "drover connector stop c" in error.message


def test_a_stopped_connector_that_has_tasks_yet_keeps_its_offsets(leader: HerderDriver) -> None:
    leader.put("c", tasks=1)
    leader.ask(RESET)
    assert error_of(leader).reason is Reason.CONNECTOR_NOT_STOPPED


def test_one_that_is_resumed_while_its_plugin_is_looked_up_keeps_its_offsets(
    leader: HerderDriver,
) -> None:
    leader.ask(ALTER)
    call = leader.take(instructions.ValidateConfig)
    leader.target("c", TargetState.STARTED)
    leader.validated(call.cause_id)
    assert error_of(leader).reason is Reason.CONNECTOR_NOT_STOPPED


def test_one_without_its_plugin_keeps_its_offsets(leader: HerderDriver) -> None:
    leader.ask(ALTER)
    call = leader.take(instructions.ValidateConfig)
    fault = Violation('config["connector.class"]', "no such plugin is installed")
    leader.step(events.ConfigValidated(call.cause_id, (fault,), ""))
    error = error_of(leader)
    assert error.reason is Reason.OFFSETS_REFUSED
    assert "no such plugin is installed" in error.message


def test_a_name_that_nobody_has(leader: HerderDriver) -> None:
    leader.ask(requests.AlterOffsets("x", [FILE]))
    assert isinstance(error_of(leader), NotFoundError)


def test_a_follower_carries_it_to_the_leader(herder: HerderDriver) -> None:
    herder.ready(entry("c", tasks=0, target=TargetState.STOPPED))
    herder.settle_as_follower()
    herder.ask(ALTER)
    assert isinstance(herder.answers["call"], requests.ForwardTo)


def test_the_plugin_may_refuse(leader: HerderDriver) -> None:
    leader.ask(ALTER)
    leader.validated(leader.take(instructions.ValidateConfig).cause_id)
    refusal = FailedPreconditionError(Reason.OFFSETS_REFUSED, "not that far")
    leader.fail(leader.take(instructions.AlterOffsets).cause_id, refusal)
    assert error_of(leader) is refusal


@pytest.mark.parametrize(
    "error",
    [
        UnavailableError(Reason.STORAGE_UNAVAILABLE, "the disk is full"),
        NotFoundError(Reason.UNKNOWN_MEMBER_ID, "who?"),
        FailedPreconditionError(Reason.ILLEGAL_GENERATION, "another one"),
    ],
)
def test_what_passes_by_is_waited_for(leader: HerderDriver, error: DroverError) -> None:
    leader.ask(ALTER)
    leader.validated(leader.take(instructions.ValidateConfig).cause_id)
    leader.fail(leader.take(instructions.AlterOffsets).cause_id, error)
    assert not leader.answers
    leader.advance(500)
    assert leader.take(instructions.AlterOffsets).change.offsets == [FILE]


@pytest.mark.parametrize(
    ("offsets", "fields"),
    [
        ([], ["offsets"]),
        ([CommittedOffset("", "{}")], ["offsets[0].partition_json"]),
        (
            [CommittedOffset("[]", "7"), CommittedOffset("{}", "null")],
            ["offsets[0].partition_json", "offsets[0].offset_json", "offsets[1].offset_json"],
        ),
        (
            [CommittedOffset('{"a":1,"b":2}', "{}"), CommittedOffset('{"b":2, "a":1}', None)],
            ["offsets[1].partition_json"],
        ),
        ([CommittedOffset("{}", None)], []),
    ],
)
def test_faults_of_any_connectors_offsets(
    offsets: list[CommittedOffset], fields: list[str]
) -> None:
    assert [each.field for each in offset_violations(offsets)] == fields


def test_a_topic_partition_named_twice() -> None:
    offsets = [sink("t", 1, None), sink("t", '"1"', '{"kafka_offset":1}')]
    _, violations = as_sink_offsets(offsets)
    assert [each.field for each in violations] == ["offsets[1].partition_json"]
