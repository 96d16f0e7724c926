"""Rollback: an earlier config of a connector becomes its new config."""

import pytest

from drover.errors import (
    AbortedError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    Reason,
    UnavailableError,
    Violation,
)
from drover.model.config import (
    ConfigVersion,
    ConnectorConfigRemoved,
    HistoryEntry,
    TargetState,
)
from drover_worker.core import events, instructions, requests
from drover_worker.core.rebalance.protocol import MemberMetadata
from tests.support.herder_driver import OTHER, HerderDriver, connector_config, entry

OLD = connector_config("c", age="old")
HISTORY = [
    HistoryEntry(2, 1_000, "ann@host", ConfigVersion(3, OLD)),
    HistoryEntry(4, 2_000, "ben@host", ConnectorConfigRemoved("c")),
    HistoryEntry(8, 3_000, "", ConfigVersion(9, connector_config("c"))),
]
ROLLBACK = requests.RollbackConnector("c", 3, "r-1")
MISMATCH = AbortedError(Reason.REVISION_MISMATCH, "another revision")


@pytest.fixture
def leader(herder: HerderDriver) -> HerderDriver:
    herder.ready(entry("c", tasks=1))
    herder.settle_as_leader(others={"member-b": MemberMetadata(OTHER, 0)})
    herder.run_engine()
    return herder


def read_history(herder: HerderDriver, *entries: HistoryEntry) -> None:
    call = herder.take(instructions.ReadHistory)
    assert call.name == "c"
    herder.step(events.HistoryRead(call.cause_id, entries))


def finish_write(herder: HerderDriver, cause_id: str, revision: int) -> None:
    herder.step(events.ConfigWritten(cause_id, herder.offset + 1, revision))
    herder.offset += 1
    herder.step(events.ConfigsChanged([], herder.offset))


def test_the_old_config_is_validated_and_written_as_a_new_one(leader: HerderDriver) -> None:
    leader.ask(ROLLBACK)
    read_history(leader, *HISTORY)
    check = leader.take(instructions.ValidateConfig)
    assert check.config == OLD
    leader.validated(check.cause_id)
    write = leader.take(instructions.WriteConnectorConfig)
    assert (write.name, write.config, write.request_id) == ("c", OLD, "r-1")
    assert write.expected_revision is None
    finish_write(leader, write.cause_id, 12)
    assert leader.answers == {"call": requests.ConfigStored(12, created=False)}


def test_the_present_revision_can_be_a_condition_of_a_rollback(leader: HerderDriver) -> None:
    leader.ask(requests.RollbackConnector("c", 3, "r-1", expected_revision=9))
    read_history(leader, *HISTORY)
    leader.validated(leader.take(instructions.ValidateConfig).cause_id)
    write = leader.take(instructions.WriteConnectorConfig)
    assert write.expected_revision == 9
    leader.fail(write.cause_id, MISMATCH)
    assert leader.answers["call"] == MISMATCH


def test_a_connector_that_was_deleted_is_created_anew(leader: HerderDriver) -> None:
    leader.remove("c")
    leader.ask(ROLLBACK)
    read_history(leader, *HISTORY)
    leader.validated(leader.take(instructions.ValidateConfig).cause_id)
    write = leader.take(instructions.WriteConnectorConfig)
    finish_write(leader, write.cause_id, 12)
    assert leader.answers == {"call": requests.ConfigStored(12, created=True)}


def test_an_old_config_that_is_faulty_by_now_is_refused(leader: HerderDriver) -> None:
    leader.ask(ROLLBACK)
    read_history(leader, *HISTORY)
    cause_id = leader.take(instructions.ValidateConfig).cause_id
    leader.step(events.ConfigValidated(cause_id, [Violation("age", "is too old")], "source"))
    error = leader.answers["call"]
    assert isinstance(error, InvalidArgumentError)
    assert error.violations == (Violation("age", "is too old"),)


def test_an_unknown_revision_is_told_with_those_that_there_are(leader: HerderDriver) -> None:
    leader.ask(requests.RollbackConnector("c", 5, "r-1"))
    read_history(leader, *HISTORY)
    write = leader.take(instructions.WriteConnectorConfig)
    leader.fail(write.cause_id, MISMATCH)
    error = leader.answers["call"]
    assert isinstance(error, NotFoundError)
    assert error.reason is Reason.REVISION_NOT_FOUND
    assert error.message.endswith("no config of revision 5; its revisions are 3, 9")


def test_one_that_was_done_before_is_answered_though_it_pushed_its_own_version_out(
    leader: HerderDriver,
) -> None:
    leader.ask(ROLLBACK)
    read_history(leader, HISTORY[-1])
    write = leader.take(instructions.WriteConnectorConfig)
    assert write.request_id == "r-1"
    finish_write(leader, write.cause_id, 12)
    assert leader.answers == {"call": requests.ConfigStored(12, created=False)}


def test_what_is_written_for_a_missing_revision_can_only_be_refused(leader: HerderDriver) -> None:
    leader.ask(requests.RollbackConnector("c", 5, "r-1"))
    read_history(leader, *HISTORY)
    expected = leader.take(instructions.WriteConnectorConfig).expected_revision
    assert expected is not None
    assert 1 << 60 < expected < 1 << 63


def test_a_name_that_nothing_is_known_of(leader: HerderDriver) -> None:
    leader.ask(requests.RollbackConnector("x", 5, "r-1"))
    call = leader.take(instructions.ReadHistory)
    leader.step(events.HistoryRead(call.cause_id, ()))
    leader.fail(leader.take(instructions.WriteConnectorConfig).cause_id, MISMATCH)
    error = leader.answers["call"]
    assert isinstance(error, NotFoundError)
    assert error.reason is Reason.CONNECTOR_NOT_FOUND


def test_a_follower_carries_it_to_the_leader(herder: HerderDriver) -> None:
    herder.ready(entry("c", tasks=1))
    herder.settle_as_follower()
    herder.ask(ROLLBACK)
    assert herder.answers == {"call": requests.ForwardTo(OTHER)}


def test_it_waits_while_the_config_store_is_away(leader: HerderDriver) -> None:
    leader.ask(ROLLBACK)
    call = leader.take(instructions.ReadHistory)
    leader.fail(call.cause_id, UnavailableError(Reason.SERVICE_UNREACHABLE, "away"))
    leader.advance(250)
    read_history(leader, *HISTORY)
    leader.take(instructions.ValidateConfig)


def test_a_write_under_a_stale_epoch_is_repeated_with_the_same_config(
    leader: HerderDriver,
) -> None:
    leader.ask(ROLLBACK)
    read_history(leader, *HISTORY)
    leader.validated(leader.take(instructions.ValidateConfig).cause_id)
    stale = FailedPreconditionError(Reason.STALE_WRITER_EPOCH, "a later leader")
    leader.fail(leader.take(instructions.WriteConnectorConfig).cause_id, stale)
    leader.grant_writer(epoch=8)
    write = leader.take(instructions.WriteConnectorConfig)
    assert (write.config, write.writer_epoch) == (OLD, 8)


# The author of a change


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (requests.DeleteConnector("c", "r"), instructions.RemoveConnector),
        (
            requests.SetTargetState("c", TargetState.PAUSED, "r"),
            instructions.WriteTargetState,
        ),
    ],
)
def test_who_asked_goes_with_the_write(
    leader: HerderDriver, request_: requests.Request, kind: type
) -> None:
    deadline_ms = leader.now_ms + 10_000
    leader.step(events.RequestReceived("call", request_, deadline_ms, author="ann@host"))
    assert leader.take(kind).author == "ann@host"


def test_who_asked_goes_with_a_config(leader: HerderDriver) -> None:
    deadline_ms = leader.now_ms + 10_000
    leader.step(events.RequestReceived("call", ROLLBACK, deadline_ms, author="ann@host"))
    read_history(leader, *HISTORY)
    leader.validated(leader.take(instructions.ValidateConfig).cause_id)
    assert leader.take(instructions.WriteConnectorConfig).author == "ann@host"


def test_who_asked_goes_with_a_restart(leader: HerderDriver) -> None:
    leader.echo_statuses()
    request = requests.RestartConnector("c", include_tasks=True, only_failed=False, request_id="r")
    deadline_ms = leader.now_ms + 10_000
    leader.step(events.RequestReceived("call", request, deadline_ms, author="ann@host"))
    assert leader.take(instructions.WriteRestartRequest).author == "ann@host"
