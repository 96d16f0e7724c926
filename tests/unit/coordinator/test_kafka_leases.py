"""Compare-and-set of leases without brokers: when it reads, and what a fenced writer does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from drover.errors import FailedPreconditionError, Reason
from drover.log.kafka.records import Place, Produced
from drover.testing import raises_reason
from drover_coordinator.backends.kafka import leases as leases_module
from drover_coordinator.backends.kafka.control_records import decode_table
from drover_coordinator.backends.kafka.leases import ATTEMPTS, KafkaLeases
from drover_coordinator.core.ownership.machine import Beat, Claim, Lease, Write
from tests.support.lease_courses import LATER_A, A


@dataclass
class Partition:
    """The values in the topic, and the writer that may produce."""

    values: dict[str, bytes] = field(default_factory=dict)
    end: int = 0
    writer: object = None
    #: how many of the next writes find their writer fenced
    fence_next: int = 0

    def put(self, records: Sequence[Produced]) -> list[Place]:
        places = []
        for record in records:
            assert record.value is not None
            self.values[record.key.decode()] = record.value
            places.append((0, self.end))
            self.end += 1
        self.end += 1  # the commit marker
        return places


class Writer:
    """A fake ``TransactionalWriter``."""

    def __init__(self, partition: Partition, _id: str) -> None:
        self.begin_count = 0
        self._partition = partition

    @property
    def begun(self) -> bool:
        return self._partition.writer is self

    async def begin(self) -> None:
        self.begin_count += 1
        self._partition.writer = self

    async def write(self, records: Sequence[Produced]) -> list[Place]:
        if self._partition.fence_next:
            self._partition.fence_next -= 1
            self._partition.writer = None
        if not self.begun:
            raise FailedPreconditionError(Reason.STALE_WRITER_EPOCH, "fenced")
        return self._partition.put(records)

    async def close(self) -> None:
        pass


class Topic:
    """A fake ``ControlTopic``: it has the values of the last ``refresh``."""

    topic = "control"

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._seen: Mapping[str, bytes] = {}
        self.waited_for = 0

    async def refresh(self, at_least: int = 0) -> None:
        self.waited_for = at_least
        self._seen = dict(self._partition.values)

    def values(self, prefix: str) -> Mapping[str, bytes]:
        return {key: value for key, value in self._seen.items() if key.startswith(prefix)}


class Control:
    """A fake ``kafka.control.Control``."""

    def __init__(self, partition: Partition) -> None:
        self.client = cast("Any", self)
        self.storage = cast("Any", self)
        self.group_id = "g"
        self.group_shards = 2
        self.opened = Topic(partition)

    async def topic(self) -> Topic:
        return self.opened


@pytest.fixture
def partition(monkeypatch: pytest.MonkeyPatch) -> Partition:
    made = Partition()
    monkeypatch.setattr(leases_module, "PAUSE_MAX_S", 0)
    monkeypatch.setattr(leases_module, "TransactionalWriter", lambda _, id_: Writer(made, id_))
    return made


def table(partition: Partition, who: Any = A) -> tuple[KafkaLeases, Control]:
    control = Control(partition)
    return KafkaLeases(cast("Any", control), who), control


async def test_what_is_decided_on_was_read_after_the_writer_had_begun(
    partition: Partition,
) -> None:
    ours, _ = table(partition)
    others, _ = table(partition, LATER_A)
    for turn in range(1, 4):
        seen = await ours.exchange([Beat()], 0)
        assert seen.peers[A.address].beats == 2 * turn - 1
        await others.exchange([Beat()], 0)


async def test_one_that_is_alone_begins_once(partition: Partition) -> None:
    ours, _ = table(partition)
    for _ in range(3):
        await ours.exchange([Beat()], 0)
    assert cast("Writer", ours._writer).begin_count == 1


async def test_a_fenced_writer_decides_anew(partition: Partition) -> None:
    ours, _ = table(partition)
    await ours.exchange([Beat()], 0)
    theirs, _ = table(partition, LATER_A)
    await theirs.exchange([Claim(0, 1, Lease())], 0)
    seen = await ours.exchange([Claim(0, 2, Lease())], 0)
    assert seen.leases[0] == Lease(LATER_A.address, LATER_A.incarnation, 1)


async def test_one_that_is_fenced_again_and_again_writes_nothing_and_is_tried_later(
    partition: Partition,
) -> None:
    ours, _ = table(partition)
    partition.fence_next = ATTEMPTS
    with raises_reason(Reason.STORAGE_UNAVAILABLE, "next exchange"):
        await ours.exchange([Beat()], 0)
    assert partition.values == {}
    partition.fence_next = ATTEMPTS - 1
    assert A.address in (await ours.exchange([Beat()], 0)).peers


@pytest.mark.parametrize("writes", [[], [Beat()]], ids=["a look", "a write"])
async def test_what_was_written_here_is_read_before_anything_else(
    partition: Partition, writes: list[Write]
) -> None:
    ours, control = table(partition)
    await ours.exchange([Beat(), Claim(1, 1, Lease())], 0)
    assert control.opened.waited_for == 0
    await ours.exchange(writes, 0)
    assert control.opened.waited_for == 2


async def test_a_write_that_changes_nothing_is_none(partition: Partition) -> None:
    ours, _ = table(partition)
    await ours.exchange([Claim(0, 1, Lease("somebody", "else", 1))], 0)
    assert partition.end == 0
    assert decode_table(partition.values, 2, print).leases == (Lease(), Lease())
