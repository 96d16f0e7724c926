"""Requests of callers whose time is over: what the error names, and which ones may be retried."""

import pytest

from drover.errors import (
    UNAVAILABLE_KEY,
    DeadlineExceededError,
    DroverError,
    Reason,
    UnavailableError,
)
from drover.model.config import TargetState
from drover_worker.core import events, instructions, requests
from tests.support.herder_driver import HerderDriver, connector_config, entry

UNREACHABLE = UnavailableError(Reason.SERVICE_UNREACHABLE, "the config store is away")
CREATE = requests.CreateConnector("new", connector_config("new"), TargetState.STARTED, "r-1")
DELETE = requests.DeleteConnector("c", "r-2")


@pytest.fixture
def leader(herder: HerderDriver) -> HerderDriver:
    """Leads its group, and runs connector c."""
    herder.ready(entry("c", tasks=1))
    herder.settle_as_leader()
    herder.run_engine()
    return herder


def error_of(herder: HerderDriver, call_id: str = "call") -> DroverError:
    error = herder.answers[call_id]
    assert isinstance(error, DroverError)
    return error


def test_a_deadline_names_the_stage(herder: HerderDriver) -> None:
    herder.ask(CREATE, timeout_ms=5_000)
    herder.advance(5_000)
    error = error_of(herder)
    assert isinstance(error, DeadlineExceededError)
    assert "waiting for the engine and the config log" in error.message
    assert "CreateConnector" in error.message
    assert UNAVAILABLE_KEY in error.metadata


def test_a_deadline_during_the_work_is_not_marked_as_unavailability(leader: HerderDriver) -> None:
    leader.ask(CREATE, timeout_ms=1_000)
    leader.advance(1_000)
    assert UNAVAILABLE_KEY not in error_of(leader).metadata


def test_a_deadline_before_the_config_store_answers_is_unavailability(
    leader: HerderDriver,
) -> None:
    leader.ask(DELETE, timeout_ms=1_000)
    write = leader.take(instructions.RemoveConnector)
    leader.advance(1_000)
    error = error_of(leader)
    assert "waits for the config store" in error.message
    assert UNAVAILABLE_KEY in error.metadata
    # a write that is durable and not read back
    leader.ask(DELETE, timeout_ms=1_000, call_id="again")
    leader.step(events.ConfigWritten(write.cause_id, leader.offset + 1))
    again = leader.take(instructions.RemoveConnector)
    leader.step(events.ConfigWritten(again.cause_id, leader.offset + 2))
    leader.advance(1_000)
    assert "read back" in error_of(leader, "again").message
    assert UNAVAILABLE_KEY in error_of(leader, "again").metadata


def test_a_deadline_names_what_failed_last(leader: HerderDriver) -> None:
    leader.ask(DELETE, timeout_ms=1_000)
    leader.fail(leader.take(instructions.RemoveConnector).cause_id, UNREACHABLE)
    leader.advance(1_000)
    assert "the config store is away" in error_of(leader).message
