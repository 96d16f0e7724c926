"""``drover plugin list`` and ``describe``."""

import io
import json
import re
import sys
import threading

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.definitions import parse_definitions
from tests.support.docs_examples import config_of
from tests.support.fake_cluster import FakeCluster, Run


def test_a_plugin_that_some_workers_lack_names_those_that_have_it(
    cluster: FakeCluster, drover: Run
) -> None:
    answer = pb.ListPluginsResponse(
        plugins=[
            pb.Plugin(
                class_name="a.New",
                version="2",
                worker_ids=["w:1"],
                load_time=Timestamp(seconds=1_700_000_000),
            ),
            pb.Plugin(class_name="a.Old", version="1"),
        ],
        worker_ids=["w:1", "w:2"],
        silent_worker_ids=["w:3"],
        problems=[
            pb.PluginProblem(
                package="acme 1", entry_point="A = a:A", message="no module", worker_ids=["w:2"]
            ),
            pb.PluginProblem(entry_point="B = b:B", message="no", worker_ids=["w:1", "w:2"]),
        ],
    )
    cluster.answers["ListPlugins"] = answer
    lines = drover("plugin", "list")[1].splitlines()
    assert lines[0].split()[-3:] == ["LOADED", "ONLY", "ON"]
    assert lines[1].split() == ["a.New", "2", "2023-11-14", "22:13:20", "UTC", "w:1"]
    assert lines[2].split() == ["a.Old", "1", "-"]
    assert lines[3:] == [
        "not loaded on w:2: A = a:A of acme 1: no module",
        "not loaded: B = b:B of unknown package: no",
        "no answer from w:3",
    ]
    documents = json.loads(drover("plugin", "list", "-o", "json")[1])
    assert [each["workers"] for each in documents] == [["w:1"], ["w:1", "w:2"]]


def test_plugins_that_were_loaded_together_say_when(cluster: FakeCluster, drover: Run) -> None:
    loaded = Timestamp(seconds=1_700_000_000)
    plugins = [pb.Plugin(class_name=name, load_time=loaded) for name in ("a.A", "a.B")]
    cluster.answers["ListPlugins"] = pb.ListPluginsResponse(plugins=plugins)
    out = drover("plugin", "list")[1]
    assert "loaded at 2023-11-14 22:13:20 UTC; `drover plugin reload` loads" in out
    assert "LOADED" not in out


def test_plugins_are_reloaded_worker_by_worker(cluster: FakeCluster, drover: Run) -> None:
    cluster.answers["ListPlugins"] = pb.ListPluginsResponse(worker_ids=["w:1", "w:2"])
    cluster.answers["ReloadPlugins"] = pb.ReloadPluginsResponse(worker_id="w:x", moved_count=3)
    code, out, _ = drover("plugin", "reload")
    assert (code, out) == (0, "w:x has a new engine; 3 connectors and tasks moved to it\n" * 2)
    assert [each.worker_id for each in cluster.requests[1:]] == ["w:1", "w:2"]
    drover("plugin", "reload", "--worker", "w:2", "-o", "json")
    assert cluster.requests[-1].worker_id == "w:2"


def test_a_reload_shows_that_it_is_in_progress(
    cluster: FakeCluster, drover: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.answers["ListPlugins"] = pb.ListPluginsResponse(worker_ids=["w:1"])
    reloaded = pb.ReloadPluginsResponse(worker_id="w:1", unchanged=True)
    monkeypatch.setattr("drover.cli.console.PROGRESS_INTERVAL_S", 0.01)
    shown = threading.Event()

    def answer_once_shown() -> pb.ReloadPluginsResponse:
        assert shown.wait(60)
        return reloaded

    class Stderr(io.StringIO):
        def write(self, text: str) -> int:
            if text.endswith(" s"):
                shown.set()
            return super().write(text)

    stderr = Stderr()
    monkeypatch.setattr(sys, "stderr", stderr)
    cluster.answers["ReloadPlugins"] = answer_once_shown
    assert drover("plugin", "reload")[0] == 0
    first, second, *_ = stderr.getvalue().splitlines()
    assert first == "w:1: looks for changed packages; a new engine takes a minute or more to start"
    assert re.fullmatch(rf"{re.escape(first)}: \d+ s", second)
    shown.set()
    stderr.truncate(0)
    assert drover("plugin", "reload", "-o", "json")[0] == 0
    assert not stderr.getvalue()


def test_a_reload_names_what_moved_and_why_and_what_stays(
    cluster: FakeCluster, drover: Run
) -> None:
    cluster.answers["ListPlugins"] = pb.ListPluginsResponse(worker_ids=["w:1"])
    cluster.answers["ReloadPlugins"] = pb.ReloadPluginsResponse(
        worker_id="w:1",
        moved_count=2,
        changed_packages=["acme-api 1.3.0"],
        moved_connectors=[
            pb.MovedConnector(connector="tickets", reason="connector.class uses acme-api 1.3.0")
        ],
        kept_count=19,
    )
    code, out, _ = drover("plugin", "reload", "--all")
    assert code == 0
    assert cluster.requests[-1].all
    assert out.splitlines() == [
        "w:1 has a new engine: acme-api 1.3.0; 2 connectors and tasks moved to it",
        "  tickets: connector.class uses acme-api 1.3.0",
        "  19 connectors and tasks stay in the old engine until they restart, at most an hour; "
        "both engines use memory (--all moves them now)",
    ]
    document = json.loads(drover("plugin", "reload", "-o", "json")[1])
    assert document["moved_connectors"] == {"tickets": "connector.class uses acme-api 1.3.0"}
    assert (document["kept_count"], document["unchanged"]) == (19, False)


def test_a_reload_without_changes_says_so(cluster: FakeCluster, drover: Run) -> None:
    cluster.answers["ListPlugins"] = pb.ListPluginsResponse(worker_ids=["w:1"])
    cluster.answers["ReloadPlugins"] = pb.ReloadPluginsResponse(worker_id="w:1", unchanged=True)
    code, out, _ = drover("plugin", "reload")
    assert code == 0
    assert out.startswith("w:1: no package changed since its engine started, so nothing was moved")


def test_a_worker_that_cannot_be_reloaded_is_told(cluster: FakeCluster, drover: Run) -> None:
    listing = pb.ListPluginsResponse(worker_ids=["w:1"], silent_worker_ids=["w:2"])
    cluster.answers["ListPlugins"] = listing
    cluster.answers["ReloadPlugins"] = pb.ReloadPluginsResponse(worker_id="w:1")
    code, out, err = drover("plugin", "reload")
    assert code == 1
    assert "w:1 has a new engine" in out
    assert "no answer: w:2" in err


def test_a_plugins_own_settings_precede_the_common_ones(cluster: FakeCluster, drover: Run) -> None:
    plugin = pb.Plugin(class_name="a.B", type=pb.CONNECTOR_TYPE_SOURCE)
    keys = [
        pb.ConfigKey(name="tasks.max", type="INT", common=True),
        pb.ConfigKey(name="file", type="STRING", required=True),
        pb.ConfigKey(name="topic", type="STRING"),
        pb.ConfigKey(name="errors.tolerance", type="STRING", common=True),
    ]
    cluster.answers["ListPlugins"] = pb.ListPluginsResponse(plugins=[plugin])
    cluster.answers["GetPlugin"] = pb.GetPluginResponse(plugin=plugin, config_keys=keys)
    out = drover("plugin", "describe", "B")[1]
    heading = "\nsettings of every source\n"
    places = [
        out.index(each) for each in ("file", "topic ", heading, "tasks.max", "errors.tolerance")
    ]
    assert places == sorted(places)
    document = json.loads(drover("plugin", "describe", "B", "-o", "json")[1])
    assert [each["common"] for each in document["settings"]] == [True, False, False, True]


def example_in(text: str) -> dict[str, object]:
    """The definition that ``plugin describe`` prints."""
    shown = text.partition("connector create -f FILE.yaml`\n")[2].partition("\n`drover")[0]
    (found,) = parse_definitions(shown, "shown.yaml")
    return {"name": found.name, "config": dict(found.config)}


def test_describe_shows_the_documented_definition_of_a_built_in_connector(
    cluster: FakeCluster, drover: Run
) -> None:
    plugin = pb.Plugin(
        class_name="drover.connectors.files.lines.file_stream_source.FileStreamSource",
        aliases=["FileStreamSource"],
        type=pb.CONNECTOR_TYPE_SOURCE,
    )
    cluster.answers["ListPlugins"] = pb.ListPluginsResponse(plugins=[plugin])
    cluster.answers["GetPlugin"] = pb.GetPluginResponse(plugin=plugin)
    config = config_of("files-and-datagen", "lines")
    example = {"name": config.pop("name"), "config": config}
    assert example_in(drover("plugin", "describe", "FileStreamSource")[1]) == example
    document = json.loads(drover("plugin", "describe", "FileStreamSource", "-o", "json")[1])
    assert document["example"] == example


def test_describe_shows_the_required_settings_of_another_connector_as_a_definition(
    cluster: FakeCluster, drover: Run
) -> None:
    plugin = pb.Plugin(class_name="a.S", aliases=["S"], type=pb.CONNECTOR_TYPE_SINK)
    keys = [
        pb.ConfigKey(name="tasks.max", type="INT", common=True),
        pb.ConfigKey(name="table", type="STRING", required=True),
        pb.ConfigKey(name="mode", type="STRING", required=True, valid_values=["append", "merge"]),
    ]
    cluster.answers["ListPlugins"] = pb.ListPluginsResponse(plugins=[plugin])
    cluster.answers["GetPlugin"] = pb.GetPluginResponse(plugin=plugin, config_keys=keys)
    config = {"connector.class": "S", "topics": "<LIST>", "table": "<STRING>", "mode": "append"}
    shown = {"name": "<STRING>", "config": config}
    assert example_in(drover("plugin", "describe", "S")[1]) == shown


def test_plugins_are_listed_and_described(
    cluster: FakeCluster, drover: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = pb.Plugin(
        class_name="a.B",
        aliases=["B"],
        type=pb.CONNECTOR_TYPE_SOURCE,
        version="1",
        description="Reads files. And\nmore of it.",
        guarantee_embedded=pb.GUARANTEE_EXACTLY_ONCE,
        guarantee_kafka=pb.GUARANTEE_AT_LEAST_ONCE,
    )
    key = pb.ConfigKey(name="file", type="STRING", required=True, documentation="Where.")
    sink = pb.Plugin(
        class_name="a.S",
        type=pb.CONNECTOR_TYPE_SINK,
        guarantee_embedded=pb.GUARANTEE_EXACTLY_ONCE,
        guarantee_kafka=pb.GUARANTEE_EXACTLY_ONCE,
    )
    cluster.answers["ListPlugins"] = pb.ListPluginsResponse(plugins=[plugin, sink])
    cluster.answers["GetPlugin"] = pb.GetPluginResponse(plugin=plugin, config_keys=[key])
    monkeypatch.setenv("COLUMNS", "80")
    assert drover("plugin", "list")[1].splitlines()[1].split() == [
        *("B", "source", "1"),
        *("Reads", "files"),
    ]
    assert "a.B 1\nalso called B" in drover("plugin", "describe", "B")[1]
    assert json.loads(drover("plugin", "list", "-o", "json")[1])[0]["aliases"] == ["B"]
    assert "required" in drover("plugin", "describe", "B")[1]
    document = json.loads(drover("plugin", "describe", "B", "-o", "json")[1])
    assert document["settings"][0]["default"] is None
    assert document["guarantees"] == {"embedded": "exactly once", "kafka": "at least once"}
    told = "each record exactly once in embedded storage, at least once on Kafka"
    assert told in drover("plugin", "describe", "B")[1]
    assert document["pairs"] == [
        {"with": "a.S", "embedded": "exactly once", "kafka": "at least once"}
    ]
    assert "on Kafka at least once with the sinks a.S" in drover("plugin", "describe", "B")[1]
