"""The rules of the config log, on every kind of log: records written, and how stores read them.

docs/store-rules.md lists the test of each rule.
"""

import asyncio
import json

from drover.errors import Reason
from drover.log.log import FollowedLog
from drover.model.config import ConnectorConfigRemoved, ConnectorConfigUpdated, TargetState
from drover.model.ids import Term
from drover.testing import raises_reason
from drover_config_store.core.records import VALUE_MAX_BYTES
from tests.support.config_processes import ConfigProcesses


def properties(**settings: str) -> str:
    return json.dumps({"properties": settings})


# start and stop


async def test_nothing_is_served_before_the_log_was_read(processes: ConfigProcesses) -> None:
    process = await processes.start(load=False)
    with raises_reason(Reason.LOADING):
        await process.level("a", "INFO")
    await process.runtime.load()
    await process.level("a", "INFO")
    await process.runtime.close()
    with raises_reason(Reason.DRAINING):
        await process.level("a", "INFO")


# connector configs


async def test_a_config_is_seen_by_all_once_it_is_written(processes: ConfigProcesses) -> None:
    leader = await processes.leader()
    start = leader.machine.end_offset
    first = await leader.put("c", {"v": "1"})
    second = await leader.put("c", {"v": "1"})
    assert second.revision > first.revision
    for process in await processes.after(leader):
        assert process.entry("c").config == {"v": "1"}
        assert process.entry("c").config_revision == second.revision
        assert process.entry("c").target_state is TargetState.STARTED
        # a watcher receives both changes, although the second config equals the first
        told = process.changes(start)
        assert [type(change) for change in told] == [ConnectorConfigUpdated] * 2


async def test_a_write_that_fails_leaves_nothing_and_may_be_repeated(
    processes: ConfigProcesses,
) -> None:
    leader = await processes.leader()
    leader.faults.fail_next()
    with raises_reason(Reason.STORAGE_UNAVAILABLE):
        await leader.put("c", {"v": "1"}, request_id="same")
    assert leader.machine.snapshot().connectors == {}
    assert leader.changes() == []
    await leader.put("c", {"v": "1"}, request_id="same")
    for process in await processes.after(leader):
        assert process.entry("c").config == {"v": "1"}
        assert len(process.changes()) == 1


async def test_who_gives_up_on_a_slow_write_hears_its_outcome_by_asking_again(
    processes: ConfigProcesses,
) -> None:
    leader = await processes.leader()
    await leader.put("c", {"v": "1"})
    leader.faults.hold()
    call = asyncio.create_task(leader.delete("c", request_id="same"))
    await leader.faults.held.wait()
    call.cancel()
    await asyncio.wait([call])
    leader.faults.release()
    again = await leader.delete("c", request_id="same")
    assert again == await leader.delete("c", request_id="same")
    for process in await processes.after(leader):
        assert process.machine.snapshot().connectors == {}
        assert process.changes().count(ConnectorConfigRemoved("c")) == 1


# write permission


async def test_privileged_writes_need_the_claim_and_others_do_not(
    processes: ConfigProcesses,
) -> None:
    process = await processes.start()
    with raises_reason(Reason.STALE_WRITER_EPOCH):
        await process.put("c", {})
    await process.lead()
    await process.put("c", {})
    process.epoch -= 1
    writes = [
        process.put("c", {}),
        process.delete("c"),
        process.tasks("c", "one"),
        process.restart("c", only_failed=False, include_tasks=False),
        process.fenced("c", 1),
        process.session_key(b"key"),
    ]
    for write in writes:
        with raises_reason(Reason.STALE_WRITER_EPOCH):
            await write
    await process.state("c", TargetState.PAUSED)
    await process.level("a", "INFO")


async def test_a_later_leader_fences_the_earlier_one(processes: ConfigProcesses) -> None:
    former = await processes.leader()
    await former.put("c", {"v": "1"})
    later = await processes.start()
    await later.lead(2)
    await later.put("c", {"v": "2"})
    if isinstance(former.log, FollowedLog):
        with raises_reason(Reason.STALE_WRITER_EPOCH):
            await former.put("c", {"v": "3"})
        await former.state("c", TargetState.PAUSED)
    else:  # one process at a time: test the former leader's epoch in the new process
        later.epoch, epoch = former.epoch, later.epoch
        with raises_reason(Reason.STALE_WRITER_EPOCH):
            await later.put("c", {"v": "3"})
        later.epoch = epoch
        await later.state("c", TargetState.PAUSED)
    with raises_reason(Reason.STALE_TERM):
        await later.log.claim("w1", Term(1, 0))
    for process in await processes.after(later):
        assert process.entry("c").config == {"v": "2"}
        assert process.entry("c").target_state is TargetState.PAUSED


# reading the log at start


async def test_a_start_finds_every_kind_of_record_and_the_last_of_each_key_counts(
    processes: ConfigProcesses,
) -> None:
    leader = await processes.leader()
    await leader.put("a", {"v": "1"})
    await leader.tasks("a", "one", "two")
    await leader.put("a", {"v": "2"})
    await leader.put("b", {})
    await leader.tasks("b", "b")
    await leader.fenced("b", 1)
    await leader.session_key(b"old")
    await leader.session_key(b"key")
    await leader.level("x", "INFO")
    await leader.level("x", "DEBUG")
    await leader.tasks("a", "three")
    await leader.state("a", TargetState.PAUSED)
    # this record advances the offset and changes nothing else
    await processes.foreign(leader, ("task-a-0", properties(t="not committed")))
    present = leader.machine.snapshot()
    for process in await processes.after(leader):
        snapshot = process.machine.snapshot()
        assert snapshot.end_offset > present.end_offset - 1
        assert snapshot.connectors == present.connectors
        assert process.task_texts("a") == ["three"]
        assert process.task_texts("b") == ["b"]
        assert process.entry("a").applied_config == {"v": "2"}
        assert snapshot.session_key is not None
        assert snapshot.session_key.key == b"key"
        assert snapshot.logger_levels == {"x": "DEBUG"}
    ends = {each.machine.end_offset for each in await processes.after(leader)}
    assert len(ends) == 1


# target states


# the history


async def test_the_history_tells_who_wrote_what_whichever_process_is_asked(
    processes: ConfigProcesses,
) -> None:
    leader = await processes.leader()
    leader.clock.advance(5)
    first = await leader.put("c", {"v": "1"}, author="anna@host")
    leader.clock.advance(5)
    await leader.state("c", TargetState.PAUSED, author="ben@host")
    await processes.foreign(leader, ("connector-c", properties(v="2")))
    now_ms = leader.clock.now_ms()
    for process in await processes.after(leader):
        config, state, foreign = process.machine.connector_history("c")
        assert (config.author, config.time_ms) == ("anna@host", now_ms - 5)
        assert getattr(config.change, "revision", None) == first.revision
        assert (state.author, state.time_ms) == ("ben@host", now_ms)
        assert foreign.author == ""


async def test_what_cannot_be_read_stops_nothing(processes: ConfigProcesses) -> None:
    leader = await processes.leader()
    await leader.put("c", {"v": "1"})
    await leader.tasks("c", "one")
    before = leader.machine.snapshot()
    await processes.foreign(
        leader,
        ("unknown-key", "{}"),
        ("connector-c", "not json"),
        ("connector-c", '{"properties":[1]}'),
        ("connector-c", '{"properties":{"a":1}}'),
        ("commit-c", '{"tasks":"1"}'),
        ("commit-c", None),
        ("task-c-0", None),
        ("task-c-x", properties()),
        ("target-state-c", '{"state":"FROZEN"}'),
        ("tasks-fencing-c", None),
        ("logger-cluster-x", "[]"),
    )
    if processes.value_max_bytes > VALUE_MAX_BYTES:
        await processes.foreign(leader, ("connector-c", properties(a="x" * VALUE_MAX_BYTES)))
    for process in await processes.after(leader):
        snapshot = process.machine.snapshot()
        assert snapshot.connectors == before.connectors
        assert snapshot.task_configs == before.task_configs
        assert snapshot.end_offset > before.end_offset
