"""The page of one connector over a real worker: tabs, actions, conflicts and updates."""

import html
import json
import re
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
import pytest_asyncio

from drover.api.common.v1 import activity_pb2
from drover.dataplane.embedded import DATA_FILE
from drover.dataplane.store import EmbeddedStore
from drover.model.ids import TaskId
from drover.model.status import RecordCounts
from drover_gateway.console.connector_history_page import ROLLBACK
from drover_gateway.console.connector_offsets_page import EDIT, EDIT_RUN, MOVE, RESET, RESET_RUN
from drover_gateway.console.connector_page import RESTART_TASK, RESTART_TASK_RUN
from drover_gateway.console.connectors_page import CONFIRM, RUN
from drover_worker.admin import figures
from drover_worker.shell import connector_figures
from tests.gateway.test_console_pages import assert_strict, stream, until, version_of
from tests.support.addresses import free_address
from tests.support.console_client import ConsoleClient, Page
from tests.support.fake_engine import SINK, SOURCE
from tests.support.gateways import RunningGateway, running_gateway
from tests.support.stored_topics import store_records
from tests.support.waiting import wait_until_async
from tests.support.worker_cluster import RunningWorker, WorkerCluster

CONFIG = {"connector.class": SOURCE, "tasks.max": "1"}
SCRIPT = "<img src=x onerror=alert(1)>"

pytestmark = pytest.mark.asyncio(loop_scope="module")


class World:
    """A worker, a gateway in front of it, and a browser without JavaScript."""

    def __init__(self, worker: RunningWorker, gateway: RunningGateway, data_file: Path) -> None:
        self.worker = worker
        self.data_file = data_file
        self.gateway = gateway
        self.console = ConsoleClient(gateway)

    async def create(self, name: str, **config: str) -> None:
        """Create a connector, and wait until its tasks run or have failed."""
        path = f"/connectors/{quote(name, safe='')}"
        settings = {**CONFIG, **config}
        found = await self.gateway.ask("PUT", f"{path}/config", json=settings)
        assert found.status_code == 201, found.text
        expected = "FAILED" if "fail.start" in config else "RUNNING"

        async def is_there() -> bool:
            status = (await self.gateway.ask("GET", f"{path}/status")).json()
            states = [each["state"] for each in status.get("tasks", ())]
            return states == [expected] * int(settings["tasks.max"])

        await wait_until_async(is_there)

    async def open(self, name: str, tab: str = "", **query: str) -> Page:
        fields = {"name": name, **({"tab": tab} if tab else {}), **query}
        return await self.console.get(f"/ui/connector?{urlencode(fields)}")

    async def shown(self, name: str, *texts: str, tab: str = "") -> Page:
        """The page, once it has these texts."""
        found: list[Page] = []

        async def has_all() -> bool:
            found.append(await self.open(name, tab))
            return all(each in found[-1].text for each in texts)

        await wait_until_async(has_all, describe=lambda: found[-1].text)
        return found[-1]

    async def asked(self, page: Page, action: str, text: str) -> Page:
        """The confirmation of an action, once it has this text: its states come from a stream."""
        found: list[Page] = []

        async def has_text() -> bool:
            found.append(await self.console.submit(page, CONFIRM, ("action", action)))
            return text in found[-1].text

        await wait_until_async(has_text, describe=lambda: found[-1].text)
        return found[-1]

    async def set_state(self, name: str, verb: str, state: str) -> None:
        """Pause, resume or stop, and wait until the connector has the state."""
        path = f"/connectors/{quote(name, safe='')}"
        await self.gateway.ask("PUT", f"{path}/{verb}")

        async def is_there() -> bool:
            status = (await self.gateway.ask("GET", f"{path}/status")).json()
            return bool(status["connector"]["state"] == state)

        await wait_until_async(is_there)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    directory = tmp_path_factory.mktemp("connector")
    async with WorkerCluster(directory) as cluster:
        (worker,) = await cluster.settled_workers(1)
        async with running_gateway([worker.address]) as gateway:
            yield World(worker, gateway, directory / DATA_FILE)


def retrying(message: str) -> activity_pb2.TaskActivity:
    activity = activity_pb2.TaskActivity(step=activity_pb2.TASK_STEP_WAITING_TO_RETRY)
    activity.step_time.FromMilliseconds(1_700_000_000_000)
    activity.retry.operation = "poll()"
    activity.retry.message = message
    activity.retry.failure_count = 3
    activity.retry.begin_time.FromMilliseconds(1_700_000_000_000)
    activity.retry.next_attempt_time.FromMilliseconds(32_500_000_000_000)
    return activity


async def test_it_shows_what_each_task_does_and_its_retries(world: World) -> None:
    await world.create("o-a", **{"tasks.max": "2"})
    counts = RecordCounts(read_count=1_234, written_count=1_200, dead_lettered_count=34)
    world.worker.engine.count(TaskId("o-a", 1), counts, lag_count=7)
    world.worker.engine.act(TaskId("o-a", 0), retrying("the API\nanswers 503"), 5)
    page = await world.shown("o-a", "waiting to retry, since 2023-11-14", "1,234", "34")
    assert page.status == 200
    assert "retries poll() , which failed 3 times since 2023-11-14 22:13:20 UTC" in page.text
    assert "next attempt 2999-" in page.text
    assert "the API answers 503" in page.text
    assert world.worker.address in page.text
    assert "drover connector describe o-a" in page.text
    assert "ConnectService/GetConnectorStatus" in page.text
    assert 'href="/ui/dead-letters?connector=o-a"' in page.html
    assert 'href="/ui/connector/edit?name=o-a"' in page.html
    assert_strict(page)
    dead = await world.open("o-a", "dead-letters")
    assert dead.history[0].headers["location"] == "/ui/dead-letters?connector=o-a"


async def test_a_failure_is_one_line_and_its_trace_is_folded(world: World) -> None:
    trace = f"Traceback (most recent call last):\n  File x\nOSError: no route to {SCRIPT}\n"
    await world.create("o-b", **{"fail.start": trace, "restart.policy": "never"})
    page = await world.shown("o-b", "failed once, the last time")
    assert f"OSError: no route to {SCRIPT}" in page.text
    assert "no automatic restart: restart.policy=never" in page.text
    folded = page.html.split("<summary>Trace of task 0</summary>")[1]
    assert "Traceback (most recent call last)" in folded
    assert_strict(page)
    page = await world.open("o-b", "overview")
    assert page.status == 200


async def test_names_with_markup_have_a_page_that_lists_link_to(world: World) -> None:
    for name in (SCRIPT, "a/b?c=d&e#f", "100%", "\u05e9 (1)", "'\"&;", "n" * 249):
        await world.create(name)
        href = f"/ui/connector?{urlencode({'name': name})}"

        async def is_linked(link: str = f'href="{href}"') -> bool:
            pages = [await world.console.get(each) for each in ("/ui/connectors", "/ui/")]
            return all(link in each.html for each in pages)

        await wait_until_async(is_linked)
        page = await world.console.get(href)
        assert page.status == 200
        assert name in page.text
        assert_strict(page)
        await world.gateway.ask("DELETE", f"/connectors/{quote(name, safe='')}")


async def test_an_action_is_explained_first_and_leads_back(world: World) -> None:
    await world.create("o-c")
    page = await world.open("o-c")
    asked = await world.asked(page, "pause", "1 task will pause")
    assert "drover connector pause o-c" in asked.text
    assert 'href="/ui/connector?name=o-c"' in asked.html
    done = await world.console.submit(asked, RUN)
    assert "o-c paused" in done.text
    assert 'href="/ui/connector?name=o-c"' in done.html
    await world.shown("o-c", "target paused")
    asked = await world.asked(page, "restart", "the connector and 1 task will restart")
    assert "drover connector restart o-c --include-tasks" in asked.text
    done = await world.console.submit(asked, RUN)
    assert "o-c restarting" in done.text
    asked = await world.asked(page, "delete", "config and history will be removed")
    await world.console.submit(asked, RUN)

    async def is_gone() -> bool:
        return (await world.open("o-c")).status == 404

    await wait_until_async(is_gone)
    gone = await world.open("o-c")
    assert "There is no connector with this name" in gone.text
    assert 'href="/ui/connector?name=o-c&amp;tab=history"' in gone.html
    assert_strict(gone)


async def test_actions_that_would_do_nothing_are_not_offered(world: World) -> None:
    def offered(page: Page) -> list[str]:
        return [value for name, value in page.form(CONFIRM).buttons if name == "action"]

    await world.create("o-n")
    for verb, state, newly, expected in (
        ("", "RUNNING", "", ["restart", "pause", "stop", "delete"]),
        ("pause", "PAUSED", "resume", ["restart", "resume", "stop", "delete"]),
        ("stop", "STOPPED", "pause", ["pause", "resume", "delete"]),
    ):
        page = await world.open("o-n")
        if verb:
            await world.set_state("o-n", verb, state)
            # the open page follows
            query = f"page=connector&name=o-n&since={version_of(page)}"
            async with stream(world.console, world.gateway, query) as events:
                await until(events, 'id="c-actions"', f'value="{newly}"')

        async def is_offered(wanted: list[str] = expected) -> bool:
            return offered(await world.open("o-n")) == wanted

        await wait_until_async(is_offered)
    refused = await world.console.submit(await world.open("o-n"), CONFIRM, ("action", "stop"))
    assert "nothing: it is stopped already" in refused.text
    assert "There is nothing to do." in refused.text


async def test_one_task_restarts_after_a_confirmation(world: World) -> None:
    await world.create("o-d", **{"tasks.max": "2"})
    run = world.worker.engine.running_tasks[TaskId("o-d", 1)]
    page = await world.open("o-d")
    asked = await world.console.submit(page, RESTART_TASK, ("task", "1"))
    assert "o-d, task 1 running it will restart from its committed offsets" in asked.text
    assert "drover connector restart o-d --task 1" in asked.text
    assert world.worker.engine.running_tasks[TaskId("o-d", 1)] == run
    done = await world.console.submit(asked, RESTART_TASK_RUN)
    assert "Task 1 restarts." in done.text

    def is_restarted() -> bool:
        return world.worker.engine.running_tasks.get(TaskId("o-d", 1)) not in (None, run)

    await wait_until_async(is_restarted)
    for task, status in (("2", 404), ("x", 400), ("-1", 400), ("", 400)):
        wrong = await world.console.submit(page, RESTART_TASK, ("task", task))
        assert wrong.status == status, task


async def test_its_page_follows_changes_and_steps(world: World) -> None:
    await world.create("o-e")
    page = await world.open("o-e")
    query = f"page=connector&name=o-e&since={version_of(page)}"
    async with stream(world.console, world.gateway, query) as events:
        assert (await anext(events))["event"] == "live"
        await world.gateway.ask("PUT", "/connectors/o-e/pause")
        await until(events, 'id="c-state"', "is-paused")
        # no status changes with a step: the page asks for it
        world.worker.engine.act(TaskId("o-e", 0), retrying("late"), 0)
        await until(events, 'id="c-notes"', "late")
        await world.gateway.ask("DELETE", "/connectors/o-e")
        await until(events, "was deleted")


async def test_a_page_without_a_name_or_workers_tells_why(world: World) -> None:
    for path in ("/ui/connector", "/ui/connector?name="):
        page = await world.console.get(path)
        assert (page.status, "No connector is named" in page.text) == (400, True)
    async with running_gateway([free_address()]) as alone:
        page = await ConsoleClient(alone).get("/ui/connector?name=x")
        assert page.status == 503
        assert "The cluster does not answer" in page.text


async def test_settings_are_grouped_and_secrets_masked(world: World) -> None:
    await world.create("g-a", padding="7", **{"db.login": "hunter2"})
    page = await world.open("g-a", "config")
    assert page.status == 200
    assert "hunter2" not in page.html
    assert "secret, masked" in page.text
    assert "padding 7" in page.text
    as_json, as_yaml = page.html.split('id="as-json"')[1], page.html.split('id="as-yaml"')[1]
    assert "&quot;padding&quot;: &quot;7&quot;" in as_json
    assert "connector.class: tests.IdleSource" in as_yaml
    assert "drover connector get g-a -o yaml" in page.text
    assert_strict(page)


async def test_topics_and_unknown_tabs(world: World) -> None:
    await world.create("t-a")
    page = await world.open("t-a", "topics")
    assert "It has used no topic yet" in page.text
    world.worker.engine.use_topics(TaskId("t-a", 0), "flights")
    page = await world.shown("t-a", "flights", tab="topics")
    assert 'href="/ui/topic?name=flights"' in page.html
    assert_strict(page)
    assert (await world.open("t-a", "no-such-tab")).status == 404
    for tab in ("config", "offsets", "history", "topics"):
        gone = await world.open("no-such-connector", tab)
        assert gone.status == 404, tab
        assert "no-such-connector" in gone.text


async def commit(world: World, name: str, partition: str, offset: str) -> None:
    call = world.worker.engine.commit(TaskId(name, 0), partition, offset)
    await wait_until_async(lambda: call in world.worker.engine.commit_results)


async def present_offsets(world: World, name: str) -> list[Any]:
    found = (await world.gateway.ask("GET", f"/connectors/{name}/offsets")).json()
    return sorted((json.dumps(each["partition"]), each["offset"]) for each in found["offsets"])


async def test_the_offsets_of_a_replay_are_explained(world: World) -> None:
    await world.create("e-d", **{"errors.deadletterqueue.topic.name": "e-dead"})
    await commit(world, "e-d", '{"kafka_topic":"e-dead","kafka_partition":0}', '{"kafka_offset":3}')
    page = await world.shown("e-d", "1 offset", tab="offsets")
    assert "e-dead is the dead letter queue: its offsets are how far" in page.text


async def test_offsets_are_edited_after_a_page_with_the_difference(world: World) -> None:
    await world.create("e-a")
    page = await world.open("e-a", "offsets")
    assert "There are no offsets yet" in page.text
    await commit(world, "e-a", '{"file":"a"}', '{"at":9007199254740993}')
    await commit(world, "e-a", '{"file":"b"}', '{"at":2}')
    page = await world.shown("e-a", "2 offsets", tab="offsets")
    assert "Offsets can be changed while the connector is stopped." in page.text
    assert EDIT not in page.html
    assert "dead letter queue" not in page.text
    asked = await world.console.submit(page, CONFIRM, ("action", "stop"))
    done = await world.console.submit(asked, RUN)
    assert "Back to the offsets of e-a" in done.text
    assert 'href="/ui/connector?name=e-a&amp;tab=offsets"' in done.html
    await world.shown("e-a", "The connector is stopped", tab="offsets")
    page = await world.open("e-a", "offsets")
    entered = [("entered", '{"at":9007199254740995}'), ("entered", "")]
    added = [("new_partition", '{"file":"c"}'), ("new_offset", '{"at":0.10}')]
    asked = await world.console.submit(page, EDIT, *entered, *added)
    assert "3 offsets will be written" in asked.text
    difference = 'file=a {"at":9007199254740993} {"at":9007199254740995}'
    assert difference in asked.text
    assert 'file=b {"at":2} none' in asked.text
    assert "AlterConnectorOffsets" in asked.text
    # nothing is written before the confirmation
    assert len(await present_offsets(world, "e-a")) == 2
    done = await world.console.submit(asked, EDIT_RUN)
    assert done.status == 200, done.text
    assert "The connector is stopped. It reads from its offsets when it is resumed." in done.text
    assert ("action", "resume") in done.form(CONFIRM).buttons
    assert await present_offsets(world, "e-a") == [
        ('{"file": "a"}', {"at": 9007199254740995}),
        ('{"file": "c"}', {"at": 0.1}),
    ]
    # the second operator's page shows the earlier offsets: the conflict changes nothing
    late = await world.console.submit(asked, EDIT_RUN)
    assert late.status == 409
    assert "Nothing was written" in late.text
    assert difference.rsplit(" ", 1)[0] in late.text
    assert len(await present_offsets(world, "e-a")) == 2
    for place, wrong in (("{", "{}"), ("[1]", "{}"), ('{"file":"d"}', "NaN"), ('{"x":1}', "[1]")):
        fields = [("new_partition", place), ("new_offset", wrong)]
        refused = await world.console.submit(page, EDIT, *entered, *fields)
        assert (refused.status, "cannot be read" in refused.text) == (400, True), (place, wrong)
    unchanged = [("entered", '{"at": 9007199254740993}'), ("entered", '{"at":2}')]
    nothing = await world.console.submit(page, EDIT, *unchanged)
    assert "Nothing was changed" in nothing.text


async def test_a_sinks_offset_is_a_number(world: World) -> None:
    await world.create("e-b", **{"connector.class": SINK, "topics": "t"})
    place = '{"kafka_topic":"t","kafka_partition":0}'
    await world.set_state("e-b", "stop", "STOPPED")
    page = await world.open("e-b", "offsets")
    added = [("new_partition", place), ("new_offset", "17")]
    asked = await world.console.submit(page, EDIT, *added)
    assert 'none {"kafka_offset":17}' in asked.text
    wrong = await world.console.submit(page, EDIT, added[0], ("new_offset", "-1"))
    assert wrong.status == 400
    assert "a whole number from 0" in wrong.text


def store_times(world: World, topic: str, partitions: Sequence[Sequence[int]]) -> None:
    """Records with these timestamps in milliseconds, by partition."""
    store = EmbeddedStore(world.data_file)
    for partition, times_ms in enumerate(partitions):
        rows = [{"value": b"1", "timestamp_ms": each} for each in times_ms]
        count = len(partitions)
        store_records(store, topic, rows, partition=partition, partition_count=count)
    store.close()


async def test_a_sink_is_moved_to_a_time_after_a_page_with_the_difference(world: World) -> None:
    day_ms, now_ms = 86_400_000, int(time.time() * 1000)
    late_ms = [now_ms - 2 * day_ms, now_ms - day_ms // 2, now_ms - 60_000]
    store_times(world, "moved", [late_ms, [1_700_000_000_000], [now_ms - 2 * day_ms]])
    await world.create("e-t", **{"connector.class": SINK, "topics": "moved"})
    for partition, position in ((0, 3), (1, 0)):
        place = f'{{"kafka_topic":"moved","kafka_partition":{partition}}}'
        await commit(world, "e-t", place, f'{{"kafka_offset":{position}}}')
    assert MOVE not in (await world.open("e-t", "offsets")).html
    await world.set_state("e-t", "stop", "STOPPED")
    page = await world.open("e-t", "offsets")
    assert page.form(MOVE).buttons == [("", ""), ("ago", "1h"), ("ago", "1d")]
    asked = await world.console.submit(page, MOVE, ("time", ""), ("ago", "1d"))
    assert asked.status == 200, asked.text
    end = "the end: no record is at or after the time"
    for row in (
        'kafka_partition=0 {"kafka_offset":3} {"kafka_offset":1} back, repeats 2',
        f'kafka_partition=1 {{"kafka_offset":0}} {{"kafka_offset":1}} ahead, skips 1; {end}',
        f'kafka_partition=2 none {{"kafka_offset":1}} new; {end}',
    ):
        assert f"kafka_topic=moved {row}" in asked.text
    assert "3 offsets will be written" in asked.text
    assert "drover connector offsets e-t --to-time" in asked.text
    assert_strict(asked)
    # nothing is written before the confirmation
    assert len(await present_offsets(world, "e-t")) == 2
    done = await world.console.submit(asked, EDIT_RUN)
    assert done.status == 200, done.text
    positions = [each["kafka_offset"] for _, each in await present_offsets(world, "e-t")]
    assert positions == [1, 1, 1]
    # the second operator's page shows the earlier offsets: the conflict changes nothing
    late = await world.console.submit(asked, EDIT_RUN)
    assert late.status == 409
    assert "It is now" in late.text
    page = await world.open("e-t", "offsets")
    asked = await world.console.submit(page, MOVE, ("time", "2023-11-14T22:13:20"))
    assert "3 offsets will be written" in asked.text
    assert "at or after 2023-11-14T22:13:20" in asked.text
    asked = await world.console.submit(page, MOVE, ("time", "9999-01-01T00:00"))
    assert "1 offset will be written" in asked.text
    assert 'kafka_partition=0 {"kafka_offset":1} {"kafka_offset":3} ahead, skips 2' in asked.text
    for wrong in (("time", ""), ("time", "soon"), ("time", "1969-01-01T00:00"), ("ago", "1y")):
        refused = await world.console.submit(page, MOVE, wrong)
        assert (refused.status, "The time cannot be read" in refused.text) == (400, True), wrong


async def test_a_sink_that_is_where_the_time_is_has_nothing_to_write(world: World) -> None:
    await world.create("e-u", **{"connector.class": SINK, "topics": "not-there"})
    await world.set_state("e-u", "stop", "STOPPED")
    page = await world.open("e-u", "offsets")
    asked = await world.console.submit(page, MOVE, ("ago", "1h"))
    assert "The sink has no topic partitions" in asked.text
    store_times(world, "not-there", [[5]])
    asked = await world.console.submit(page, MOVE, ("time", "2023-11-14T22:13"))
    done = await world.console.submit(asked, EDIT_RUN)
    assert done.status == 200, done.text
    asked = await world.console.submit(page, MOVE, ("time", "2023-11-14T22:13"))
    assert "Nothing to change." in asked.text
    assert "none; the end: no record is at or after the time" in asked.text
    await world.create("e-v")
    form = page.form(MOVE)
    fields = [(key, "e-v" if key == "name" else value) for key, value in form.fields]
    refused = await world.console.post(MOVE, [*fields, ("ago", "1h")])
    assert refused.status == 400
    assert "the offsets of a source have no times" in refused.text


async def test_offsets_are_reset_unless_they_have_changed(world: World) -> None:
    await world.create("e-c")
    await commit(world, "e-c", '{"file":"a"}', '{"at":1}')
    await world.set_state("e-c", "stop", "STOPPED")
    page = await world.open("e-c", "offsets")
    asked = await world.console.submit(page, RESET)
    assert 'file=a {"at":1} none' in asked.text
    assert "drover connector offsets e-c --reset" in asked.text
    changed = {"offsets": [{"partition": {"file": "a"}, "offset": {"at": 5}}]}
    path = "/connectors/e-c/offsets"
    assert (await world.gateway.ask("PATCH", path, json=changed)).status_code == 200
    late = await world.console.submit(asked, RESET_RUN)
    assert late.status == 409
    assert await present_offsets(world, "e-c") == [('{"file": "a"}', {"at": 5})]
    asked = await world.console.submit(await world.open("e-c", "offsets"), RESET)
    done = await world.console.submit(asked, RESET_RUN)
    assert done.status == 200, done.text
    assert await present_offsets(world, "e-c") == []


async def test_the_history_has_differences_and_a_rollback_that_finds_conflicts(
    world: World,
) -> None:
    await world.create("h-a", padding="1")
    path = "/connectors/h-a/config"
    second = {**CONFIG, "padding": "2", "topic": SCRIPT}
    assert (await world.gateway.ask("PUT", path, json=second)).status_code == 200
    await world.set_state("h-a", "pause", "PAUSED")
    page = await world.shown("h-a", "set the target state to paused", tab="history")
    assert "padding 1 2" in page.text
    assert f"topic none {SCRIPT}" in page.text
    assert_strict(page)
    (link,) = re.findall(r'href="(/ui/connector\?[^"]*revision=\d+)"', page.html)
    compared = await world.console.get(html.unescape(link))
    assert "padding 2 1" in compared.text
    assert f"topic {SCRIPT} none" in compared.text
    assert "expected_revision" in compared.text
    # another operator changes the config first
    third = {**CONFIG, "padding": "3"}
    assert (await world.gateway.ask("PUT", path, json=third)).status_code == 200
    late = await world.console.submit(compared, ROLLBACK)
    assert late.status == 409
    assert "Another user changed the connector" in late.text
    assert "padding 2 3" in late.text
    assert (await world.gateway.ask("GET", path)).json()["padding"] == "3"
    again = await world.console.get(html.unescape(link))
    assert "padding 3 1" in again.text
    done = await world.console.submit(again, ROLLBACK)
    assert "was rolled back" in done.text
    assert (await world.gateway.ask("GET", path)).json()["padding"] == "1"
    for query in ("revision=0", "revision=99999999"):
        missing = await world.console.get(f"/ui/connector?name=h-a&tab=history&{query}")
        assert missing.status == 404
    await world.gateway.ask("DELETE", "/connectors/h-a")
    page = await world.open("h-a", "history")
    assert "deleted the connector" in page.text
    # a deleted connector is created again from its history
    compared = await world.console.get(html.unescape(link))
    assert "created again" in compared.text
    done = await world.console.submit(compared, ROLLBACK)
    assert "was created again" in done.text


async def test_figures_are_plotted_with_words_and_a_table(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (connector_figures, figures):
        monkeypatch.setattr(module, "INTERVAL_MS", 200)
    await world.create("f-a")
    page = await world.open("f-a")
    assert "There are no figures yet" in page.text
    world.worker.engine.count(TaskId("f-a", 0), RecordCounts(read_count=10), lag_count=7)
    # at 200 ms, 10 records are 50 per second
    page = await world.shown("f-a", "least 0.0, greatest 50.0", "Lag last 7, least 7, greatest 7")
    assert 'role="img"' in page.html
    assert "A point for 10 s" in page.text
    assert "The figures as a table" in page.text
    assert "ConnectService/GetConnectorFigures" in page.text
    assert_strict(page)
    query = f"page=connector&name=f-a&since={version_of(page)}"
    async with stream(world.console, world.gateway, query) as events:
        world.worker.engine.count(TaskId("f-a", 0), RecordCounts(read_count=90), lag_count=6)
        await until(events, 'id="c-figures"', "<svg")


async def test_a_connector_object_that_fails_has_its_cause(world: World) -> None:
    await world.create("k-a")
    world.worker.engine.lacking.add(SOURCE)
    try:
        await world.gateway.ask("POST", "/connectors/k-a/restart")
        page = await world.shown("k-a", "no connector class 'tests.IdleSource' is installed")
        assert "The connector no connector class" in page.text
        assert "is-failed" in page.html
    finally:
        world.worker.engine.lacking.clear()


@pytest.mark.parametrize(
    ("action", "effect"),
    [
        ("restart", "the connector and 2 tasks will restart"),
        ("restart-failed", "task 1 will restart"),
    ],
)
async def test_a_failed_task_runs_again_and_the_page_agrees_with_itself(
    world: World, action: str, effect: str
) -> None:
    name = f"k-{action}"
    await world.create(name, **{"tasks.max": "2", "restart.policy": "never"})
    world.worker.engine.fail_task(TaskId(name, 1), "OSError: the disk is full")
    page = await world.shown(name, "Task 1 OSError: the disk is full")
    assert page.text.index("1 failed") < page.text.index("0 running")
    asked = await world.asked(page, action, effect)
    await world.console.submit(asked, RUN)
    page = await world.shown(name, "Tasks Task State", "0 running", "1 running")
    assert "is-failed" not in page.html


async def test_a_stopped_connector_has_a_page(world: World) -> None:
    await world.create("k-s")
    await world.set_state("k-s", "stop", "STOPPED")
    page = await world.shown("k-s", "It has no tasks", "target stopped")
    assert "is-stopped" in page.html
    await world.asked(page, "restart", "it is stopped, resume it instead")
