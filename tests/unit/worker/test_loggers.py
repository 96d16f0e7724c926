"""The loggers of a worker's process (KIP-976)."""

import logging
from collections.abc import Iterator

import pytest

from drover.errors import InvalidArgumentError
from drover.model.config import ConfigEvent, ConfigSnapshot, LoggerLevelSet
from services.worker.core import events
from services.worker.loggers import Loggers, shared_level

NAME = "drover.test.loggers"


@pytest.fixture(autouse=True)
def levels() -> Iterator[None]:
    """The test's loggers begin without levels, and all have theirs back at the end."""
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


@pytest.fixture
def loggers() -> Loggers:
    return Loggers(lambda: 5_000)


def level_of(name: str) -> int:
    return logging.getLogger(name).getEffectiveLevel()


def read(loggers: Loggers, *changes: tuple[str, str]) -> None:
    found = [ConfigEvent(i, LoggerLevelSet(*change)) for i, change in enumerate(changes)]
    loggers.observe(events.ConfigsChanged(found, len(found)))


def load(loggers: Loggers, **levels: str) -> None:
    named = {name.replace("_", "."): level for name, level in levels.items()}
    loggers.observe(events.ConfigsLoaded(ConfigSnapshot(0, {}, {}, logger_levels=named)))


def test_a_level_goes_to_a_logger_and_those_below_it(loggers: Loggers) -> None:
    assert loggers.set_level(NAME, "debug") == [NAME, f"{NAME}.a", f"{NAME}.b"]
    assert level_of(f"{NAME}.b") == logging.DEBUG
    assert loggers.set_level(f"{NAME}.a", "ERROR") == [f"{NAME}.a"]
    assert level_of(f"{NAME}.b") == logging.DEBUG


def test_a_name_that_only_loggers_below_it_have_is_known(loggers: Loggers) -> None:
    assert f"{NAME}.a" in loggers.set_level("drover.test", "ERROR")


def test_one_that_was_set_is_listed_with_when(loggers: Loggers) -> None:
    loggers.set_level(f"{NAME}.a", "WARN")
    states = {state.name: state for state in loggers.states()}
    assert states[f"{NAME}.a"].level == "WARNING"
    assert states[f"{NAME}.a"].changed_ms == 5_000
    assert states[f"{NAME}.b"].changed_ms is None
    assert "root" in states
    assert "drover" in states


def test_the_same_level_again_keeps_the_time(loggers: Loggers) -> None:
    later = Loggers(iter((1_000, 2_000)).__next__)
    later.set_level(f"{NAME}.a", "ERROR")
    assert later.set_level(f"{NAME}.a", "ERROR") == []
    states = {state.name: state for state in later.states()}
    assert states[f"{NAME}.a"].changed_ms == 1_000


def test_the_root_alone(loggers: Loggers) -> None:
    loggers.set_level(f"{NAME}.a", "ERROR")
    loggers.set_level("root", "OFF")
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
def test_an_unknown_logger_and_a_bad_level_are_refused(
    loggers: Loggers, name: str, level: str, fields: list[str]
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        loggers.set_level(name, level)
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
