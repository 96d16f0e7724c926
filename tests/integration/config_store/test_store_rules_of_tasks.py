"""The rules of the config log, on every log: task configs, restarts, fencing, what is shared.

See also test_store_rules.
"""

import json

import pytest

from drover.model.config import (
    ConnectorConfigRemoved,
    LoggerLevelSet,
    RestartRequested,
    SessionKeyUpdated,
    TaskConfigsUpdated,
)
from drover.model.ids import TaskId
from tests.support.config_processes import ConfigProcesses


def properties(**settings: str) -> str:
    return json.dumps({"properties": settings})


# task configs


async def test_a_set_of_task_configs_is_told_once_and_as_a_whole(
    processes: ConfigProcesses,
) -> None:
    leader = await processes.leader()
    await leader.put("c", {"v": "1"})
    start = leader.machine.end_offset
    answer = await leader.tasks("c", "one", "two")
    for process in await processes.after(leader):
        entry = process.entry("c")
        assert (entry.task_count, entry.task_config_generation) == (2, answer.end_offset)
        assert entry.applied_config == {"v": "1"}
        (told,) = process.changes(start)
        assert told == TaskConfigsUpdated(
            entry, {TaskId("c", 0): {"t": "one"}, TaskId("c", 1): {"t": "two"}}
        )


async def test_a_set_of_no_tasks_is_a_set(processes: ConfigProcesses) -> None:
    leader = await processes.leader()
    await leader.put("c", {})
    start = leader.machine.end_offset
    await leader.tasks("c")
    for process in await processes.after(leader):
        assert process.changes(start) == [TaskConfigsUpdated(process.entry("c"), {})]
        assert process.entry("c").task_count == 0


async def test_half_a_set_shows_no_tasks_until_its_owner_writes_a_whole_one(
    processes: ConfigProcesses,
) -> None:
    leader = await processes.leader()
    await leader.put("c", {})
    await leader.put("d", {})
    # of each the first task was compacted away, as an uncommitted one came after it
    for name in "cd":
        await processes.foreign(
            leader, (f"task-{name}-1", properties(t="one")), (f"commit-{name}", '{"tasks":2}')
        )
    for process in await processes.after(leader):
        for name in "cd":
            assert process.entry(name).inconsistent
            assert process.entry(name).task_count == 2
            assert process.task_texts(name) == []
    leader = await processes.leader()
    await leader.tasks("c", "new", "newer")
    for process in await processes.after(leader):
        assert not process.entry("c").inconsistent
        assert process.task_texts("c") == ["new", "newer"]
        assert process.entry("d").inconsistent


async def test_only_the_connector_that_was_written_is_told(processes: ConfigProcesses) -> None:
    leader = await processes.leader()
    for name in ("a", "a-1"):
        await leader.put(name, {})
        await leader.tasks(name, "old", "old")
    start = leader.machine.end_offset
    await leader.tasks("a", "new", "new")
    for process in await processes.after(leader):
        (told,) = process.changes(start)
        assert isinstance(told, TaskConfigsUpdated)
        assert list(told.task_configs) == [TaskId("a", 0), TaskId("a", 1)]
        assert process.task_texts("a-1") == ["old", "old"]


async def test_tasks_are_of_the_config_under_which_they_were_made(
    processes: ConfigProcesses,
) -> None:
    leader = await processes.leader()
    await leader.put("c", {"v": "1", "password": "${file:/run/secrets:pw}"})
    await leader.tasks("c", "one")
    await leader.put("c", {"v": "2"})
    for process in await processes.after(leader):
        # placeholders stay what they are in the log
        assert process.entry("c").applied_config == {
            "v": "1",
            "password": "${file:/run/secrets:pw}",
        }
        assert process.entry("c").config == {"v": "2"}


# restarts


@pytest.mark.parametrize("include_tasks", [False, True])
async def test_a_restart_of_what_failed_is_told_to_all(
    processes: ConfigProcesses, include_tasks: bool
) -> None:
    leader = await processes.leader()
    await leader.put("c", {})
    start = leader.machine.end_offset
    await leader.restart("c", only_failed=True, include_tasks=include_tasks)
    told = RestartRequested("c", only_failed=True, include_tasks=include_tasks)
    for process in await processes.after(leader):
        assert process.changes(start) == [told]


async def test_restart_flags_that_are_no_booleans_are_false(processes: ConfigProcesses) -> None:
    leader = await processes.leader()
    await leader.put("c", {})
    start = leader.machine.end_offset
    key = "restart-connector-c"
    await processes.foreign(
        leader,
        (key, '{"include-tasks":true,"only-failed":false}'),
        (key, '{"include-tasks":true,"only-failed":"true"}'),
        (key, '{"include-tasks":1,"only-failed":true}'),
        (key, "{}"),
        (key, "no JSON"),
        (key, None),
    )
    for process in await processes.after(leader):
        assert process.changes(start) == [
            RestartRequested("c", only_failed=False, include_tasks=True),
            RestartRequested("c", only_failed=False, include_tasks=True),
            RestartRequested("c", only_failed=True, include_tasks=False),
            RestartRequested("c", only_failed=False, include_tasks=False),
        ]


async def test_a_restart_of_a_connector_that_is_not_there_harms_no_start(
    processes: ConfigProcesses,
) -> None:
    leader = await processes.leader()
    await processes.foreign(
        leader,
        ("connector-c", None),
        ("restart-connector-c", '{"include-tasks":false,"only-failed":true}'),
    )
    for process in await processes.after(leader):
        assert process.machine.snapshot().connectors == {}
        assert process.machine.connector_history("c")[-1].change == ConnectorConfigRemoved("c")


# fencing, keys, loggers


async def test_new_tasks_make_fencing_pending_and_a_task_count_ends_it(
    processes: ConfigProcesses,
) -> None:
    leader = await processes.leader()
    await leader.put("c", {})
    written = await leader.tasks("c", "one", "two")
    for process in await processes.after(leader):
        entry = process.entry("c")
        assert (entry.fenced_task_count, entry.fencing_pending) == (None, True)
        assert entry.task_config_generation == written.end_offset
    leader = await processes.leader()
    start = leader.machine.end_offset
    await leader.fenced("c", 2)
    for process in await processes.after(leader):
        entry = process.entry("c")
        assert (entry.fenced_task_count, entry.fencing_pending) == (2, False)
        assert entry.task_config_generation == written.end_offset
        assert process.changes(start) == []
    leader = await processes.leader()
    await leader.tasks("c", "one")
    await leader.delete("c")
    await leader.put("c", {})
    for process in await processes.after(leader):
        entry = process.entry("c")
        assert (entry.fenced_task_count, entry.fencing_pending) == (2, True)


async def test_a_session_key_is_told_with_its_time(processes: ConfigProcesses) -> None:
    leader = await processes.leader()
    start = leader.machine.end_offset
    now_ms = leader.clock.now_ms()
    await leader.session_key(b"\x00key")
    await processes.foreign(leader, ("session-key", '{"key":"%"}'), ("session-key", None))
    for process in await processes.after(leader):
        (told,) = process.changes(start)
        assert isinstance(told, SessionKeyUpdated)
        assert (told.session_key.key, told.session_key.creation_ms) == (b"\x00key", now_ms)
        assert process.machine.snapshot().session_key == told.session_key


async def test_a_logger_level_is_told_to_all(processes: ConfigProcesses) -> None:
    process = await processes.start()
    start = process.machine.end_offset
    await process.level("org.example.a-b", "DEBUG")
    await processes.foreign(process, ("logger-cluster-x", '{"level":"WARN"}'))
    for each in await processes.after(process):
        assert each.changes(start) == [
            LoggerLevelSet("org.example.a-b", "DEBUG"),
            LoggerLevelSet("x", "WARN"),
        ]
