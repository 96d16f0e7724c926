"""Files and plugins that fail, beside a flow that must not be affected."""

import os
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.connector import SourceConnector
from drover.errors import InvalidArgumentError
from tests.support import plugins_for_tests as plugins
from tests.support.shared_cluster import PLUGIN_TIMEOUT_S, SharedCluster
from tests.support.waiting import wait_until_async

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.timeout(1200),
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.usefixtures("flowing"),
]

STATE_TIMEOUT_S = 180.0
#: The longest trace in a status.
TRACE_MAX_BYTES = 64 * 1024
LATE = f"did not return within {PLUGIN_TIMEOUT_S} s"


def source(file: Path, topic: str) -> dict[str, str]:
    return {"connector.class": "FileStreamSource", "file": str(file), "topic": topic}


def sink(file: Path, topic: str) -> dict[str, str]:
    return {"connector.class": "FileStreamSink", "file": str(file), "topics": topic}


async def failed_connector(shared: SharedCluster, name: str) -> str:
    """Wait for a connector's failure outside a rebalance; returns its trace."""

    async def trace() -> str:
        state = (await shared.client.get_connector_status(name)).connector
        return state.trace if state.state != pb.RUN_STATE_UNASSIGNED else ""

    return await wait_until_async(
        trace, timeout_s=STATE_TIMEOUT_S, describe=f"{name} says what is wrong"
    )


async def failed_task(shared: SharedCluster, name: str) -> str:
    """Wait for the failure of a connector's first task; returns its trace. The connector keeps
    running.
    """

    async def trace() -> str:
        status = await shared.client.get_connector_status(name)
        failed = [task for task in status.tasks if task.state == pb.RUN_STATE_FAILED]
        # the status may be from the middle of a rebalance
        settled = status.connector.state == pb.RUN_STATE_RUNNING
        return failed[0].trace if failed and settled else ""

    return await wait_until_async(
        trace, timeout_s=STATE_TIMEOUT_S, describe=f"task {name}-0 has failed"
    )


async def assigned(shared: SharedCluster, connector: str) -> bool:
    info = await shared.client.get_cluster_info()
    return any(connector in worker.connectors for worker in info.workers)


async def comes_out(file: Path, expected: bytes) -> None:
    await wait_until_async(
        lambda: file.exists() and file.stat().st_size >= len(expected),
        timeout_s=STATE_TIMEOUT_S,
        describe=lambda: f"{file}: {file.stat().st_size if file.exists() else None} bytes",
    )
    assert file.read_bytes() == expected


# Files


async def test_files_that_cannot_be_read_fail_their_tasks_until_they_are_mended(
    shared: SharedCluster, tmp_path: Path
) -> None:
    directory, loop, below = tmp_path / "directory", tmp_path / "loop", tmp_path / "plain" / "below"
    directory.mkdir()
    loop.symlink_to(loop)
    below.parent.write_text("a file, not a directory")
    said = {
        "directory": (directory, "is a directory"),
        "loop": (loop, "Too many levels of symbolic links"),
        "below": (below, "Not a directory"),
    }
    if os.geteuid() != 0:  # root ignores file modes
        said["closed"] = (tmp_path / "closed", "Permission denied")
        (tmp_path / "closed").touch(0o000)
    output = tmp_path / "out.txt"
    async with AsyncExitStack() as stack:
        for name, (file, _) in said.items():
            await stack.enter_async_context(shared.connector(name, source(file, "mended")))
        await stack.enter_async_context(shared.connector("mended", sink(output, "mended")))
        for name, (file, text) in said.items():
            trace = await failed_task(shared, name)
            assert str(file) in trace
            assert text in trace
        await shared.flow.wait_until_passed("while other files cannot be read")

        directory.rmdir()
        loop.unlink()
        below.parent.unlink()
        below.parent.mkdir()
        (tmp_path / "closed").unlink(missing_ok=True)
        for name, (file, _) in said.items():
            file.write_text(f"{name}\n")
            await shared.client.restart_task(name, 0)
            state = await shared.cluster.wait_for_task(name)
            assert state.trace == ""
        await wait_until_async(
            lambda: output.exists() and sorted(output.read_text().split()) == sorted(said),
            timeout_s=STATE_TIMEOUT_S,
            describe="the repaired files are copied",
        )


async def test_a_file_that_vanishes_fails_its_task_and_goes_on_where_it_was(
    shared: SharedCluster, tmp_path: Path
) -> None:
    file, output = tmp_path / "in.txt", tmp_path / "out.txt"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    file.write_bytes(b"one\ntwo\n")
    async with (
        shared.connector("vanishing", source(file, "vanishing")),
        shared.connector("vanishing-out", sink(output, "vanishing")),
    ):
        await comes_out(output, b"one\ntwo\n")
        file.rename(elsewhere / "in.txt")
        trace = await failed_task(shared, "vanishing")
        assert f"{file} has vanished (it was read up to byte 8)" in trace
        await shared.flow.wait_until_passed("while another file is gone")

        (elsewhere / "in.txt").rename(file)
        with file.open("ab") as more:
            more.write(b"three\n")
        await shared.client.restart_connector("vanishing", include_tasks=True, only_failed=True)
        await comes_out(output, b"one\ntwo\nthree\n")


async def test_an_empty_file_waits_and_odd_bytes_come_out_as_they_are(
    shared: SharedCluster, tmp_path: Path
) -> None:
    file, output = tmp_path / "in.txt", tmp_path / "out.txt"
    file.write_bytes(b"")
    odd = b"\xff\xfe no text \xc3(\r\n\r\n\n\x00\x1b[31m\n" + "ü".encode("latin-1") + b"\n"
    long = b"x" * 20_000_000 + b"\n"
    async with (
        shared.connector("odd", source(file, "odd")),
        shared.connector("odd-out", sink(output, "odd")),
    ):
        await shared.cluster.wait_for_task("odd")
        await shared.cluster.wait_for_task("odd-out")
        assert await shared.client.get_connector_offsets("odd") == []
        with file.open("ab") as more:
            more.write(odd + long + b"after\nnot ended yet")
        await comes_out(output, odd + long + b"after\n")
        with file.open("ab") as more:
            more.write(b", but now\n")
        await comes_out(output, odd + long + b"after\nnot ended yet, but now\n")


async def test_files_that_cannot_be_written_fail_their_tasks_until_they_are_mended(
    shared: SharedCluster, tmp_path: Path
) -> None:
    file = tmp_path / "in.txt"
    file.write_bytes(b"one\ntwo\n")
    directory, foreign, homeless = (tmp_path / name for name in ("directory", "foreign", "a/b"))
    directory.mkdir()
    foreign.write_text("somebody's work")
    said = {
        "foreign-out": (foreign, "that this connector did not write"),
        "homeless-out": (homeless, f"the directory {homeless.parent} does not exist"),
    }
    machine = {**sink(Path("/proc/drover-test"), "writing"), "name": "machine-out"}
    refused = await shared.refusal(shared.client.create_connector("machine-out", machine))
    assert "connectors never access /proc" in str(refused.violations)  # type: ignore[attr-defined]
    config = sink(directory, "writing")
    refused = await shared.refusal(shared.client.create_connector("directory-out", config))
    assert "is a directory, not a file" in str(refused.violations)  # type: ignore[attr-defined]
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(shared.connector("writing", source(file, "writing")))
        for name, (path, _) in said.items():
            await stack.enter_async_context(shared.connector(name, sink(path, "writing")))
        for name, (_, text) in said.items():
            assert text in await failed_task(shared, name)
        assert foreign.read_text() == "somebody's work"
        await shared.flow.wait_until_passed("while other files cannot be written")

        directory.rmdir()
        await stack.enter_async_context(shared.connector("directory-out", config))
        await comes_out(directory, b"one\ntwo\n")
        foreign.unlink()
        homeless.parent.mkdir()
        for name, (path, _) in said.items():
            await shared.client.restart_task(name, 0)
            await comes_out(path, b"one\ntwo\n")


async def test_a_file_has_one_writing_connector(shared: SharedCluster, tmp_path: Path) -> None:
    file, output = tmp_path / "in.txt", tmp_path / "out.txt"
    file.write_bytes(b"one\n")
    async with (
        shared.connector("one", source(file, "one")),
        shared.connector("first-out", sink(output, "one")),
    ):
        await comes_out(output, b"one\n")
        async with shared.connector("second-out", sink(output, "one")):
            assert "belongs to connector 'first-out'" in await failed_task(shared, "second-out")
        with file.open("ab") as more:
            more.write(b"two\n")
        await comes_out(output, b"one\ntwo\n")


# Plugins


CONNECTORS_THAT_FAIL: list[tuple[type[SourceConnector], pb.RunState.ValueType, str]] = [
    (plugins.RaisesInConstructor, pb.RUN_STATE_FAILED, "RuntimeError: this one cannot be made"),
    (plugins.ExitsInStart, pb.RUN_STATE_FAILED, "SystemExit: 3"),
    (plugins.RaisesInTaskConfigs, pb.RUN_STATE_RUNNING, "RuntimeError: the work cannot be split"),
    (plugins.MakesTooManyTasks, pb.RUN_STATE_RUNNING, "returned 2 configs, but tasks.max is 1"),
]
TASKS_THAT_FAIL: list[tuple[type[SourceConnector], str]] = [
    (plugins.RaisesInPoll, "RuntimeError: nothing can be read"),
    (plugins.RaisesLoudlyInPoll, "(cut)"),
    (plugins.ReturnsNoBatch, "must return a SourceBatch or None, not str"),
    (plugins.LacksTheValueColumn, "value"),
]


async def shows(shared: SharedCluster, name: str, state: pb.RunState.ValueType) -> None:
    """Wait until the connector is in ``state`` without tasks; a rebalance shows it as
    unassigned.
    """

    async def there() -> bool:
        status = await shared.client.get_connector_status(name)
        return status.connector.state == state and not status.tasks

    await wait_until_async(there, describe=f"{name} in state {pb.RunState.Name(state)}")


async def test_plugins_that_raise_fail_alone_and_their_traces_are_shown(
    shared: SharedCluster,
) -> None:
    async with AsyncExitStack() as stack:
        for plugin in (
            *(case[0] for case in CONNECTORS_THAT_FAIL),
            *(case[0] for case in TASKS_THAT_FAIL),
        ):
            config = {"connector.class": plugins.plugin(plugin)}
            await stack.enter_async_context(shared.connector(plugin.__name__, config))
        for connector, state, text in CONNECTORS_THAT_FAIL:
            assert text in await failed_connector(shared, connector.__name__)
            await shows(shared, connector.__name__, state)
        for with_task, text in TASKS_THAT_FAIL:
            trace = await failed_task(shared, with_task.__name__)
            assert text in trace
            assert len(trace.encode()) <= TRACE_MAX_BYTES
        await shared.flow.wait_until_passed("while other plugins fail")
        shown = await shared.drover("connector", "list")
        assert shown.exit_code == 0
        shown = await shared.drover("connector", "status", plugins.RaisesLoudlyInPoll.__name__)
        assert shown.exit_code == 0


async def test_plugins_that_hang_are_given_up_and_the_flow_goes_on_meanwhile(
    shared: SharedCluster,
) -> None:
    said = {
        plugins.HangsInStart: f"start() of connector 'HangsInStart' {LATE}",
        plugins.TaskHangsInStart: f"start() of task TaskHangsInStart-0 {LATE}",
        plugins.HangsInPoll: f"poll() of task HangsInPoll-0 {LATE}",
    }
    async with AsyncExitStack() as stack:
        for plugin in said:
            config = {"connector.class": plugins.plugin(plugin)}
            await stack.enter_async_context(shared.connector(plugin.__name__, config))
        await shared.flow.wait_until_passed("while other plugins hang")
        assert said[plugins.HangsInStart] in await failed_connector(shared, "HangsInStart")
        for plugin in (plugins.TaskHangsInStart, plugins.HangsInPoll):
            assert said[plugin] in await failed_task(shared, plugin.__name__)


async def test_what_is_deleted_while_it_hangs_is_gone_and_its_name_is_free(
    shared: SharedCluster, tmp_path: Path
) -> None:
    file, output = tmp_path / "in.txt", tmp_path / "out.txt"
    file.write_bytes(b"one\n")
    for plugin in (plugins.HangsInStart, plugins.HangsInStop):
        async with shared.connector("again", {"connector.class": plugins.plugin(plugin)}):
            await wait_until_async(
                lambda: assigned(shared, "again"),
                timeout_s=STATE_TIMEOUT_S,
                describe="a worker has the connector",
            )
    async with (
        shared.connector("again", source(file, "again")),
        shared.connector("again-out", sink(output, "again")),
    ):
        await comes_out(output, b"one\n")


async def test_a_plugin_that_cannot_judge_its_config_is_a_fault_of_the_config(
    shared: SharedCluster,
) -> None:
    for plugin, said in (
        (plugins.RaisesInValidate, "RuntimeError: this cannot be judged"),
        (plugins.HangsInValidate, LATE),
    ):
        config = {"connector.class": plugins.plugin(plugin)}
        error = await shared.refusal(shared.client.create_connector("unjudged", config))
        assert isinstance(error, InvalidArgumentError)
        (fault,) = error.violations
        assert fault.field == 'config["connector.class"]'
        assert said in fault.description
