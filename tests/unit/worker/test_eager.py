"""The eager strategy, with the work of a herder that has settled."""

import pytest

from drover.errors import InvalidArgumentError
from drover.model.group import Joined, JoinedMember
from drover.model.ids import TaskId
from drover_worker.core.rebalance.eager import EagerStrategy
from drover_worker.core.rebalance.protocol import MemberMetadata, decode_assignment
from tests.support.herder_driver import ME, OTHER, HerderDriver, entry


@pytest.fixture
def strategy(herder: HerderDriver) -> EagerStrategy:
    herder.ready(entry("c", tasks=1))
    herder.settle_as_leader()
    herder.run_engine()
    return EagerStrategy(herder.herder.work, herder.herder.context.view)


def joined(strategy: EagerStrategy, *worker_urls: str) -> Joined:
    members = [
        JoinedMember(f"m{n}", strategy.supported_protocols(MemberMetadata(url, 3))[0].metadata)
        for n, url in enumerate(worker_urls)
    ]
    return Joined(1, "m0", "m0", "connect", strategy.protocol_name, members)


def test_it_is_what_kafka_connect_calls_default(strategy: EagerStrategy) -> None:
    offered = strategy.supported_protocols(MemberMetadata(ME, 3))

    assert [protocol.name for protocol in offered] == ["default"]


def test_everything_stops_before_the_join(herder: HerderDriver, strategy: EagerStrategy) -> None:
    assert not strategy.may_join()

    strategy.revoke_before_join()

    assert all(item.revoked for item in herder.herder.work.all())


def test_the_leader_knows_the_whole_work_of_each_member(strategy: EagerStrategy) -> None:
    computed = strategy.compute_assignments(
        joined(strategy, ME, OTHER), task_counts={"c": 2}, config_offset=3, now_ms=0
    )

    assert {member: part.keys for member, part in computed.assignments.items()} == {
        "m0": ("c", TaskId("c", 1)),
        "m1": (TaskId("c", 0),),
    }
    assert [member.worker_url for member in computed.members.values()] == [ME, OTHER]
    decoded = {member: decode_assignment(data) for member, data in computed.encoded.items()}
    assert decoded == computed.assignments


def test_malformed_metadata_is_refused(strategy: EagerStrategy) -> None:
    broken = Joined(1, "m0", "m0", "connect", "default", [JoinedMember("m0", b"?")])

    with pytest.raises(InvalidArgumentError):
        strategy.compute_assignments(broken, task_counts={}, config_offset=0, now_ms=0)
