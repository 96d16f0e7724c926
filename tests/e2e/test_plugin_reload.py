"""A plugin is installed on a running cluster with real engines while data flows."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from drover.api.connect.v1.connect_service_pb2 import Plugin
from tests.support.shared_cluster import SharedCluster
from tests.support.waiting import wait_until_async

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(1200),
    # six engines start one after another
    pytest.mark.faults("engine"),
]

#: Covers a new engine and the move of its tasks on a busy machine.
RELOAD_TIMEOUT_S = 300.0
MODULE = """
from drover.connectors.files.lines.file_stream_source import FileStreamSource

class Late(FileStreamSource):
    version = "9.9.1"
    aliases = ()
"""


def install(directory: Path) -> None:
    """Write the files that pip installs for a distribution with a plugin."""
    (directory / "late_plugin.py").write_text(MODULE)
    about = directory / "late_plugin-9.9.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: late-plugin\nVersion: 9.9.1\n")
    (about / "entry_points.txt").write_text("[drover.connectors]\nLate = late_plugin:Late\n")


async def plugins_of_all(flowing: SharedCluster) -> Sequence[Plugin]:
    """The plugins that all workers have; a slow worker's may be missing from one response."""
    found: list[Sequence[Plugin]] = []

    async def all_answer() -> bool:
        answer = await flowing.client.list_plugins()
        found.append(answer.plugins)
        return sorted(answer.worker_ids) == sorted(flowing.cluster.workers)

    await wait_until_async(all_answer)
    return found[-1]


async def test_a_plugin_is_taken_on_without_a_restart_of_the_cluster(
    flowing: SharedCluster, tmp_path: Path
) -> None:
    client = flowing.client
    install(flowing.plugins)
    before = await plugins_of_all(flowing)
    assert not any("late_plugin" in each.class_name for each in before)
    moved_count = 0
    for number, worker in enumerate(flowing.cluster.workers):
        kept = await client.reload_plugins(worker, timeout_s=RELOAD_TIMEOUT_S)
        assert kept.moved_count == 0, "nothing uses the new package"
        assert any("late" in each for each in kept.changed_packages)
        await flowing.flow.wait_until_passed(f"in the old engine of worker {number}")
        done = await client.reload_plugins(worker, everything=True, timeout_s=RELOAD_TIMEOUT_S)
        moved_count += done.moved_count
        await flowing.flow.wait_until_passed(f"after the reload of worker {number}")
        (late,) = [
            each for each in await plugins_of_all(flowing) if each.class_name == "late_plugin.Late"
        ]
        assert late.version == "9.9.1"
        behind = flowing.cluster.workers[number + 1 :]
        assert list(late.worker_ids) == ([worker] if behind else [])
    assert moved_count >= 4, "both connectors of the flow and their tasks"
    file = tmp_path / "in.txt"
    file.write_text("one\n")
    config = {"connector.class": "late_plugin.Late", "file": str(file), "topic": "late"}
    async with flowing.connector("late", config):
        await flowing.cluster.wait_for_task("late")
    status = await client.get_connector_status(flowing.flow.sink)
    assert not any(task.HasField("failures") for task in status.tasks)
