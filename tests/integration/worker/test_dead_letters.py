"""``drover dlq`` at a real worker: inspection and replay of dead letters."""

import asyncio
import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from drover.api.common.v1.repairs_pb2 import DeadLetterRepair
from drover.api.common.v1.topics_pb2 import RecordQuery, TopicRecord
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client import ConnectClient
from drover.codec.dead_letters import decode_states
from drover.dataplane.store import EmbeddedStore
from drover.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError, Reason
from drover.model.claims import TaskSet
from drover.model.dead_letters import DEAD_LETTER_TOPIC, REPLAY, REPLAY_ID, REPLAY_WHERE
from drover.model.ids import TaskId
from drover.model.offsets import OffsetsChange, TaskOffsets, TopicPartition
from drover.model.sink_offsets import sink_offset
from drover.model.sink_outputs import SinkMetadata, SinkOutput
from tests.support.cluster import run_drover
from tests.support.fake_engine import SINK
from tests.support.forked import Finished
from tests.support.stored_topics import delete_topic, store_records
from tests.support.worker_cluster import RunningWorker

CONFIG = {"connector.class": SINK, "topics": "t", DEAD_LETTER_TOPIC: "dead"}
PREFIX = "__connect.errors."


@pytest.fixture
def store(tmp_path: Path, worker: RunningWorker) -> EmbeddedStore:
    return EmbeddedStore(tmp_path / "data.db")


@pytest.fixture
async def client(client: ConnectClient) -> ConnectClient:
    """The client, after it has created the connector."""
    await client.create_connector("c", CONFIG)
    return client


def store_letters(store: EmbeddedStore, count: int, *, partition: int = 0) -> None:
    told = {
        "topic": "t", "partition": "0", "offset": "7", "stage": "VALUE_CONVERTER",
        "exception.class.name": "DataError", "exception.message": "no JSON",
    }  # fmt: skip
    headers = [("mine", b"h"), *((f"{PREFIX}{key}", each.encode()) for key, each in told.items())]
    letters = [{"value": b"%d" % n, "headers": headers} for n in range(count)]
    store_records(store, "dead", letters, partition=partition, partition_count=2)


def commit(store: EmbeddedStore, offset: int) -> None:
    """Commit a replay position, as a task of the connector does."""
    task = TaskId("c", 9)
    claim = store.claim_task(task, generation=1_000, owner="tests", request_id="")
    at = sink_offset(TopicPartition("dead", 0), offset)
    store.commit_offsets([TaskOffsets(task, claim, [at])])


def commit_replayed(store: EmbeddedStore, replay_id: str, offset: int) -> None:
    """Commit the progress of a replay, as a task of the connector does."""
    task = TaskId("c", 9)
    claim = store.claim_task(task, generation=1_000, owner="tests", request_id="")
    own, _, topic_id = replay_id.partition(":")
    metadata = SinkMetadata(output=SinkOutput(topic_id, own)).text
    at = sink_offset(TopicPartition("dead", 0), offset, metadata)
    store.commit_offsets([TaskOffsets(task, claim, [at])])


async def replay_id(client: ConnectClient) -> str:
    return await setting(client, REPLAY_ID)


async def replay(client: ConnectClient, **wanted: Any) -> list[tuple[int, int, int]]:
    found = await client.replay_dead_letters(pb.ReplayDeadLettersRequest(name="c", **wanted))
    assert found.topic == "dead"
    return [(each.partition, each.start_offset, each.end_offset) for each in found.ranges]


async def setting(client: ConnectClient, name: str = REPLAY) -> str:
    return (await client.get_connector("c")).config.get(name, "")


async def test_all_letters_are_replayed_up_to_the_present_end(
    store: EmbeddedStore, client: ConnectClient
) -> None:
    store_letters(store, 3)
    store_letters(store, 2, partition=1)
    assert await replay(client) == [(0, 0, 3), (1, 0, 2)]
    assert await setting(client) == "0:0-3,1:0-2"


async def test_what_is_replayed_already_is_left_out(
    store: EmbeddedStore, client: ConnectClient
) -> None:
    store_letters(store, 5)
    commit(store, 2)
    assert await replay(client) == [(0, 2, 5)]
    commit(store, 5)
    revision = (await client.get_connector("c")).revision
    request = pb.ReplayDeadLettersRequest(name="c")
    again = await client.replay_dead_letters(request)
    assert (list(again.ranges), len(again.notes)) == ([], 1)
    assert (await client.get_connector("c")).revision == revision


async def test_ranges_and_conditions_are_the_callers(
    store: EmbeddedStore, client: ConnectClient
) -> None:
    store_letters(store, 9)
    store_letters(store, 9, partition=1)
    wanted = {"partitions": [1], "start_offset": 2, "end_offset": 4, "conditions": ["value!=1"]}
    assert await replay(client, dry_run=True, **wanted) == [(1, 2, 4)]
    assert await setting(client) == ""
    assert await replay(client, **wanted) == [(1, 2, 4)]
    assert await setting(client, REPLAY_WHERE) == "value!=1"
    await replay(client)
    assert REPLAY_WHERE not in (await client.get_connector("c")).config


async def test_single_letters_are_selected(store: EmbeddedStore, client: ConnectClient) -> None:
    store_letters(store, 5)
    store_letters(store, 5, partition=1)
    letters = [
        pb.DeadLetterPlace(partition=partition, offset=offset)
        for partition, offset in ((1, 4), (0, 1), (0, 2), (1, 0))
    ]
    chosen = [(0, 1, 3), (1, 0, 1), (1, 4, 5)]
    assert await replay(client, dry_run=True, letters=letters) == chosen
    assert await replay(client, letters=letters) == chosen
    discarded = pb.DiscardDeadLettersRequest(
        name="c", reason="test", letters=[pb.DeadLetterPlace(partition=0, offset=0)]
    )
    found = await client.discard_dead_letters(discarded)
    assert [(e.partition, e.start_offset, e.end_offset) for e in found.ranges] == [(0, 0, 1)]
    missing = [pb.DeadLetterPlace(partition=p, offset=o) for p, o in ((0, 5), (2, 0), (0, -1))]
    with pytest.raises(InvalidArgumentError) as refused:
        await replay(client, letters=[*missing, letters[0]])
    fields = [each.field for each in refused.value.violations]
    assert fields == ["letters[0]", "letters[1]", "letters[2]"]
    for other in ({"partitions": [1]}, {"start_offset": 1}, {"end_offset": 9}):
        with pytest.raises(InvalidArgumentError, match="letters: must not be set together"):
            await replay(client, letters=letters, **other)


ENVELOPE = json.dumps(
    {
        "schema": {
            "type": "struct",
            "optional": False,
            "fields": [
                {"field": "id", "type": "int32", "optional": False},
                {"field": "name", "type": "string", "optional": True},
                {
                    "field": "at", "type": "int64", "optional": True,
                    "name": "org.apache.kafka.connect.data.Timestamp", "version": 1,
                },
            ],
        },
        "payload": {"id": 7, "name": "a", "at": 0},
    }
)  # fmt: skip
REPAIRED_BY = "drover.repaired.by"


def repair_of(offset: int, **parts: Any) -> DeadLetterRepair:
    texts = {name: json.dumps(each) for name, each in parts.items()}
    return DeadLetterRepair(partition=0, offset=offset, **texts)


def place(offset: int) -> pb.DeadLetterPlace:
    return pb.DeadLetterPlace(partition=0, offset=offset)


async def letters_of(client: ConnectClient) -> list[TopicRecord]:
    request = pb.WatchTopicRequest(query=RecordQuery(topic="dead", partitions=[0]))
    async with aclosing(client.watch_topic(request)) as responses:
        return [record async for response in responses for record in response.records]


async def test_a_repaired_letter_is_replayed_with_its_headers_and_who_repaired_it(
    store: EmbeddedStore, client: ConnectClient
) -> None:
    about = [("mine", b"h"), (f"{PREFIX}topic", b"t"), (f"{PREFIX}offset", b"7")]
    letters = [{"key": b"k", "value": ENVELOPE.encode(), "headers": about, "timestamp_ms": 5}]
    store_records(store, "dead", [*letters, {"value": b"no JSON"}, {"value": b"1"}])
    request = pb.ReplayDeadLettersRequest(
        name="c",
        letters=[place(0), place(2)],
        repairs=[repair_of(0, value={"id": 8, "name": None, "at": "2026-01-31T12:00:00.5Z"})],
        request_id="one-request",
    )
    request.dry_run = True
    dry = await client.replay_dead_letters(request)
    assert [(e.start_offset, e.end_offset) for e in dry.ranges] == [(0, 1), (2, 3)]
    assert json.loads(dry.preview.rows[0].records[0].value)["id"] == 8
    assert len(await letters_of(client)) == 3
    request.dry_run = False
    for _ in range(2):  # a retry writes nothing again
        found = await client.replay_dead_letters(request)
        assert [(e.start_offset, e.end_offset) for e in found.ranges] == [(2, 4)]
    stored = await letters_of(client)
    assert len(stored) == 4
    assert json.loads(stored[3].value) == {
        "id": 8, "name": None, "at": "2026-01-31T12:00:00.500Z",
    }  # fmt: skip
    assert stored[3].key == stored[0].key
    assert stored[3].record_time == stored[0].record_time
    headers = {each.key: each.value for each in stored[3].headers}
    assert headers["mine"] == "h"
    assert headers[f"{PREFIX}offset"] == "7"
    assert headers[REPAIRED_BY]
    assert (await states(client)) == {
        "replayed": [], "discarded": [(0, 0, 1)], "replaying": [(0, 2, 4)],
    }  # fmt: skip
    now = decode_states(await client.dead_letter_states("c"))
    assert [now.state_of(0, offset) for offset in range(4)] == [
        "repaired", "open", "replaying", "replaying",
    ]  # fmt: skip
    assert now.repaired == {0: {0: 3}}
    changes = await client.get_connector_history("c")
    reasons = [each.dead_letters.reason for each in changes if each.HasField("dead_letters")]
    assert "repaired as 0:3" in reasons
    # what could not be read gets a value too, and null makes a tombstone
    commit_replayed(store, await replay_id(client), 4)
    more = pb.ReplayDeadLettersRequest(
        name="c", letters=[place(1)], repairs=[repair_of(1, key="new", value=None)]
    )
    await client.replay_dead_letters(more)
    last = (await letters_of(client))[-1]
    assert (last.key, last.HasField("value")) == ('"new"', False)
    now = decode_states(await client.dead_letter_states("c"))
    assert now.repaired == {0: {0: 3, 1: last.offset}}


async def test_every_fault_of_a_repair_is_named_and_nothing_is_written(
    store: EmbeddedStore, client: ConnectClient
) -> None:
    store_records(store, "dead", [{"key": b"k", "value": ENVELOPE.encode()}] * 3)

    async def faults(*repairs: DeadLetterRepair, **more: Any) -> dict[str, str]:
        wanted = {"letters": [place(0), place(1), place(2)], "repairs": repairs, **more}
        with pytest.raises(InvalidArgumentError) as refused:
            await replay(client, **wanted)
        return {each.field: each.description for each in refused.value.violations}

    wrong = {"id": "x", "name": 1, "at": "yesterday", "ide": 1}
    for dry_run in (True, False):
        with pytest.raises(InvalidArgumentError) as refused:
            await replay(
                client,
                letters=[place(0), place(1)],
                repairs=[repair_of(0, value=wrong), repair_of(1, key=1, value={})],
                dry_run=dry_run,
            )
        texts = [f"{each.field}: {each.description}" for each in refused.value.violations]
        for text in (
            "repairs[0].value: ide: is not a field",
            "repairs[0].value: id: must be of type int32",
            "repairs[0].value: name: must be of type string",
            "repairs[0].value: at: must be of type int64 (Timestamp)",
            "repairs[1].key: must be of type string",
            "repairs[1].value: id: must be of type int32, not null",
        ):
            assert any(each.startswith(text) for each in texts), (text, texts)
    broken = DeadLetterRepair(partition=0, offset=0, value="{")
    assert "no JSON" in (await faults(broken))["repairs[0].value"]
    assert "repairs[0]" in await faults(DeadLetterRepair(partition=0, offset=0))
    assert "repairs[0]" in await faults(repair_of(0, value=wrong), letters=[place(1)])
    assert "repairs[1]" in await faults(repair_of(0, key="a"), repair_of(0, key="b"))
    assert "conditions" in await faults(repair_of(0, key="a"), conditions=["value=1"])
    assert len(await letters_of(client)) == 3
    assert await states(client) == {"replayed": [], "discarded": [], "replaying": []}


async def test_the_command_repairs_letters_of_a_file(
    store: EmbeddedStore, client: ConnectClient, worker: RunningWorker, tmp_path: Path
) -> None:
    store_records(store, "dead", [{"key": b"k", "value": ENVELOPE.encode()}] * 2)
    file = tmp_path / "repairs.jsonl"

    async def dlq(*arguments: str) -> Finished:
        return await run_drover("dlq", *arguments, "-a", worker.address, cwd=tmp_path)

    file.write_text('{"letter": "0:1"}\nx\n{"letter": 5, "key": 1}\n')
    refused = await dlq("replay", "c", "--repair", "repairs.jsonl")
    for number in (1, 2, 3):
        assert f"repairs.jsonl:{number}: " in refused.err
    file.write_text('{"letter": "0:1", "value": {"id": 9, "name": "b"}}\n\n')
    dry = (await dlq("replay", "c", "--repair", "repairs.jsonl", "--dry-run")).out
    assert "would replay 1 dead letter of dead (0:1)" in dry
    done = (await dlq("replay", "c", "--repair", "repairs.jsonl")).out
    assert "started the replay of 1 dead letter of dead (0:2)" in done
    shown = json.loads((await dlq("show", "c", "0:2", "-o", "json")).out)
    assert shown["value"]["id"] == 9


async def test_a_stopped_connector_replays_when_it_is_resumed(
    store: EmbeddedStore, client: ConnectClient
) -> None:
    store_letters(store, 1)
    await client.stop_connector("c")
    found = await client.replay_dead_letters(pb.ReplayDeadLettersRequest(name="c"))
    (note,) = found.notes
    assert "STOPPED" in note


async def test_bad_requests_say_all_that_is_wrong(
    store: EmbeddedStore, client: ConnectClient
) -> None:
    with pytest.raises(NotFoundError) as told:
        await replay(client)
    assert told.value.reason is Reason.TOPIC_NOT_FOUND
    store_letters(store, 1)
    with pytest.raises(InvalidArgumentError) as refused:
        await replay(client, start_offset=-1, end_offset=-2, row_count=-1, conditions=["a\nb"])
    assert {each.field for each in refused.value.violations} == {
        "start_offset", "end_offset", "row_count", "conditions",
    }  # fmt: skip
    with pytest.raises(InvalidArgumentError, match="0 to 1, not 2"):
        await replay(client, partitions=[2])
    await client.create_connector("plain", {"connector.class": SINK, "topics": "t"})
    with pytest.raises(InvalidArgumentError, match="no dead letter queue"):
        await client.replay_dead_letters(pb.ReplayDeadLettersRequest(name="plain"))


async def test_the_commands_list_show_and_replay_letters(
    store: EmbeddedStore, client: ConnectClient, worker: RunningWorker, tmp_path: Path
) -> None:
    async def dlq(*arguments: str) -> Finished:
        return await run_drover("dlq", *arguments, "-a", worker.address, cwd=tmp_path)

    store_letters(store, 3)
    commit(store, 1)
    listed = (await dlq("list", "c")).out.splitlines()
    assert [line.split()[0] for line in listed] == ["LETTER", "0:0", "0:1", "0:2"]
    assert [line.split()[-1] for line in listed[1:]] == ["replayed", "open", "open"]
    assert "t-0@7" in listed[1]
    assert (await dlq("list", "c", "--cause", "Other.*")).out.strip() == "no dead letters in dead"
    shown = json.loads((await dlq("show", "c", "0:2", "-o", "json")).out)
    assert (shown["value"], shown["headers"], shown["state"]) == (
        2,
        [{"key": "mine", "value": "h"}],
        "open",
    )
    assert shown["cause"]["exception.message"] == "no JSON"
    assert "has no dead letter 0:9" in (await dlq("show", "c", "0:9")).err
    one = ("--from", "1", "--to", "2", "--reason", "a test order", "--dry-run")
    assert "would discard 1 dead letter of dead (0:1)" in (await dlq("discard", "c", *one)).out
    dry = (await dlq("replay", "c", "--dry-run")).out
    assert "would replay 2 dead letters of dead (0:1 to 0:2)" in dry
    started = (await dlq("replay", "c")).out
    assert "started the replay of 2 dead letters of dead (0:1 to 0:2)" in started
    assert await setting(client) == "0:1-3"


async def discard(client: ConnectClient, **wanted: Any) -> list[tuple[int, int, int]]:
    request = pb.DiscardDeadLettersRequest(name="c", **wanted)
    found = await client.discard_dead_letters(request)
    return [(each.partition, each.start_offset, each.end_offset) for each in found.ranges]


async def states(client: ConnectClient) -> dict[str, list[tuple[int, int, int]]]:
    found = await client.dead_letter_states("c")
    return {
        name: [(each.partition, each.start_offset, each.end_offset) for each in ranges]
        for name, ranges in (
            ("replayed", found.replayed_ranges),
            ("discarded", found.discarded_ranges),
            ("replaying", found.replaying_ranges),
        )
    }  # fmt: skip


async def test_discarded_letters_are_kept_with_author_and_reason_and_not_replayed(
    store: EmbeddedStore, client: ConnectClient
) -> None:
    store_letters(store, 6)
    wanted = {"start_offset": 1, "end_offset": 3, "reason": " a test order "}
    assert await discard(client, dry_run=True, **wanted) == [(0, 1, 3)]
    assert (await states(client))["discarded"] == []
    assert await discard(client, **wanted) == [(0, 1, 3)]
    assert (await states(client))["discarded"] == [(0, 1, 3)]
    changes = await client.get_connector_history("c")
    (change,) = [each for each in changes if each.HasField("dead_letters")]
    kept = change.dead_letters
    assert (kept.topic, kept.ranges, kept.discarded, kept.reason) == (
        "dead", "0:1-3", True, "a test order",
    )  # fmt: skip
    assert change.HasField("change_time")
    assert await replay(client) == [(0, 0, 1), (0, 3, 6)]
    assert await setting(client) == "0:0-1,0:3-6"
    # dead letters that are being replayed or were discarded stay so
    assert await discard(client, reason="all") == []


async def test_a_discard_that_is_repeated_has_one_effect(
    store: EmbeddedStore, client: ConnectClient
) -> None:
    store_letters(store, 2)
    for _ in range(2):
        await discard(client, reason="twice", request_id="the-same")
    changes = await client.get_connector_history("c")
    assert len([each for each in changes if each.HasField("dead_letters")]) == 1
    assert (await states(client))["discarded"] == [(0, 0, 2)]


async def test_a_bad_request_to_discard_says_all_that_is_wrong(
    store: EmbeddedStore, client: ConnectClient
) -> None:
    store_letters(store, 1)
    for reason in ("", "  ", "x" * 1_001, "a\nb"):
        with pytest.raises(InvalidArgumentError) as refused:
            await discard(
                client, start_offset=-1, end_offset=-2, conditions=["a\nb"], reason=reason
            )
        assert {each.field for each in refused.value.violations} == {
            "start_offset", "end_offset", "conditions", "reason",
        }  # fmt: skip
    with pytest.raises(InvalidArgumentError, match="0 to 1, not 2"):
        await discard(client, partitions=[2], reason="r")
    request = pb.DiscardDeadLettersRequest(name="none", reason="r")
    with pytest.raises(NotFoundError):
        await client.discard_dead_letters(request)


async def test_states_survive_a_connector_that_is_deleted_and_created_again(
    store: EmbeddedStore, client: ConnectClient
) -> None:
    store_letters(store, 4)
    await replay(client, end_offset=2)
    commit_replayed(store, await replay_id(client), 2)
    await discard(client, start_offset=3, reason="r")
    before = await states(client)
    assert before == {"replayed": [(0, 0, 2)], "discarded": [(0, 3, 4)], "replaying": []}
    await client.delete_connector("c")
    await client.create_connector("c", CONFIG)
    assert await states(client) == before
    assert await replay(client) == [(0, 2, 3)]


async def test_letters_of_a_queue_that_was_created_again_are_open(
    store: EmbeddedStore, client: ConnectClient
) -> None:
    store_letters(store, 2)
    await discard(client, reason="r")
    delete_topic(store, "dead")
    store_letters(store, 2)
    assert (await states(client))["discarded"] == []
    assert await replay(client) == [(0, 0, 2)]


async def test_a_reset_of_offsets_replays_none(store: EmbeddedStore, client: ConnectClient) -> None:
    store_letters(store, 3)
    await replay(client, end_offset=2)
    commit_replayed(store, await replay_id(client), 2)
    store.change_offsets(OffsetsChange("c", TaskSet(2_000, 0), None))
    assert await states(client) == {"replayed": [(0, 0, 2)], "discarded": [], "replaying": []}
    assert await replay(client) == [(0, 2, 3)]


async def test_two_replays_at_the_same_time_replay_each_letter_once(
    store: EmbeddedStore, client: ConnectClient
) -> None:
    store_letters(store, 4)
    first, second = await asyncio.gather(replay(client, end_offset=3), replay(client))
    assert await setting(client) in ("0:0-3", "0:0-4")
    assert {(0, 0, 3), (0, 0, 4)} >= {*first, *second}
    commit_replayed(store, await replay_id(client), 4)
    assert (await states(client))["replaying"] == []


async def test_letters_before_a_replay_in_progress_wait_for_its_end(
    store: EmbeddedStore, client: ConnectClient
) -> None:
    store_letters(store, 4)
    await replay(client, start_offset=2)
    with pytest.raises(FailedPreconditionError) as refused:
        await replay(client, end_offset=2)
    assert refused.value.reason is Reason.REPLAY_IN_PROGRESS
    commit_replayed(store, await replay_id(client), 4)
    assert await replay(client, end_offset=2) == [(0, 0, 2)]
    assert await replay_id(client) != ""
    assert (await states(client))["replayed"] == [(0, 2, 4)]


async def test_the_offsets_of_a_replay_are_not_lag(
    store: EmbeddedStore, client: ConnectClient
) -> None:
    store_letters(store, 3)
    commit(store, 1)
    (offset,) = await client.get_connector_offsets("c")
    assert not offset.HasField("lag")
    assert not offset.HasField("end_offset")
