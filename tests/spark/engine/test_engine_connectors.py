"""Connectors, plugins and configs on a real engine; most tests need no Spark."""

import asyncio

import pytest
import pytest_asyncio

from drover.api.engine.v1 import engine_pb2
from drover.model.secrets import MASK
from drover_worker.engine.settings import EngineLimits
from tests.spark.engine.harness import (
    CALL_TIMEOUT_S,
    PLUGINS,
    Harness,
    connector_config,
    plugin,
)
from tests.support.waiting import wait_until_async

pytestmark = [pytest.mark.spark, pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(loop_scope="session")
async def engine(starting_engine: Harness) -> Harness:
    return starting_engine


async def _stop(engine: Harness, name: str) -> engine_pb2.EngineReport:
    return await engine.call(stop_connector=engine_pb2.StopConnector(connector=name))


async def _validate(engine: Harness, config: dict[str, str]) -> engine_pb2.EngineReport:
    return await engine.call(validate_config=engine_pb2.ValidateConfig(config=config))


def _faults(report: engine_pb2.EngineReport) -> dict[str, list[str]]:
    return {each.key.name: list(each.errors) for each in report.validation.values if each.errors}


async def test_the_installed_plugins_are_listed(engine: Harness) -> None:
    listed = (await engine.call(list_plugins=engine_pb2.ListPlugins())).plugins
    assert engine.supervisor.state == "STARTING"
    by_alias = {alias: each for each in listed.plugins for alias in each.aliases}
    assert by_alias["FileStreamSource"].type == "source"
    assert by_alias["FileStreamSink"].type == "sink"
    assert "tasks.max" in [key.name for key in by_alias["FileStreamSource"].config_keys]
    assert list(listed.problems) == []


async def test_a_connector_starts_makes_task_configs_and_stops(engine: Harness) -> None:
    answer = await engine.start_connector("counter", plugin="Counter", topic="t")
    assert answer.HasField("done")
    configs = (await engine.task_configs("counter", 2)).task_configs.task_configs
    assert [dict(each.config) for each in configs] == [
        {"share": "0", "task.count": "2"},
        {"share": "1", "task.count": "2"},
    ]
    again = await engine.start_connector("counter", plugin="Counter", topic="t")
    assert again.failure.message == "connector 'counter' is already running: stop it first"
    assert (await _stop(engine, "counter")).HasField("done")
    assert (await _stop(engine, "counter")).HasField("done")
    answer = await engine.task_configs("counter", 2)
    assert answer.failure.message == "connector 'counter' is not started"


async def test_a_connector_that_raises_in_its_constructor_answers_with_the_trace(
    engine: Harness,
) -> None:
    answer = await engine.start_connector("broken", plugin="RaisingConstructor", topic="t")
    assert "RuntimeError: the constructor is out of order" in answer.failure.message
    assert "in __init__" in answer.failure.trace
    assert (await engine.start_connector("broken", plugin="Counter", topic="t")).HasField("done")
    await _stop(engine, "broken")


async def test_a_connector_that_hangs_in_start_is_abandoned_and_blocks_nobody(
    engine: Harness,
) -> None:
    hung = asyncio.create_task(
        engine.start_connector("hung", plugin="Counter", topic="t", misbehave="hang in connector")
    )
    assert (await engine.start_connector("free", plugin="Counter", topic="t")).HasField("done")
    assert not hung.done()
    failure = (await hung).failure
    assert failure.timed_out
    assert "start() of connector 'hung' did not return within 10 s" in failure.message
    assert (await engine.start_connector("hung", plugin="Counter", topic="t")).HasField("done")
    await _stop(engine, "free")
    await _stop(engine, "hung")


async def test_a_stop_during_a_start_is_carried_out_after_it(engine: Harness) -> None:
    starting = asyncio.create_task(
        engine.start_connector("late", plugin="Counter", topic="t", misbehave="hang in connector")
    )
    await asyncio.sleep(0)  # the start is sent first
    stopped = await _stop(engine, "late")
    assert stopped.HasField("done")
    assert (await starting).failure.timed_out


async def test_a_connector_asks_for_new_task_configs_once_until_it_is_asked(
    engine: Harness,
) -> None:
    await engine.start_connector(
        "asking", plugin="Counter", topic="t", misbehave="ask for reconfiguration"
    )
    await engine.wait_for_report("reconfiguration_requested", "asking")
    await _stop(engine, "asking")
    assert len(engine.reports_of("reconfiguration_requested", "asking")) == 1


async def test_a_connector_that_fails_later_is_reported_with_its_trace(engine: Harness) -> None:
    await engine.start_connector("later", plugin="Counter", topic="t", misbehave="fail later")
    report = await engine.wait_for_report("connector_failed", "later")
    assert "OSError: the world ended" in report.connector_failed.trace
    assert (await _stop(engine, "later")).HasField("done")


@pytest.mark.parametrize(
    ("misbehaviour", "message"),
    [
        ("raise in task_configs", "raised RuntimeError: no tasks today"),
        ("too many tasks", "task_configs() returned 2 configs, but tasks.max is 1"),
    ],
)
async def test_task_configs_that_cannot_be_had(
    engine: Harness, misbehaviour: str, message: str
) -> None:
    await engine.start_connector("odd", plugin="Counter", topic="t", misbehave=misbehaviour)
    answer = await engine.task_configs("odd", 1)
    assert message in answer.failure.message
    assert answer.failure.trace.startswith("Traceback")
    await _stop(engine, "odd")


async def test_every_fault_of_a_config_is_found_at_once(engine: Harness) -> None:
    config = connector_config(
        "bad\tname", plugin="Counter", tasks_max="many", limit="1", secret="x"
    )
    report = await _validate(engine, config)
    assert report.validation.connector_type == "source"
    assert _faults(report) == {
        "name": ["must not contain control characters"],
        "tasks.max": ["must be a whole number, not 'many'"],
        "topic": ["is required"],
        "step": ["must not be over limit"],
    }
    shown = {each.key.name: each.value for each in report.validation.values}
    assert shown["secret"] == MASK
    assert shown["limit"] == "1"


async def test_two_hundred_faults_are_two_hundred_faults(engine: Harness) -> None:
    config = connector_config("many", plugin="ManySettings")
    report = await _validate(engine, {**config, **{f"n{i}": "x" for i in range(200)}})
    assert len(_faults(report)) == 200


async def test_a_config_without_a_class_has_its_common_settings_judged(engine: Harness) -> None:
    report = await _validate(engine, {"tasks.max": "0", "connector.class": " "})
    assert _faults(report) == {
        "name": ["is required"],
        "connector.class": ["is required"],
        "tasks.max": ["must be at least 1, not 0"],
    }


@pytest.mark.parametrize(
    "wanted", ["NoSuch", "no.such.Module", f"{PLUGINS}.CounterTask", "os.path", "1 + 1"]
)
async def test_an_unknown_class_is_not_found_and_the_known_are_listed(
    engine: Harness, wanted: str
) -> None:
    failure = (await _validate(engine, {"name": "x", "connector.class": wanted})).failure
    assert failure.plugin_not_found
    assert f"no connector {wanted!r} is installed on this worker" in failure.message
    assert "FileStreamSink, FileStreamSource" in failure.message


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("RaisingDefinition", "config_def() of {} raised LookupError: lost the list"),
        ("RaisingValidation", "validate() of {} raised ZeroDivisionError: judging is hard"),
    ],
)
async def test_a_plugin_that_raises_while_judging_is_itself_the_fault(
    engine: Harness, name: str, fault: str
) -> None:
    report = await _validate(engine, connector_config("x", plugin=name, tasks_max="-1"))
    faults = _faults(report)
    assert faults["connector.class"] == [fault.format(plugin(name))]
    assert faults["tasks.max"] == ["must be at least 1, not -1"]


async def test_a_command_that_an_older_engine_does_not_know_is_answered(
    engine: Harness,
) -> None:
    answer = await engine.supervisor.call(engine_pb2.EngineCommand(), timeout_s=30)
    assert "unknown command" in answer.failure.message


async def test_an_engine_with_too_many_hung_calls_is_replaced(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    limits = EngineLimits(start_ms=200, stop_ms=200, abandoned_threads=1)
    harness = Harness(tmp_path_factory.mktemp("hung"), limits=limits)
    await harness.supervisor.start()
    first = harness.supervisor.process_id
    for number in range(2):
        answer = await harness.start_connector(
            f"hung-{number}", plugin="Counter", topic="t", misbehave="hang in connector"
        )
        assert answer.failure.timed_out
    await wait_until_async(lambda: harness.exits, timeout_s=CALL_TIMEOUT_S)
    (request,) = [each for each in harness.reports if each.HasField("replacement_requested")]
    assert request.replacement_requested.reason == (
        "2 plugin calls hang: start:hung-0, start:hung-1"
    )
    assert harness.exits[0].requested
    await wait_until_async(lambda: harness.supervisor.process_id not in (None, first))
    assert (await harness.call(list_plugins=engine_pb2.ListPlugins())).HasField("plugins")
    await harness.close()
