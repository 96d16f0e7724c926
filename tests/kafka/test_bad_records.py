"""Invalid records in all topics of running services."""

from collections import Counter
from pathlib import Path

import pytest

from drover.errors import UnavailableError
from drover.model.group import LeavingMember
from drover.model.ids import TaskId, Term
from drover.model.status import RunState, Status, StatusWrite
from tests.support.kafka.choice import Kafka
from tests.support.kafka.clients import produce, read_all
from tests.support.kafka.connect import ConnectOptions
from tests.support.kafka.drover_member import DroverMember
from tests.support.kafka.drover_services import (
    CONFIG_STORE,
    COORDINATOR,
    STATUS_STORE,
    Clients,
    DroverServices,
    control_topic,
)
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.e2e]

Pair = tuple[bytes | None, bytes | None]
SOURCE = "source"
TASK = TaskId(SOURCE, 0)
#: Over 1 MiB; the broker accepts it because it is compressed.
_OVER_1_MIB = b'{"properties":{"x":"%s"}}' % (b"y" * 1_100_000)
_DEEP = b"[" * 100_000


def test_bad_records_are_told_once_and_stop_nothing(
    kafka: Kafka, topic_prefix: str, tmp_path: Path
) -> None:
    options = ConnectOptions.named(f"{topic_prefix}one")
    drover = DroverServices(kafka.bootstrap, options, tmp_path)
    bad = {
        CONFIG_STORE: (options.config_topic, _bad_configs()),
        STATUS_STORE: (options.status_topic, _bad_statuses()),
        COORDINATOR: (options.offset_topic, _bad_offsets()),
    }
    try:
        drover.start()
        write(drover, 1)
        held = what_is_held(drover)
        for topic, pairs in bad.values():
            produce(kafka.bootstrap, topic, pairs, settings=_LARGE)
        # enough keys for each partition
        foreign: list[Pair] = [(b"x%d" % number, b"y") for number in range(20)]
        produce(kafka.bootstrap, control_topic(options), foreign)
        places = {topic: _places(kafka, topic, pairs) for topic, pairs in bad.values()}
        for name, (topic, _) in bad.items():
            _wait_until_told(drover, name, topic, places[topic])
        assert what_is_held(drover) == held
        write(drover, 2)
        held = what_is_held(drover)

        # a restarted service reads from the beginning: it reports each bad record again and loses
        # no more
        for name, (topic, _) in bad.items():
            since = len(drover.events(name))
            drover.restart(name, kill=True)
            _wait_until_told(drover, name, topic, places[topic], since=since)
        assert what_is_held(drover) == held
        told = _told(drover, COORDINATOR, control_topic(options))
        assert set(told.values()) <= {1}, "those in the control topic once as well"
        write(drover, 3)
        drover.assert_unharmed()
    finally:
        drover.stop()


def write(drover: DroverServices, turn: int) -> None:
    """The writes of a leader and a worker."""

    async def write_all(clients: Clients) -> None:
        claim = await clients.configs.claim_writer(owner="stand-in", term=Term(turn, 0))
        epoch, config = claim.writer_epoch, {"turn": str(turn)}
        await clients.configs.put_connector_config(name=SOURCE, config=config, writer_epoch=epoch)
        await clients.configs.put_task_configs(
            connector=SOURCE, task_configs=[config], writer_epoch=epoch
        )
        status = Status(TASK, RunState.RUNNING, f"worker:{turn}", turn)
        await clients.statuses.put_statuses([StatusWrite(status)])
        member = DroverMember(clients.coordinator, drover.options.group_id)
        await member.join()
        term = await member.claim(TASK, task_config_generation=turn)
        await member.commit(TASK, term, [({"filename": "in.txt"}, {"position": turn})])
        await clients.coordinator.leave(
            group_id=member.group_id, members=[LeavingMember(member.member_id)]
        )

    drover.call(write_all)


def what_is_held(drover: DroverServices) -> object:
    """The state of all services; a restarted coordinator's once it serves."""

    def held() -> object:
        try:
            offsets = drover.offsets(SOURCE)
        except UnavailableError:
            return None
        configs = drover.configs()
        return configs.connectors, configs.task_configs, drover.statuses().statuses, offsets

    return wait_until(held)


def _bad_configs() -> list[Pair]:
    source = SOURCE.encode()
    return [
        (b"nobody-knows", b"{}"),
        (b"connector-x", b"not json"),
        (b"connector-deep", _DEEP),
        (b"connector-" + source, b'{"properties":[1]}'),
        (b"connector-" + source, b'{"properties":{"file":7}}'),
        (b"task-%s-0" % source, b'{"properties":"text"}'),
        (b"task-without-number", b'{"properties":{}}'),
        (b"commit-" + source, b'{"tasks":"1"}'),
        (b"commit-" + source, b'{"tasks":-1}'),
        (b"commit-" + source, None),
        (b"target-state-" + source, b'{"state":"nonsense"}'),
        (b"restart-connector-" + source, b"[]"),
        (b"tasks-fencing-" + source, b"{}"),
        (b"session-key", b'{"key":5}'),
        (b"logger-cluster-x", b'{"level":3}'),
        (b"connector-\xff", b'{"properties":{}}'),
        (b"connector-big", _OVER_1_MIB),
    ]


def _bad_statuses() -> list[Pair]:
    source = SOURCE.encode()
    return [
        (b"nobody-knows", b"{}"),
        (b"status-connector-" + source, b"not json"),
        (b"status-connector-" + source, b'{"state":"HAPPY","worker_id":"x","generation":1}'),
        (b"status-connector-" + source, b'{"state":"FAILED","worker_id":1,"generation":1}'),
        (b"status-task-%s-0" % source, b'{"state":"FAILED","worker_id":"x","generation":"1"}'),
        (b"status-task-%s-0" % source, _DEEP),
        (b"status-task-without-number", b'{"state":"RUNNING"}'),
        (b"status-topic-t:connector-" + source, b'{"topic":"t"}'),
        (b"status-connector-\xff", b"{}"),
    ]


def _bad_offsets() -> list[Pair]:
    mine = b'["%s",{"filename":"in.txt"}]' % SOURCE.encode()
    return [
        (b"no json", b"{}"),
        (b'["flow"]', b'{"position":0}'),
        (b'{"a":1}', b'{"position":0}'),
        (b'[1,{"filename":"x"}]', b'{"position":0}'),
        (mine, b"not json"),
        (mine, b"7"),
        (_DEEP, b"{}"),
    ]


_LARGE: dict[str, str | int] = {"compression.type": "gzip", "message.max.bytes": 4_000_000}


def _places(kafka: Kafka, topic: str, pairs: list[Pair]) -> set[tuple[int, int]]:
    """Partitions and offsets of the bad records."""
    found = {
        (each.partition, each.offset)
        for each in read_all(kafka.bootstrap, topic)
        if (each.key, each.value) in pairs
    }
    assert len(found) == len(pairs)
    return found


def _told(
    drover: DroverServices, name: str, topic: str, since: int = 0
) -> "Counter[tuple[int, int]]":
    return Counter(
        (event["partition"], event["offset"])
        for event in drover.events(name)[since:]
        if event.get("topic") == topic and "offset" in event
    )


def _wait_until_told(
    drover: DroverServices, name: str, topic: str, places: set[tuple[int, int]], *, since: int = 0
) -> None:
    """Wait until each bad record is reported by partition and offset, none twice."""

    def told() -> "Counter[tuple[int, int]]":
        return _told(drover, name, topic, since)

    def unlike() -> object:
        return {"not told": places - set(told()), "also told": set(told()) - places}

    wait_until(lambda: what_is_held(drover) and set(told()) >= places, describe=unlike)
    assert told() == Counter(places), unlike()
