"""Other parts of the config store's API: histories, session keys, logger levels, multipart sets."""

import asyncio
from pathlib import Path

import grpc
import pytest

from drover.api.common.v1 import ids_pb2
from drover.api.config_store.v1 import config_store_service_pb2 as pb
from drover.api.config_store.v1 import config_store_service_pb2_grpc as pb_grpc
from drover.client import ConfigStoreClient
from drover.client import multipart as client_module
from drover.errors import AbortedError, InvalidArgumentError, NotFoundError, Reason
from drover.model.config import (
    ConfigVersion,
    ConnectorConfigRemoved,
    DeadLettersChanged,
    LoggerLevelSet,
    RestartRequested,
    SessionKeyUpdated,
    TargetState,
    TargetStateChanged,
    TaskConfigsUpdated,
)
from drover.model.ids import TaskId
from drover.model.letter_states import LetterStates, OffsetSet, decode_states, encode_states
from drover.rpc import multipart
from drover.rpc.status import from_rpc_error
from drover_config_store.server import wire
from tests.support.config_store import lead, read_until, store
from tests.support.log_services import running_service


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config.db"


# histories


async def test_a_history_tells_who_wrote_what_also_after_a_restart(path: Path) -> None:
    async with store(path) as client:
        epoch = await lead(client)
        first = await client.put_connector_config(
            name="a", config={"v": "1"}, writer_epoch=epoch, author="anna@host"
        )
        await client.put_target_state(name="a", target_state=TargetState.PAUSED, author="ben@host")
        await client.put_restart_request(
            name="a", only_failed=True, include_tasks=False, writer_epoch=epoch, author="anna@host"
        )
        await client.put_task_configs(
            connector="a", task_configs=[{}], writer_epoch=epoch, author="w:1"
        )
        await client.delete_connector(name="a", writer_epoch=epoch, author="cléo")
        history = await client.connector_history("a")
    assert [entry.author for entry in history] == ["anna@host", "ben@host", "anna@host", "cléo"]
    assert [entry.change for entry in history] == [
        ConfigVersion(first.revision, {"v": "1"}),
        TargetStateChanged("a", TargetState.PAUSED),
        RestartRequested("a", only_failed=True, include_tasks=False),
        ConnectorConfigRemoved("a"),
    ]
    assert history[0].time_ms > 1_600_000_000_000
    async with store(path) as client:
        assert await client.connector_history("a") == history
        assert await client.connector_history("b") == []


async def test_a_history_of_large_configs_comes_in_pages(path: Path) -> None:
    async with running_service(path, wire) as service:
        client = ConfigStoreClient(service.channel)
        epoch = await lead(client)
        for number in range(12):
            config = {"v": str(number), "x": "x" * 700_000}
            await client.put_connector_config(name="a", config=config, writer_epoch=epoch)
        history = await client.connector_history("a")
        stub = pb_grpc.ConfigStoreServiceStub(service.channel)
        page = await stub.GetConnectorHistory(
            pb.GetConnectorHistoryRequest(name="a", page_token="1"), timeout=10
        )
        with pytest.raises(grpc.RpcError) as caught:
            await stub.GetConnectorHistory(
                pb.GetConnectorHistoryRequest(name="a", page_token="x"), timeout=10
            )
    versions = [entry.change for entry in history if isinstance(entry.change, ConfigVersion)]
    assert [version.config["v"] for version in versions] == [str(n) for n in range(2, 12)]
    assert [entry.offset for entry in page.entries] == [2]
    assert page.next_page_token == "2"
    error = from_rpc_error(caught.value)
    assert isinstance(error, InvalidArgumentError)
    assert error.violations[0].field == "page_token"


# records for all workers


async def test_session_keys_and_logger_levels_reach_watchers_and_the_snapshot(path: Path) -> None:
    async with store(path) as client:
        epoch = await lead(client)
        await client.put_session_key(key=b"\x00\xff", algorithm="HmacSHA256", writer_epoch=epoch)
        end_offset = await client.put_logger_level(logger="org.example", level="DEBUG")
        key, level = (event.change for event in await read_until(client, 0, end_offset))
    assert isinstance(key, SessionKeyUpdated)
    assert (key.session_key.key, key.session_key.algorithm) == (b"\x00\xff", "HmacSHA256")
    assert level == LoggerLevelSet("org.example", "DEBUG")
    async with store(path) as client:
        snapshot = await client.get_snapshot()
        assert snapshot.session_key == key.session_key
        assert snapshot.logger_levels == {"org.example": "DEBUG"}


async def test_a_task_count_shows_in_the_snapshot(path: Path) -> None:
    async with store(path) as client:
        epoch = await lead(client)
        await client.put_connector_config(name="a", config={}, writer_epoch=epoch)
        await client.put_task_configs(connector="a", task_configs=[{}], writer_epoch=epoch)
        entry = (await client.get_snapshot()).connectors["a"]
        assert (entry.fenced_task_count, entry.fencing_pending) == (None, True)
        first = await client.put_task_count(
            name="a", task_count=1, writer_epoch=epoch, request_id="same"
        )
        assert first == await client.put_task_count(
            name="a", task_count=1, writer_epoch=epoch, request_id="same"
        )
        entry = (await client.get_snapshot()).connectors["a"]
        assert (entry.fenced_task_count, entry.fencing_pending) == (1, False)
        with pytest.raises(NotFoundError):
            await client.put_task_count(name="b", task_count=1, writer_epoch=epoch)


async def test_what_is_wrong_is_told_all_at_once(path: Path) -> None:
    async with store(path) as client:
        epoch = await lead(client)
        with pytest.raises(InvalidArgumentError) as error:
            await client.put_session_key(
                key=b"", algorithm="", writer_epoch=epoch, author="x" * 301
            )
        assert [each.field for each in error.value.violations] == ["author", "key", "algorithm"]
        with pytest.raises(InvalidArgumentError) as error:
            await client.put_logger_level(logger="a\nb", level="debug")
        assert [each.field for each in error.value.violations] == ["logger", "level"]
        with pytest.raises(InvalidArgumentError) as error:
            await client.put_task_count(name="a", task_count=-1, writer_epoch=epoch)
        assert [each.field for each in error.value.violations] == ["task_count"]
        assert await client.get_end_offset() == 0


# multipart sets


async def test_a_set_larger_than_several_messages_is_one_set(path: Path) -> None:
    configs = [{"t": str(number), "x": "x" * 20_000} for number in range(500)]
    async with store(path) as client:
        epoch = await lead(client)
        await client.put_connector_config(name="a", config={}, writer_epoch=epoch)
        start_offset = await client.get_end_offset()
        end_offset = await client.put_task_configs(
            connector="a", task_configs=configs, writer_epoch=epoch, timeout_s=120
        )
        async with asyncio.timeout(120):
            (event,) = await read_until(client, start_offset, end_offset)
        assert isinstance(event.change, TaskConfigsUpdated)
        assert event.change.connector.task_config_generation == end_offset
        assert event.change.task_configs == {
            TaskId("a", number): config for number, config in enumerate(configs)
        }
    async with store(path) as client:
        snapshot = await client.get_snapshot(timeout_s=120)
        assert snapshot.task_configs == event.change.task_configs
        assert not snapshot.connectors["a"].inconsistent


def a_part(epoch: int, part: int, *, more: bool) -> pb.PutTaskConfigsRequest:
    task = pb.TaskConfigEntry(task=ids_pb2.TaskId(connector="a", task=part))
    return pb.PutTaskConfigsRequest(
        connector="a",
        writer_epoch=epoch,
        request_id="same",
        part=part,
        more=more,
        task_configs=[task],
    )


async def test_until_the_last_part_nothing_is_written_and_a_restart_loses_what_came(
    path: Path,
) -> None:
    async with running_service(path, wire) as service:
        client = ConfigStoreClient(service.channel)
        stub = pb_grpc.ConfigStoreServiceStub(service.channel)
        epoch = await lead(client)
        await client.put_connector_config(name="a", config={}, writer_epoch=epoch)
        for part in range(2):
            answer = await stub.PutTaskConfigs(a_part(epoch, part, more=True), timeout=10)
            assert answer.end_offset == 0
        assert await client.get_end_offset() == 1
    async with running_service(path, wire) as service:
        stub = pb_grpc.ConfigStoreServiceStub(service.channel)
        with pytest.raises(grpc.RpcError) as caught:
            await stub.PutTaskConfigs(a_part(epoch, 2, more=False), timeout=10)
        error = from_rpc_error(caught.value)
        assert isinstance(error, AbortedError)
        assert error.reason is Reason.PART_MISSING
        for part in range(2):
            await stub.PutTaskConfigs(a_part(epoch, part, more=True), timeout=10)
        first = await stub.PutTaskConfigs(a_part(epoch, 2, more=False), timeout=10)
        assert first.end_offset == 5
        # a repeated last part is refused, as the other parts are gone; if all parts are repeated,
        # the store returns its first answer
        with pytest.raises(grpc.RpcError):
            await stub.PutTaskConfigs(a_part(epoch, 2, more=False), timeout=10)
        for part in range(2):
            await stub.PutTaskConfigs(a_part(epoch, part, more=True), timeout=10)
        again = await stub.PutTaskConfigs(a_part(epoch, 2, more=False), timeout=10)
        assert again.end_offset == first.end_offset


async def test_a_client_begins_again_when_the_store_lost_its_parts(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "PART_MAX_BYTES", 1_000)
    configs = [{"t": str(number), "x": "x" * 600} for number in range(5)]
    lost = 0
    add = multipart.PartsInProgress.add

    def forgetful(
        self: multipart.PartsInProgress[pb.TaskConfigEntry], request: pb.PutTaskConfigsRequest
    ) -> object:
        nonlocal lost
        if request.part == 3 and lost < 2:
            lost += 1
            self._sets.clear()
        return add(self, request)

    monkeypatch.setattr(multipart.PartsInProgress, "add", forgetful)
    async with store(path) as client:
        epoch = await lead(client)
        await client.put_connector_config(name="a", config={}, writer_epoch=epoch)
        await client.put_task_configs(connector="a", task_configs=configs, writer_epoch=epoch)
        assert lost == 2
        assert len((await client.get_snapshot()).task_configs) == 5
        lost = -1
        with pytest.raises(AbortedError):
            await client.put_task_configs(connector="a", task_configs=configs, writer_epoch=epoch)


async def test_a_set_is_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "PART_MAX_BYTES", 1_000)
    monkeypatch.setattr(multipart, "SETS_MAX_BYTES", 3_000)
    async with store(path) as client:
        epoch = await lead(client)
        await client.put_connector_config(name="a", config={}, writer_epoch=epoch)
        with pytest.raises(InvalidArgumentError) as error:
            await client.put_task_configs(
                connector="a", task_configs=[{"x": "x" * 600}] * 6, writer_epoch=epoch
            )
        assert error.value.reason is Reason.TOO_LARGE
        assert await client.get_end_offset() == 1


async def test_states_of_dead_letters_are_written_on_top_of_each_other_and_survive(
    path: Path,
) -> None:
    change = DeadLettersChanged("a", "dead", "0:0-1", discarded=True, reason="a test")
    states = LetterStates("dead", "", discarded={0: OffsetSet.of([(0, 1)])})
    text = encode_states([states])
    async with store(path) as client:
        assert await client.get_dead_letter_states("a") == ("", 0)
        with pytest.raises(NotFoundError):
            await client.put_dead_letter_states(change, text, expected_revision=0)
        epoch = await lead(client)
        await client.put_connector_config(name="a", config={}, writer_epoch=epoch)
        revision = await client.put_dead_letter_states(
            change, text, expected_revision=0, author="anna"
        )
        with pytest.raises(AbortedError) as late:
            await client.put_dead_letter_states(change, text, expected_revision=0)
        assert late.value.reason is Reason.REVISION_MISMATCH
        with pytest.raises(InvalidArgumentError) as refused:
            await client.put_dead_letter_states(change, "{", expected_revision=revision)
        assert [each.field for each in refused.value.violations] == ["states_json"]
        await client.delete_connector(name="a", writer_epoch=epoch)
    async with store(path) as client:
        assert await client.get_dead_letter_states("a") == (text, revision)
        assert decode_states(text) == [states]
        changes = [each.change for each in await client.connector_history("a")]
        assert change in changes
