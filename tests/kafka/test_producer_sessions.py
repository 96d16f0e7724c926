"""Transactions of a task's producer over a network that counts and drops requests and responses."""

import itertools
import random
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from drover.errors import UnavailableError
from tests.kafka.test_exactly_once import (
    Mortal,
    MortalBatchProducer,
    MortalRecordsFirstProducer,
    World,
    make_world,
)
from tests.kafka.test_lost_answers import next_of, relay
from tests.support.kafka.relay import ADD_PARTITIONS_TO_TXN, PRODUCE, Fate, Outages, Relay

__all__ = ["relay"]

#: The tests share a separate broker.
pytestmark = pytest.mark.xdist_group("lost_answers")

FIND_COORDINATOR, INIT_PRODUCER_ID, END_TXN = 10, 22, 26
OF_SESSIONS = {PRODUCE, FIND_COORDINATOR, INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, END_TXN}
BATCHES = 60


@pytest.fixture(params=[MortalBatchProducer, MortalRecordsFirstProducer])
def world(request: pytest.FixtureRequest, relay: Relay, topic_prefix: str, tmp_path: Path) -> World:
    kind: type[Mortal] = request.param
    return make_world(relay.bootstrap, topic_prefix, tmp_path, kind)


def test_a_small_batch_goes_with_its_offsets(
    relay: Relay, topic_prefix: str, tmp_path: Path
) -> None:
    world = make_world(relay.bootstrap, topic_prefix, tmp_path, MortalBatchProducer)
    owner = world.take_over()
    owner.start()
    owner.publish_next()
    world.values()
    asked: Counter[int] = Counter()

    def noted(api_key: int) -> Fate:
        asked[api_key] += 1
        return Fate.ANSWERED

    with relay.losing(noted):
        owner.publish_next()
    # the broker itself also verifies that the partitions were added
    assert (asked[ADD_PARTITIONS_TO_TXN], asked[PRODUCE], asked[END_TXN]) == (2, 1, 1)
    assert world.values() == [b"line %d" % number for number in range(4)]
    owner.writer.close()


def test_the_offsets_of_published_records_are_known(world: World) -> None:
    owner = world.take_over()
    owner.start()
    placed: list[int] = []
    for _ in range(3):
        placement = owner.publish_next().placement
        assert placement is not None
        assert placement.partition_counts == {world.topic: 1}
        for each in placement.ranges:
            assert (each.topic, each.partition) == (world.topic, 0)
            placed += range(each.start_offset, each.end_offset)
    assert placed == [each.offset for each in world.records()]
    owner.writer.close()


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.ANSWER_LOST])
@pytest.mark.parametrize("api_key", [INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, PRODUCE, END_TXN])
def test_what_is_lost_is_asked_again(relay: Relay, world: World, api_key: int, fate: Fate) -> None:
    owner = world.take_over()
    fates = itertools.chain([fate], itertools.repeat(Fate.ANSWERED))
    with relay.losing(partial(next_of, api_key, fates)):
        owner.start()
        owner.publish_next()
        owner.publish_next()
    assert world.values() == [b"line %d" % number for number in range(4)]
    owner.writer.close()


@pytest.mark.faults("kafka")
def test_each_line_arrives_once_over_a_network_that_loses_requests_and_answers(
    relay: Relay, world: World
) -> None:
    outages = Outages(random.Random(4), chance=0.05, max_lost=4)

    def fate_of(api_key: int) -> Fate:
        """Requests that read committed offsets are never dropped."""
        return outages(api_key) if api_key in OF_SESSIONS else Fate.ANSWERED

    owner = world.take_over()
    started = False
    with relay.losing(fate_of):
        while owner.next < 2 * BATCHES:
            try:
                if not started:
                    owner.start()
                    started = True
                owner.publish_next()
            except UnavailableError:
                started = False  # restart at the committed offsets, as a runner does
    assert outages.lost_count
    assert world.values() == [b"line %d" % number for number in range(2 * BATCHES)]
    owner.writer.close()
