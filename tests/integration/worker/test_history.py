"""History, rollback, topics and loggers over real services."""

import logging
from collections.abc import Iterator

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.output.loggers import levels_of
from drover.client import ConnectClient
from drover.errors import InvalidArgumentError, NotFoundError, Reason
from drover.model.ids import TaskId
from drover.model.secrets import MASK
from drover_worker.admin.logger_levels import merged
from tests.support.fake_engine import LOGGER, SOURCE
from tests.support.waiting import wait_until_async
from tests.support.worker_cluster import RunningWorker, WorkerCluster

FIRST = {"connector.class": SOURCE, "topic": "a", "db.login": "s3cret"}
SECOND = {"connector.class": SOURCE, "topic": "b", "db.login": "0ther", "tasks.max": "2"}


def configs(changes: list[pb.ConnectorChange]) -> list[pb.ConnectorChange]:
    return [change for change in changes if change.HasField("config_version")]


async def test_a_history_tells_who_did_what_and_hides_secrets(
    workers: list[RunningWorker], follower: ConnectClient
) -> None:
    await follower.create_connector("c", FIRST)
    await follower.put_connector_config("c", SECOND)
    await follower.pause_connector("c")
    pause, put, *_ = changes = await follower.get_connector_history("c")
    assert pause.target_state == pb.TARGET_STATE_PAUSED
    assert {change.author for change in configs(changes)} == {"ann@host"}
    assert pause.author == "ann@host"
    assert put.HasField("change_time")
    assert list(put.config_version.added_keys) == ["tasks.max"]
    assert list(put.config_version.changed_keys) == ["db.login", "topic"]
    assert put.config_version.current
    assert put.config_version.config["db.login"] == MASK
    assert "s3cret" not in str(changes)
    assert "0ther" not in str(changes)


async def test_a_caller_without_a_name_is_told_by_its_address(
    workers: list[RunningWorker],
) -> None:
    request = pb.CreateConnectorRequest(name="c", config=FIRST)
    await workers[1].stub.CreateConnector(request, timeout=20)
    history = await workers[0].stub.GetConnectorHistory(
        pb.GetConnectorHistoryRequest(name="c"), timeout=20
    )
    assert {change.author for change in configs(list(history.changes))} == {"127.0.0.1"}


async def test_a_rollback_writes_the_old_config_with_its_secrets(
    cluster: WorkerCluster, workers: list[RunningWorker], follower: ConnectClient
) -> None:
    first = await follower.create_connector("c", FIRST)
    await follower.put_connector_config("c", SECOND)
    await cluster.running("c", 2, *workers)
    answer = await follower.rollback_connector("c", first.revision, request_id="mine")
    assert answer.connector.config["topic"] == "a"
    assert answer.connector.revision > first.revision
    assert not answer.created
    await cluster.running("c", 1, *workers)
    (owner,) = [worker for worker in workers if worker.tasks]
    assert owner.engine.started[TaskId("c", 0)].connector_config["db.login"] == "s3cret"
    again = await follower.rollback_connector("c", first.revision, request_id="mine")
    assert again.connector.revision == answer.connector.revision
    assert len(configs(await follower.get_connector_history("c"))) == 3


async def test_a_deleted_connector_has_a_history_and_comes_back(follower: ConnectClient) -> None:
    first = await follower.create_connector("c", FIRST)
    await follower.delete_connector("c")
    history = await follower.get_connector_history("c")
    assert "deletion" in [change.WhichOneof("change") for change in history]
    assert (await follower.rollback_connector("c", first.revision)).created
    assert (await follower.get_connector("c")).config["topic"] == "a"


async def test_what_is_not_in_the_history(follower: ConnectClient) -> None:
    first = await follower.create_connector("c", FIRST)
    with pytest.raises(NotFoundError) as caught:
        await follower.rollback_connector("c", first.revision + 100)
    assert caught.value.reason is Reason.REVISION_NOT_FOUND
    assert f"its revisions are {first.revision}" in caught.value.message
    for call in (follower.rollback_connector("x", 1), follower.get_connector_history("x")):
        with pytest.raises(NotFoundError) as caught:
            await call
        assert caught.value.reason is Reason.CONNECTOR_NOT_FOUND
    with pytest.raises(InvalidArgumentError):
        await follower.rollback_connector("c", 0)


async def test_topics_are_seen_forgotten_and_gone_with_their_connector(
    cluster: WorkerCluster, workers: list[RunningWorker], follower: ConnectClient
) -> None:
    await follower.create_connector("c", FIRST)
    await cluster.running("c", 1, *workers)
    (owner,) = [worker for worker in workers if worker.tasks]
    assert await follower.get_connector_topics("c") == []
    owner.engine.use_topics(TaskId("c", 0), "b", "a")

    async def topics(*expected: str) -> None:
        async def shown() -> bool:
            return await follower.get_connector_topics("c") == list(expected)

        await wait_until_async(shown)

    await topics("a", "b")
    await follower.reset_connector_topics("c")
    await topics()
    owner.engine.use_topics(TaskId("c", 0), "a")
    await topics("a")
    await follower.delete_connector("c")
    with pytest.raises(NotFoundError):
        await follower.get_connector_topics("c")
    await wait_until_async(lambda: workers[1].herder.topics.of("c") == [])


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    found = logging.getLogger("drover.test.history")
    found.setLevel(logging.NOTSET)
    yield found
    found.setLevel(logging.NOTSET)


async def test_a_loggers_level_is_set_on_one_worker(
    follower: ConnectClient, logger: logging.Logger
) -> None:
    assert await follower.set_logger_level(logger.name, "ERROR") == [logger.name]
    shown = {each.name: each for each in await follower.list_loggers()}
    assert shown[logger.name].level == "ERROR"
    assert shown[logger.name].HasField("last_change_time")


async def test_a_level_for_the_cluster_goes_through_the_config_log(
    follower: ConnectClient, logger: logging.Logger
) -> None:
    assert await follower.set_logger_level(logger.name, "error", cluster_scope=True) == []
    await wait_until_async(lambda: logger.level == logging.ERROR)
    for cluster_scope in (False, True):
        with pytest.raises(InvalidArgumentError):
            await follower.set_logger_level("no.such", "DEBUG", cluster_scope=cluster_scope)
        with pytest.raises(InvalidArgumentError):
            await follower.set_logger_level("root", "LOUD", cluster_scope=cluster_scope)


async def test_the_loggers_of_all_workers_are_listed_with_their_levels(
    workers: list[RunningWorker], follower: ConnectClient, logger: logging.Logger
) -> None:
    logger.setLevel(logging.ERROR)
    found = await follower.list_cluster_loggers()
    (shown,) = [each for each in found.loggers if each.name == logger.name]
    assert shown.level == "ERROR"
    addresses = {each.address for each in workers}
    assert {each.worker_id for each in shown.worker_levels} == addresses
    assert not found.silent_worker_ids
    differing = merged(
        {
            "w:1": pb.ListLoggersResponse(
                loggers=[
                    pb.Logger(name="a", level="INFO", last_change_time=Timestamp(seconds=5)),
                    pb.Logger(name="b", level="INFO"),
                ]
            ),
            "w:2": pb.ListLoggersResponse(
                loggers=[pb.Logger(name="a", level="DEBUG", last_change_time=Timestamp(seconds=9))]
            ),
            "w:3": None,
        }
    )
    first, second = differing.loggers
    assert (first.level, first.last_change_time.seconds) == ("", 9)
    assert levels_of(first) == {"DEBUG": "w:2", "INFO": "w:1"}
    assert (second.level, levels_of(second)) == ("INFO", {"INFO": "all"})
    assert not second.HasField("last_change_time")
    assert differing.silent_worker_ids == ["w:3"]


async def test_engines_follow_the_levels_of_the_cluster_and_of_their_worker(
    workers: list[RunningWorker], follower: ConnectClient
) -> None:
    assert LOGGER.name in [each.name for each in await follower.list_loggers()]
    assert await follower.set_logger_level("acme", "ERROR") == [LOGGER.name]
    await follower.set_logger_level(LOGGER.name, "debug", cluster_scope=True)
    leading, following = (worker.engine for worker in workers)
    for_all = (LOGGER.name, "DEBUG")
    await wait_until_async(lambda: leading.logger_levels == [for_all])
    await wait_until_async(lambda: following.logger_levels == [("acme", "ERROR"), for_all])
    following.die()
    following.come_back()
    await wait_until_async(lambda: following.logger_levels == [("acme", "ERROR"), for_all])
