"""The active topics of connectors (KIP-558)."""

import pytest

from drover.errors import Reason, UnavailableError
from drover.model.ids import TaskId
from drover.model.status import StatusSnapshot, TopicEvent, TopicKey, TopicStatus
from drover_worker.core import events, instructions
from tests.support.herder_driver import HerderDriver, entry

C0 = TaskId("c", 0)
UNREACHABLE = UnavailableError(Reason.SERVICE_UNREACHABLE, "nobody answers")


@pytest.fixture
def leader(herder: HerderDriver) -> HerderDriver:
    herder.ready(entry("c", tasks=1))
    herder.settle_as_leader()
    herder.run_engine()
    return herder


def use(herder: HerderDriver, *topics: str, run_id: int | None = None) -> None:
    own = herder.herder.work.tasks[C0].run_id
    herder.step(events.TopicsUsed(C0, own if run_id is None else run_id, topics))


def see(herder: HerderDriver, connector: str, *topics: str, forgotten: bool = False) -> None:
    found = []
    for topic in topics:
        key = TopicKey(connector, topic)
        status = None if forgotten else TopicStatus(key, 0, 1_000)
        found.append(TopicEvent(herder.status_offset, key, status))
        herder.status_offset += 1
    herder.step(events.StatusesChanged(found))


def test_a_topic_is_told_once(leader: HerderDriver) -> None:
    use(leader, "b", "a")
    told = leader.take(instructions.PutTopicStatuses)
    assert (told.task, told.topics) == (C0, ["a", "b"])
    use(leader, "a", "b")
    assert not leader.find(instructions.PutTopicStatuses)
    leader.step(events.TopicStatusesWritten(told.cause_id))
    see(leader, "c", "a", "b")
    use(leader, "a", "b", "new")
    assert leader.take(instructions.PutTopicStatuses).topics == ["new"]
    assert leader.herder.topics.of("c") == ["a", "b"]


def test_what_another_worker_told_is_not_told_again(leader: HerderDriver) -> None:
    see(leader, "c", "a")
    use(leader, "a")
    assert not leader.find(instructions.PutTopicStatuses)


def test_what_could_not_be_told_is_told_later(leader: HerderDriver) -> None:
    use(leader, "a", "b")
    leader.fail(leader.take(instructions.PutTopicStatuses).cause_id, UNREACHABLE)
    use(leader, "a")
    see(leader, "c", "b")
    leader.advance(249)
    assert not leader.find(instructions.PutTopicStatuses)
    leader.advance(1)
    assert leader.take(instructions.PutTopicStatuses).topics == ["a"]


def test_after_a_reset_topics_in_use_come_back(leader: HerderDriver) -> None:
    see(leader, "c", "a", "idle")
    see(leader, "c", "a", "idle", forgotten=True)
    assert leader.herder.topics.of("c") == []
    use(leader, "a")
    assert leader.take(instructions.PutTopicStatuses).topics == ["a"]


def test_a_report_of_a_run_that_is_over_tells_nothing(leader: HerderDriver) -> None:
    use(leader, "a", run_id=99_999)
    assert not leader.find(instructions.PutTopicStatuses)


def test_the_leader_forgets_the_topics_of_a_deleted_connector(leader: HerderDriver) -> None:
    see(leader, "c", "a")
    leader.remove("c")
    forget = leader.take(instructions.DeleteTopicStatuses)
    assert forget.connector == "c"
    leader.step(events.TopicStatusesWritten(forget.cause_id))
    see(leader, "c", "a", forgotten=True)
    leader.advance(10_000)
    assert not leader.find(instructions.DeleteTopicStatuses)


def test_a_topic_that_comes_after_the_deletion_is_forgotten_too(leader: HerderDriver) -> None:
    leader.remove("c")
    see(leader, "c", "late")
    assert leader.take(instructions.DeleteTopicStatuses).connector == "c"


def test_a_call_that_failed_is_repeated_later(leader: HerderDriver) -> None:
    see(leader, "gone", "a")
    leader.fail(leader.take(instructions.DeleteTopicStatuses).cause_id, UNREACHABLE)
    leader.advance(249)
    assert not leader.find(instructions.DeleteTopicStatuses)
    leader.advance(1)
    leader.take(instructions.DeleteTopicStatuses)


def test_who_comes_to_lead_looks_at_all(herder: HerderDriver) -> None:
    key = TopicKey("gone", "a")
    topics = {
        key: TopicStatus(key, 0, 1),
        TopicKey("c", "a"): TopicStatus(TopicKey("c", "a"), 0, 1),
    }
    herder.ready(entry("c", tasks=1))
    herder.step(events.StatusesLoaded(StatusSnapshot(0, {}, topics)))
    assert not herder.find(instructions.DeleteTopicStatuses)
    herder.settle_as_leader()
    assert herder.take(instructions.DeleteTopicStatuses).connector == "gone"


def test_a_follower_forgets_nothing(herder: HerderDriver) -> None:
    herder.ready(entry("c", tasks=1))
    herder.settle_as_follower()
    see(herder, "gone", "a")
    assert not herder.find(instructions.DeleteTopicStatuses)
