"""The shards of one process while some of them still load."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from drover.api.coordinator.v1 import coordinator_service_pb2 as pb
from drover.errors import Reason, UnavailableError
from drover.model.group import shard_of
from drover.runtime.runtime import Runtime
from drover.testing import ManualClock
from drover_coordinator.backends.embedded.shard_files import open_shard_log
from drover_coordinator.core.groups.settings import GroupSettings
from drover_coordinator.server import CoordinatorServicer
from drover_coordinator.sharding.shards import Shards, SingleOwner

COUNT = 2


@pytest.fixture
def ownership() -> SingleOwner:
    return SingleOwner()


@pytest.fixture
async def shards(tmp_path: Path, ownership: SingleOwner) -> AsyncIterator[Shards]:
    clock = ManualClock()
    made = Shards(
        partial(open_shard_log, tmp_path, clock),
        shard_count=COUNT,
        settings=GroupSettings(),
        clock=clock,
        ownership=ownership,
    )
    for shard in range(COUNT):
        await (await made.open(shard)).load()
    yield made
    await made.close_all()


async def test_timers_are_held_though_another_shard_is_being_read(
    shards: Shards, ownership: SingleOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[str] = []
    monkeypatch.setattr(Runtime, "hold_timers", lambda runtime, _: held.append(runtime._name))
    ownership.loaded = {1}
    shards.hold_timers(2_000)
    assert held == ["group shard 1"]
    with pytest.raises(UnavailableError) as caught:
        shards.owned()
    assert caught.value.reason is Reason.COORDINATOR_LOAD_IN_PROGRESS


async def test_a_list_goes_on_after_the_group_without_a_name(
    shards: Shards, ownership: SingleOwner
) -> None:
    ownership.loaded = {0, 1}
    servicer = CoordinatorServicer(shards, cast("Any", None), ManualClock())
    group_ids = ["", "a", "b", "c", "d"]
    assert len({shard_of(group_id, COUNT) for group_id in group_ids[1:]}) == COUNT
    for group_id in group_ids:
        commit = pb.CommitGroupOffsetsRequest(group_id=group_id, generation=-1)
        commit.offsets.add(topic="t", partition=0, offset=1)
        await servicer.CommitGroupOffsets(commit, cast("Any", None))
    for page_size in (1, 2, 100):
        found: list[str] = []
        token = ""
        while not found or token:
            request = pb.ListGroupsRequest(page_size=page_size, page_token=token)
            page = await servicer.ListGroups(request, cast("Any", None))
            found += [each.group_id for each in page.groups]
            token = page.next_page_token
        assert found == group_ids
