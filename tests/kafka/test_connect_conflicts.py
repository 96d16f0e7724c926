"""Who may write: one group id on a set of topics, and one leader at a time, of either kind."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from drover.client import WriterClaim
from drover.errors import FailedPreconditionError, Reason
from drover.model.ids import Term
from tests.support.kafka.both_sides import last_values, wait_until_same
from tests.support.kafka.choice import Kafka
from tests.support.kafka.clients import create_topic
from tests.support.kafka.connect import FILE_SOURCE, ConnectOptions, KafkaConnect
from tests.support.kafka.connect_rest import ConnectRestError
from tests.support.kafka.drover_services import (
    ALL_SERVICES,
    CONFIG_STORE,
    DroverServices,
    kafka_environment,
)
from tests.support.service_process import assert_one_clear_line, run_to_its_end
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.e2e]


@pytest.fixture
def start(
    kafka: Kafka, tmp_path: Path, topic_prefix: str
) -> Iterator[Callable[..., DroverServices]]:
    """Starts services of Drover on the test's topics."""
    with ExitStack() as stack:
        count = 0

        def started(options: ConnectOptions, **more: object) -> DroverServices:
            nonlocal count
            count += 1
            directory = tmp_path / f"drover-{count}"
            drover = DroverServices(kafka.bootstrap, options, directory, **more)  # type: ignore[arg-type]
            stack.callback(drover.stop)
            drover.start()
            return drover

        yield started


async def test_another_group_id_on_the_same_topics_is_refused(
    kafka: Kafka, start: Callable[..., DroverServices], topic_prefix: str, tmp_path: Path
) -> None:
    options = ConnectOptions.named(f"{topic_prefix}one")
    drover = start(options, services=(CONFIG_STORE,))
    other = f"{topic_prefix}two"

    for service in ALL_SERVICES:
        done = await run_to_its_end(
            service, tmp_path, kafka_environment(kafka.bootstrap, options, group_id=other)
        )
        assert_one_clear_line(done, service, other, options.group_id)

    assert drover.health(CONFIG_STORE) == "SERVING"
    drover.assert_unharmed()


async def test_another_number_of_shards_on_the_same_topics_is_refused(
    kafka: Kafka, start: Callable[..., DroverServices], topic_prefix: str, tmp_path: Path
) -> None:
    options = ConnectOptions.named(f"{topic_prefix}one")
    start(options, services=("coordinator",))

    env = {**kafka_environment(kafka.bootstrap, options), "DROVER_GROUP_SHARDS": "2"}
    done = await run_to_its_end("coordinator", tmp_path, env)

    assert_one_clear_line(done, "coordinator", "DROVER_GROUP_SHARDS")


def test_leaders_of_both_kinds_fence_each_other(
    kafka: Kafka,
    start: Callable[..., DroverServices],
    connect_cluster: Callable[..., KafkaConnect],
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    """Kafka Connect's leader writes in transactions where exactly-once is enabled."""
    named = ConnectOptions.named(f"{topic_prefix}one")
    options = replace(named, exactly_once_source="enabled")
    topic, file = f"{topic_prefix}lines", tmp_path / "in.txt"
    create_topic(kafka.bootstrap, topic)
    file.write_text("one\n")
    config = {"connector.class": FILE_SOURCE, "file": str(file), "topic": topic, "name": "src"}
    connect = connect_cluster(bootstrap=kafka.bootstrap, options=options)
    drover = start(options)
    connect.rest.create("src", config)
    connect.rest.wait_until_running("src")

    claim = _claim(drover, 1)
    _write(drover, claim, {**config, "by": "drover"})
    wait_until_same(connect.rest, drover, "src")

    # its producer was fenced: it claims again, and then Drover is the one that is fenced
    wait_until(lambda: _put(connect, {**config, "by": "connect"}), describe=connect.log_end)
    wait_until(lambda: "PrivilegedWriteException" in connect.process.log())
    with pytest.raises(FailedPreconditionError) as refused:
        _write(drover, claim, {**config, "by": "a former leader"})
    assert refused.value.reason is Reason.STALE_WRITER_EPOCH
    connect.rest.wait_until_running("src")
    shown = wait_until_same(connect.rest, drover, "src")
    assert shown["src"]["config"] == {**config, "by": "connect"}

    # its leader writes the tasks as well, and would fence whoever claims before that
    wait_until(lambda: _is_applied(drover, "connect"), timeout_s=60, describe=connect.log_end)
    _write(drover, _claim(drover, 2), {**config, "by": "drover again"})
    shown = wait_until_same(connect.rest, drover, "src")
    assert shown["src"]["config"] == {**config, "by": "drover again"}
    written = last_values(kafka.bootstrap, options.config_topic)["connector-src"]
    assert written == {"properties": {**config, "by": "drover again"}}
    drover.assert_unharmed()


def _is_applied(drover: DroverServices, by: str) -> bool:
    """Whether the tasks are made from that config, and those of before are fenced."""
    entry = drover.configs().connectors["src"]
    return (entry.applied_config or {}).get("by") == by and not entry.fencing_pending


def _claim(drover: DroverServices, generation: int) -> WriterClaim:
    term = Term(generation, 0)
    return drover.call(lambda clients: clients.configs.claim_writer(owner="stand-in", term=term))


def _write(drover: DroverServices, claim: WriterClaim, config: dict[str, str]) -> None:
    drover.call(
        lambda clients: clients.configs.put_connector_config(
            name="src", config=config, writer_epoch=claim.writer_epoch
        )
    )


def _put(connect: KafkaConnect, config: dict[str, str]) -> bool:
    """False where the worker has just been fenced and has to claim the topic first."""
    try:
        connect.rest.put_config("src", config)
    except ConnectRestError:
        return False
    return True
