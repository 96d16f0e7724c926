"""What a reload of plugins moves, and why."""

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.model.ids import TaskId
from drover.model.status import StatusKey
from drover_worker.admin.plugin_reload import PluginReload
from drover_worker.shell.known_plugins import KnownPlugins
from drover_worker.shell.package_changes import PackageChanges
from drover_worker.shell.replaceable_engine import Moves

CONFIGS = {
    "tickets": {"connector.class": "acme_api.Api"},
    "masked": {
        "connector.class": "plain.Sink",
        "transforms": "a,b",
        "transforms.a.type": "plain.Step",
        "transforms.b.type": "acme_api.Mask",
    },
    "other": {"connector.class": "plain.Sink", "value.converter": "plain.Converter"},
}
RUNNING: list[StatusKey] = [key for name in CONFIGS for key in (name, TaskId(name, 0))]


class Changes:
    """Packages with changes, by module."""

    def __init__(self, changed: Mapping[str, str]) -> None:
        self._changed = changed
        self.distributions = dict(changed)
        self.plugin_modules: frozenset[str] = frozenset()

    def of_class(self, class_name: str) -> str | None:
        return self._changed.get(class_name.partition(".")[0])

    def modules(self, _names: object) -> list[str]:
        return []


class World:
    """A worker on which all connectors run."""

    def __init__(self, java: Mapping[str, str] | None = None, **changed: str) -> None:
        self.moves: list[list[StatusKey]] = []
        self.java_classes = {("acme_api.Mask", "acme@1.1"), ("org.Other", "other")}
        self.go = asyncio.Event()
        self.go.set()
        view = SimpleNamespace(connectors=CONFIGS, config=CONFIGS.get)
        herder = SimpleNamespace(context=SimpleNamespace(view=view))
        self.reload = PluginReload(
            worker_id="w:1",
            loop=cast("Any", SimpleNamespace(herder=herder)),
            plugins=KnownPlugins(),
            forwarder=cast("Any", None),
            replace_engine=self._replace,
            changes_since=lambda _since_ms: cast("PackageChanges", Changes(changed)),
            java_changes=lambda _since_ms: java or {},
            java_classes=lambda: frozenset(self.java_classes),
        )

    async def _replace(self, moves: Moves) -> int:
        await self.go.wait()
        self.moves.append([key for key in RUNNING if moves(key)])
        return len(self.moves[-1])

    async def ask(self, *, everything: bool = False) -> pb.ReloadPluginsResponse:
        call = SimpleNamespace(deadline=SimpleNamespace(remaining_s=lambda: 5.0))
        request = pb.ReloadPluginsRequest(all=everything)
        return await self.reload.reload(request, cast("Any", call))


async def test_connectors_that_use_a_changed_package_move_with_their_tasks() -> None:
    world = World(acme_api="acme-api 1.3.0")
    answer = await world.ask()
    assert world.moves == [["tickets", TaskId("tickets", 0), "masked", TaskId("masked", 0)]]
    assert (answer.moved_count, answer.kept_count) == (4, 2)
    assert list(answer.changed_packages) == ["acme-api 1.3.0"]
    assert {each.connector: each.reason for each in answer.moved_connectors} == {
        "tickets": "connector.class uses acme-api 1.3.0",
        "masked": "transforms.b.type uses acme-api 1.3.0",
    }


@pytest.mark.parametrize("name", ["acme_api.Mask", "java:acme_api.Mask"])
async def test_connectors_that_use_a_changed_java_plugin_move(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CONFIGS["masked"], "transforms.b.type", name)
    world = World(java={"acme_api.Mask": "the Java plugin acme@1.1"})
    answer = await world.ask()
    assert world.moves == [["masked", TaskId("masked", 0)]]
    assert list(answer.changed_packages) == ["the Java plugin acme@1.1"]
    (moved,) = answer.moved_connectors
    assert moved.reason == "transforms.b.type uses the Java plugin acme@1.1"


async def test_a_new_package_moves_nothing_but_is_loaded() -> None:
    world = World(new_api="new-api 1.0")
    answer = await world.ask()
    assert world.moves == [[]]
    assert (answer.moved_count, answer.kept_count, answer.unchanged) == (0, 6, False)


async def test_without_a_change_there_is_no_new_engine() -> None:
    world = World()
    answer = await world.ask()
    assert answer.unchanged
    assert world.moves == []


async def test_all_moves_everything_even_without_a_change() -> None:
    world = World()
    answer = await world.ask(everything=True)
    assert world.moves == [RUNNING]
    assert not answer.unchanged
    assert len(answer.moved_connectors) == len(CONFIGS)


@pytest.mark.parametrize(("everything", "count"), [(False, 1), (True, 2)])
async def test_a_second_call_gets_the_answer_of_the_first_unless_it_moves_more(
    everything: bool, count: int
) -> None:
    world = World(acme_api="acme-api 1.3.0")
    world.go.clear()
    calls = [asyncio.create_task(world.ask())]
    await asyncio.sleep(0)
    calls.append(asyncio.create_task(world.ask(everything=everything)))
    await asyncio.sleep(0)
    world.go.set()
    first, second = await asyncio.gather(*calls)
    assert len(world.moves) == count
    assert first.moved_count == 4
    assert second.moved_count == (6 if everything else 4)


async def test_connectors_that_use_a_removed_java_plugin_move_once() -> None:
    world = World()
    assert (await world.ask()).unchanged
    world.java_classes.discard(("acme_api.Mask", "acme@1.1"))
    done = await world.ask()
    assert list(done.changed_packages) == ["the removed Java plugin acme@1.1"]
    assert [each.connector for each in done.moved_connectors] == ["masked"]
    assert (await world.ask()).unchanged
