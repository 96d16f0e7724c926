"""Discovery of connector classes; a broken entry point is reported and blocks no other."""

import logging
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint
from typing import ClassVar

import pytest

from drover.connector import ConfigDef, Guarantee, SourceConnector, SourceTask
from drover.connector.catalogue import (
    GROUP,
    PluginNotFoundError,
    PluginRegistry,
    class_name,
    connector_type,
)
from drover_worker.engine.plugins.validation import description_of, encode_plugins
from tests.support.docs_tables import connectors

MODULE = "plugins_of_this_test"


class Task(SourceTask):
    def poll(self) -> None:
        return None


class Good(SourceConnector):
    """Does good.

    And more.
    """

    version = "2.0"
    aliases: ClassVar[Sequence[str]] = ("good", "fine")
    task_class = Task

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef()

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return []


class Silent(Good):
    aliases = ()

    @classmethod
    def config_def(cls) -> ConfigDef:
        raise OSError("no definition\nhere")


class Abstract(SourceConnector):
    task_class = Task


@pytest.fixture(autouse=True)
def module() -> Iterator[types.ModuleType]:
    made = types.ModuleType(MODULE)
    for each in (Good, Silent, Abstract):
        copy = type(each.__name__, (each,), {"__module__": MODULE, "__doc__": each.__doc__})
        setattr(made, each.__name__, copy)
    made.number = 7  # type: ignore[attr-defined]
    sys.modules[MODULE] = made
    yield made
    del sys.modules[MODULE]


def _registry(**points: str) -> PluginRegistry:
    return PluginRegistry(
        lambda: [EntryPoint(name, value, GROUP) for name, value in points.items()]
    )


@pytest.mark.parametrize(
    "name",
    ["Shown", "Good", f"{MODULE}.Good", f"{MODULE}:Good", "good", "fine", " Shown "],
)
def test_a_connector_is_found_by_each_of_its_names(name: str) -> None:
    found = _registry(Shown=f"{MODULE}:Good").find(name)
    assert class_name(found) == f"{MODULE}.Good"
    assert connector_type(found) == "source"


@pytest.mark.parametrize("name", [f"{MODULE}.Good", f"{MODULE}:Good"])
def test_a_class_without_an_entry_point_is_found_by_its_path(name: str) -> None:
    assert class_name(_registry().find(name)) == f"{MODULE}.Good"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Nobody", "known: Bad, Shown"),
        (f"{MODULE}.Missing", "has no attribute 'Missing'"),
        (f"{MODULE}.number", "7 is not a subclass of SourceConnector or SinkConnector"),
        (f"{MODULE}.Abstract", "Abstract is abstract: it lacks config_def, task_configs"),
        ("nowhere.at.All", "No module named 'nowhere'"),
        ("drover.connector.SourceConnector", "SourceConnector is abstract"),
        ("", "no connector ''"),
        (".", "no connector '.'"),
        ("..relative.Path", "no connector '..relative.Path'"),
    ],
)
def test_what_cannot_be_a_connector_is_not_found(name: str, why: str) -> None:
    registry = _registry(Shown=f"{MODULE}:Good", Bad=f"{MODULE}:Abstract")
    with pytest.raises(PluginNotFoundError) as caught:
        registry.find(name)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_connectors_module_has_a_logger_before_it_logs() -> None:
    loggers = logging.getLogger().manager.loggerDict
    loggers.pop(MODULE, None)
    _registry(Shown=f"{MODULE}:Good").find("Shown")
    assert MODULE in loggers


def test_a_broken_entry_point_is_a_problem_and_the_others_work() -> None:
    registry = _registry(
        Shown=f"{MODULE}:Good", Broken="missing_module:Thing", Odd=f"{MODULE}:number"
    )
    plugins, problems = registry.list()
    assert [each.aliases for each in plugins] == [("Good", "Shown", "fine", "good")]
    assert [each.entry_point for each in problems] == [
        "Broken = missing_module:Thing",
        f"Odd = {MODULE}:number",
    ]
    assert problems[0].message == "ModuleNotFoundError: No module named 'missing_module'"
    with pytest.raises(PluginNotFoundError, match=r"'Broken' cannot be loaded: .*missing_module"):
        registry.find("Broken")


def test_a_name_of_two_connectors_is_refused() -> None:
    registry = _registry(Shown=f"{MODULE}:Good", Second=f"{__name__}:Good")
    with pytest.raises(PluginNotFoundError, match="'Good' names several connectors") as caught:
        registry.find("Good")
    assert f"{MODULE}.Good" in str(caught.value)
    assert class_name(registry.find("Shown")) == f"{MODULE}.Good"


def test_the_description_of_a_plugin_is_plain_text() -> None:
    described = {name: description_of(each) for name, each in connectors().items()}
    assert described["FileStreamSink"].startswith("Writes topics into a file")
    assert {name for name, text in described.items() if not text or "`" in text} == set()


def test_a_plugin_that_cannot_say_its_settings_is_a_problem_of_the_list() -> None:
    listed = encode_plugins(*_registry(Shown=f"{MODULE}:Good", Quiet=f"{MODULE}:Silent").list())
    (plugin,) = listed.plugins
    assert (plugin.type, plugin.version, plugin.description) == ("source", "2.0", "Does good.")
    assert "tasks.max" in [key.name for key in plugin.config_keys]
    (problem,) = listed.problems
    assert problem.entry_point == f"{MODULE}.Silent"
    assert problem.message == "config_def() failed: OSError: no definition here"
    assert problem.shown == "config_def() failed: OSError: its text is in the worker's log"


def test_the_settings_of_every_connector_are_marked_as_common() -> None:
    plugins = {each.class_name: each for each in encode_plugins(*PluginRegistry().list()).plugins}
    found = plugins["drover.connectors.files.lines.file_stream_source.FileStreamSource"]
    common = {key.name: key.common for key in found.config_keys}
    assert common["errors.tolerance"]
    assert not common["file"]
    assert not common["topic"]


def test_every_built_in_connector_says_what_it_guarantees() -> None:
    plugins, problems = PluginRegistry().list()
    assert not problems
    built_in = [each for each in plugins if class_name(each.connector_class).startswith("drover.")]
    assert len(built_in) > 8
    silent = [each.aliases for each in built_in if each.connector_class.guarantees is None]
    assert not silent
    listed = encode_plugins(built_in, []).plugins
    assert {each.guarantee_kafka for each in listed} <= {*Guarantee}
    lowered = encode_plugins(built_in, [], not_exactly_once="it is disabled").plugins
    once = {each.type for each in lowered if each.guarantee_kafka == Guarantee.EXACTLY_ONCE}
    assert once == {"sink"}, "sources are exactly-once only if offsets commit with records"
