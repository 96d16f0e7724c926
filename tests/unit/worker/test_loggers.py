"""The loggers of a worker's two processes (KIP-976)."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

import pytest

from drover.errors import (
    DroverError,
    InvalidArgumentError,
    Reason,
    UnavailableError,
)
from drover.model.config import ConfigEvent, ConfigSnapshot, LoggerLevelSet
from drover_worker.core import events
from drover_worker.shell.loggers import REMEMBERED_MAX, Loggers, shared_level
from drover_worker.shell.process_loggers import LoggerState, ProcessLoggers
from tests.support.waiting import wait_until_async

NAME = "drover.test.loggers"


@pytest.fixture(autouse=True)
def levels() -> Iterator[None]:
    """Clear the levels of the test's loggers, and restore all levels at the end."""
    root = logging.getLogger()
    for name in (NAME, f"{NAME}.a", f"{NAME}.b"):
        logging.getLogger(name).setLevel(logging.NOTSET)
    before = {
        name: logger.level
        for name, logger in root.manager.loggerDict.items()
        if isinstance(logger, logging.Logger)
    }
    root_level = root.level
    yield
    root.setLevel(root_level)
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


class Engine:
    """Keeps the levels that it gets; each call raises ``fault`` if there is one."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.states: list[LoggerState] = []
        self.fault: DroverError | None = None

    async def list_loggers(self) -> Sequence[LoggerState]:
        if self.fault is not None:
            raise self.fault
        return self.states

    async def set_logger_levels(self, levels: Mapping[str, str]) -> Sequence[str]:
        if self.fault is not None:
            raise self.fault
        self.told += levels.items()
        return [state.name for state in self.states]


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def loggers(engine: Engine) -> Loggers:
    return Loggers(lambda: 5_000, engine)


@pytest.fixture
async def telling(loggers: Loggers) -> AsyncIterator[None]:
    """Runs the task that sends level changes to the engine."""
    running = asyncio.create_task(loggers.run())
    yield
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def level_of(name: str) -> int:
    return logging.getLogger(name).getEffectiveLevel()


def read(loggers: Loggers, *changes: tuple[str, str]) -> None:
    found = [ConfigEvent(i, LoggerLevelSet(*change)) for i, change in enumerate(changes)]
    loggers.observe(events.ConfigsChanged(found, len(found)))


def load(loggers: Loggers, **levels: str) -> None:
    named = {name.replace("_", "."): level for name, level in levels.items()}
    loggers.observe(events.ConfigsLoaded(ConfigSnapshot(0, {}, {}, logger_levels=named)))


async def test_a_level_goes_to_a_logger_and_those_below_it(loggers: Loggers) -> None:
    assert await loggers.set_level(NAME, "debug") == [NAME, f"{NAME}.a", f"{NAME}.b"]
    assert level_of(f"{NAME}.b") == logging.DEBUG
    assert await loggers.set_level(f"{NAME}.a", "ERROR") == [f"{NAME}.a"]
    assert level_of(f"{NAME}.b") == logging.DEBUG


async def test_a_name_that_only_loggers_below_it_have_is_known(loggers: Loggers) -> None:
    assert f"{NAME}.a" in await loggers.set_level("drover.test", "ERROR")


async def test_one_that_was_set_is_listed_with_when(loggers: Loggers) -> None:
    await loggers.set_level(f"{NAME}.a", "WARN")
    states = {state.name: state for state in await loggers.states()}
    assert states[f"{NAME}.a"].level == "WARNING"
    assert states[f"{NAME}.a"].changed_ms == 5_000
    assert states[f"{NAME}.b"].changed_ms is None
    assert "root" in states
    assert "drover" in states


def test_the_same_level_again_keeps_the_time() -> None:
    later = ProcessLoggers(iter((1_000, 2_000)).__next__)
    later.set_level(f"{NAME}.a", "ERROR")
    assert later.set_level(f"{NAME}.a", "ERROR") == []
    states = {state.name: state for state in later.states()}
    assert states[f"{NAME}.a"].changed_ms == 1_000


async def test_the_root_alone(loggers: Loggers) -> None:
    await loggers.set_level(f"{NAME}.a", "ERROR")
    await loggers.set_level("root", "OFF")
    assert logging.getLogger().getEffectiveLevel() > logging.CRITICAL
    assert level_of(f"{NAME}.a") == logging.ERROR


@pytest.mark.parametrize(
    ("name", "level", "fields"),
    [
        ("no.such.logger", "DEBUG", ["name"]),
        ("", "DEBUG", ["name"]),
        ("drover.tes", "DEBUG", ["name"]),
        ("root", "LOUD", ["level"]),
        ("root", "", ["level"]),
        ("org.apache.kafka", "7", ["name", "level"]),
    ],
)
async def test_an_unknown_logger_and_a_bad_level_are_refused(
    loggers: Loggers, name: str, level: str, fields: list[str]
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        await loggers.set_level(name, level)
    assert [violation.field for violation in caught.value.violations] == fields


def test_the_config_log_sets_what_there_is_and_nothing_else(loggers: Loggers) -> None:
    load(loggers)
    java = ("org.apache.kafka.connect.runtime.WorkerSinkTask", "TRACE")
    read(loggers, java, (f"{NAME}.b", "LOUD"), (f"{NAME}.a", "ERROR"))
    assert level_of(f"{NAME}.a") == logging.ERROR
    assert level_of(f"{NAME}.b") == level_of(NAME)
    assert java[0] not in logging.getLogger().manager.loggerDict


def test_levels_of_before_the_process_began_do_not_count(loggers: Loggers) -> None:
    load(loggers, drover_test_loggers_a="ERROR")
    assert level_of(f"{NAME}.a") == level_of(NAME)


def test_what_a_long_absence_missed_is_made_up_for(loggers: Loggers) -> None:
    load(loggers, drover_test_loggers_a="ERROR")
    load(loggers, drover_test_loggers_a="ERROR", drover_test_loggers_b="ERROR")
    assert level_of(f"{NAME}.a") == level_of(NAME)
    assert level_of(f"{NAME}.b") == logging.ERROR


@pytest.mark.parametrize(
    ("level", "shared"), [("warning", "WARN"), ("Critical", "FATAL"), ("debug", "DEBUG")]
)
def test_the_config_log_has_the_levels_that_kafka_connect_knows(level: str, shared: str) -> None:
    assert shared_level(level) == shared


def test_a_logger_that_is_made_later_follows_the_one_above_it() -> None:
    own = ProcessLoggers(lambda: 0)
    assert own.set_level(f"{NAME}.later", "ERROR") == [f"{NAME}.later"]
    assert level_of(f"{NAME}.later.still") == logging.ERROR
    logging.getLogger(f"{NAME}.later").setLevel(logging.NOTSET)


async def test_both_processes_loggers_are_listed_by_name(loggers: Loggers, engine: Engine) -> None:
    engine.states = [LoggerState("acme.lines", "DEBUG", 7), LoggerState(NAME, "OFF", None)]
    states = {state.name: state for state in await loggers.states()}
    assert states["acme.lines"] == LoggerState("acme.lines", "DEBUG", 7)
    assert states[NAME].level != "OFF"  # the level of the herder's own logger
    assert list(states) == sorted(states)


async def test_a_connectors_logger_is_set_in_the_engine(loggers: Loggers, engine: Engine) -> None:
    engine.states = [LoggerState("acme.lines", "INFO", None)]
    assert await loggers.set_level("acme", "debug") == ["acme.lines"]
    assert engine.told == [("acme", "DEBUG")]
    assert "acme" not in logging.getLogger().manager.loggerDict
    with pytest.raises(InvalidArgumentError):
        await loggers.set_level("acme.li", "DEBUG")


async def test_without_an_engine_the_herders_loggers_are_shown_and_set(
    loggers: Loggers, engine: Engine
) -> None:
    engine.states = [LoggerState("acme.lines", "INFO", None)]
    engine.fault = UnavailableError(Reason.ENGINE_UNAVAILABLE, "it ended")
    assert "acme.lines" not in [state.name for state in await loggers.states()]
    assert await loggers.set_level(f"{NAME}.a", "ERROR") == [f"{NAME}.a"]
    assert level_of(f"{NAME}.a") == logging.ERROR
    with pytest.raises(InvalidArgumentError):
        await loggers.set_level("acme.lines", "ERROR")


@pytest.mark.usefixtures("telling")
async def test_the_engine_hears_of_every_level_for_the_cluster_but_of_no_bad_one(
    loggers: Loggers, engine: Engine
) -> None:
    load(loggers, of_long_ago="ERROR")
    read(loggers, ("acme.lines", "debug"), ("acme.words", "LOUD"), ("", "DEBUG"))
    await wait_until_async(lambda: engine.told == [("acme.lines", "DEBUG")])


@pytest.mark.usefixtures("telling")
async def test_a_new_engine_is_told_what_was_set_since_the_worker_began(
    loggers: Loggers, engine: Engine
) -> None:
    read(loggers, ("acme.b", "ERROR"), ("acme.a", "WARN"), ("acme.b.c", "INFO"))
    read(loggers, ("acme.b", "OFF"), ("other", "DEBUG"), ("acme.a.x", "FATAL"))
    wanted = [("acme.a", "WARN"), ("acme.b", "OFF"), ("other", "DEBUG"), ("acme.a.x", "FATAL")]
    await wait_until_async(lambda: engine.told == wanted)
    engine.told.clear()
    loggers.engine_started()
    await wait_until_async(lambda: engine.told == wanted)


@pytest.mark.usefixtures("telling")
async def test_an_engine_that_is_away_does_not_end_the_telling(
    loggers: Loggers, engine: Engine
) -> None:
    engine.fault = UnavailableError(Reason.ENGINE_UNAVAILABLE, "it ended")
    read(loggers, ("acme", "DEBUG"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    engine.fault = None
    loggers.engine_started()
    await wait_until_async(lambda: engine.told == [("acme", "DEBUG")])


async def test_the_levels_that_are_remembered_are_bounded(loggers: Loggers, engine: Engine) -> None:
    read(loggers, *((f"acme.{number:04}", "ERROR") for number in range(REMEMBERED_MAX + 1)))
    loggers.engine_started()
    await loggers.set_level("root", "INFO")
    assert len(engine.told) == REMEMBERED_MAX
    assert engine.told[0] == ("acme.0002", "ERROR")
    assert engine.told[-1] == ("root", "INFO")
