"""The pages of dead letters over a real worker and a real store."""

import html
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
import pytest_asyncio

from drover.client import ConnectClient
from drover.dataplane.store import EmbeddedStore
from drover.model.dead_letters import DEAD_LETTER_TOPIC, REPLAY, REPLAY_ID, REPLAY_WHERE
from drover.model.ids import TaskId
from drover.model.offsets import TaskOffsets, TopicPartition
from drover.model.sink_offsets import sink_offset
from drover.model.sink_outputs import SinkMetadata, SinkOutput
from drover.security.development_ca import init_certificates
from drover.security.grants import token_sha256
from drover_gateway.console import dead_letters
from drover_gateway.console.dead_letters_page import connectors_html
from drover_gateway.console.letter_groups import CHECK, RUN
from tests.support.addresses import free_address
from tests.support.console_client import ConsoleClient, Page
from tests.support.fake_engine import SINK
from tests.support.gateways import RunningGateway, grant_tokens, running_gateway
from tests.support.stored_topics import store_records
from tests.support.waiting import wait_until_async
from tests.support.worker_cluster import WorkerCluster

SCRIPT = "<img src=x onerror=alert(1)></code></pre><script>alert(2)</script>"
PREFIX = "__connect.errors."
TRACE = "Traceback of the error"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WorkerCluster]:
    async with WorkerCluster(tmp_path_factory.mktemp("letters")) as running:
        await running.settled_workers(1)
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(cluster: WorkerCluster) -> AsyncIterator[RunningGateway]:
    async with running_gateway([cluster.workers[0].address]) as running:
        yield running


@pytest.fixture
def console(gateway: RunningGateway) -> ConsoleClient:
    return ConsoleClient(gateway)


@pytest.fixture
def store(cluster: WorkerCluster) -> EmbeddedStore:
    return cluster.store()


@pytest.fixture
def client(cluster: WorkerCluster) -> ConnectClient:
    channel = cluster.workers[0].channel
    assert channel is not None
    return ConnectClient(channel)


async def create(gateway: RunningGateway, name: str, role: str = "") -> None:
    """A sink whose dead letters are in the topic ``NAME-dead``."""
    config = {"connector.class": SINK, "topics": "t", DEAD_LETTER_TOPIC: f"{name}-dead"}
    found = await gateway.ask("PUT", f"/connectors/{name}/config", json=config, role=role)
    assert found.status_code == 201


def store_letters(
    store: EmbeddedStore, name: str, *errors: str, stage: str = "VALUE_CONVERTER", **more: str
) -> None:
    """A dead letter for each error class."""
    letters = []
    for number, error in enumerate(errors):
        about = {
            "topic": "t", "partition": "0", "offset": str(100 + number), "stage": stage,
            "exception.class.name": error, "exception.message": f"no {error}",
            "exception.stacktrace": TRACE, "connector.name": name, **more,
        }  # fmt: skip
        headers = [(f"{PREFIX}{key}", each.encode()) for key, each in about.items()]
        value = b'{"n": %d}' % number
        letters.append({"key": b"k", "value": value, "headers": [("own", b"1"), *headers]})
    store_records(store, f"{name}-dead", letters)


def letters_path(name: str, **fields: str) -> str:
    return f"/ui/dead-letters?{urlencode({'connector': name, **fields})}"


def assert_strict(page: Page) -> None:
    assert "img" not in page.tags
    assert page.tags.count("script") == 1
    assert "style" not in {*page.tags, *page.attributes}
    assert not [each for each in page.attributes if each.startswith("on")]


async def commit_replayed(
    store: EmbeddedStore, client: ConnectClient, name: str, offset: int
) -> None:
    """Commit the progress of the replay, as a task of the connector does."""
    config = (await client.get_connector(name)).config
    own, _, topic_id = config[REPLAY_ID].partition(":")
    task = TaskId(name, 9)
    claim = store.claim_task(task, generation=1_000, owner="tests", request_id="")
    metadata = SinkMetadata(output=SinkOutput(topic_id, own)).text
    at = sink_offset(TopicPartition(f"{name}-dead", 0), offset, metadata)
    store.commit_offsets([TaskOffsets(task, claim, [at])])


async def test_without_dead_letters_the_pages_tell_what_to_do(
    gateway: RunningGateway, console: ConsoleClient
) -> None:
    empty = connectors_html([])
    assert "No connector has a dead letter queue" in empty
    assert "errors.deadletterqueue.context.headers.enable" in empty
    await create(gateway, "e-sink")

    async def is_listed() -> bool:
        page = await console.get("/ui/dead-letters")
        return 'href="/ui/dead-letters?connector=e-sink"' in page.html

    await wait_until_async(is_listed)
    page = await console.get(letters_path("e-sink"))
    assert "no record has failed" in page.text
    assert 'href="/ui/connector?name=e-sink&amp;tab=offsets"' in page.html
    assert (await console.get(letters_path("no-such-one"))).status == 404
    config = {"connector.class": SINK, "topics": "t"}
    await gateway.ask("PUT", "/connectors/e-plain/config", json=config)
    page = await console.get(letters_path("e-plain"))
    assert (page.status, "has no dead letter queue" in page.text) == (404, True)
    assert 'href="/ui/connector/edit?name=e-plain"' in page.html


async def test_dead_letters_are_grouped_by_cause_and_one_shows_what_failed(
    gateway: RunningGateway, console: ConsoleClient, store: EmbeddedStore
) -> None:
    await create(gateway, "g-sink")
    store_letters(store, "g-sink", "DataError", "DataError", "ValueError", "Bob's")
    store_letters(store, "g-sink", "DataError", **{"connector.name": "another"})
    store_records(store, "g-sink-dead", [{"value": b"1"}])
    page = await console.get(letters_path("g-sink"))
    rows = re.findall(r"<tr><th scope=\"row\">(.*?)</tr>", page.html)
    counts = [re.findall(r'<td class="num">(\d+)</td>', each) for each in rows]
    assert counts == [["2", "0", "0", "0", "0"], *[["1", "0", "0", "0", "0"]] * 3]
    assert "DataError" in rows[0]
    assert "no DataError" in rows[0]
    assert "another" not in page.text
    # an apostrophe in a condition
    page = await console.get(letters_path("g-sink", stage="VALUE_CONVERTER", cause="Bob's"))
    assert "t-0@103" in page.text
    assert "0:3" in page.text
    page = await console.get(letters_path("g-sink", stage="", cause=""))
    assert "0:5" in page.text
    letter = await console.get(letters_path("g-sink", letter="0:0"))
    for text in ("VALUE_CONVERTER", "no DataError", "t-0@100", TRACE, '"n": 0', "own 1", "open"):
        assert text in letter.text, text
    assert (await console.get(letters_path("g-sink", letter="0:77"))).status == 404
    assert (await console.get(letters_path("g-sink", letter="5:0"))).status == 404
    assert (await console.get(letters_path("g-sink", letter="x"))).status == 400


@pytest.mark.parametrize("missing", ["exception.class.name", "stage"])
async def test_a_cause_of_which_a_part_is_missing_lists_and_replays_its_dead_letters(
    gateway: RunningGateway, console: ConsoleClient, store: EmbeddedStore, missing: str
) -> None:
    name = f"p-{missing.partition('.')[0]}"
    await create(gateway, name)
    about = {"stage": "TASK_PUT", "exception.class.name": "DataError", "connector.name": name}
    headers = [(f"{PREFIX}{key}", text.encode()) for key, text in about.items() if key != missing]
    store_records(store, f"{name}-dead", [{"value": b"1", "headers": headers}] * 3)
    store_letters(store, name, "DataError", stage="TASK_PUT")
    page = await console.get(letters_path(name))
    (link,) = [each for each in re.findall(r'href="([^"]+)"', page.html) if "=&" in f"{each}&"]
    cause = await console.get(html.unescape(link))
    letters = [value for key, value in cause.form(CHECK).checkboxes if key == "letter"]
    assert letters == ["0:2", "0:1", "0:0"]
    asked = await console.submit(cause, CHECK, ("action", "replay"), ("every", "cause"))
    assert "Of 3 dead letters, 3 would be replayed." in asked.text
    reason = ("reason", "a test")
    discard = (("action", "discard"), ("every", "cause"), reason)
    asked = await console.submit(cause, CHECK, *discard)
    assert "3 discarded." in (await console.submit(asked, RUN)).text
    again = await console.submit(cause, CHECK, *discard)
    assert (again.status, "No dead letter of this cause is open." in again.text) == (400, True)


async def test_dead_letters_that_are_too_large_together_are_left_out_with_a_note(
    gateway: RunningGateway,
    console: ConsoleClient,
    store: EmbeddedStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dead_letters, "BYTES_MAX", 150_000)
    await create(gateway, "l-sink")
    store_letters(store, "l-sink", "FirstError", **{"exception.stacktrace": "x" * 60_000})
    for error in ("SecondError", "LastError"):
        store_letters(store, "l-sink", error, **{"exception.stacktrace": "x" * 60_000})
    page = await console.get(letters_path("l-sink"))
    assert "The last 2 dead letters are counted; there are more." in page.text
    assert "FirstError" not in page.text
    assert "LastError" in page.text


async def test_a_cause_is_replayed_after_a_dry_run_with_progress(
    gateway: RunningGateway, console: ConsoleClient, store: EmbeddedStore, client: ConnectClient
) -> None:
    await create(gateway, "r-sink")
    store_letters(store, "r-sink", "DataError", "ValueError", "DataError")
    page = await console.get(letters_path("r-sink", stage="VALUE_CONVERTER", cause="DataError"))
    assert [value for name, value in page.form(CHECK).checkboxes if name == "letter"] == [
        "0:2",
        "0:0",
    ]
    replay = ("action", "replay")
    nothing = await console.submit(page, CHECK, replay)
    assert (nothing.status, "Nothing is selected" in nothing.text) == (400, True)
    asked = await console.submit(page, CHECK, replay, ("every", "cause"))
    assert "would be replayed" in asked.text
    assert "What would be written" in asked.text
    assert "drover dlq replay r-sink --where" in asked.text
    # nothing happens before the confirmation
    assert REPLAY not in (await client.get_connector("r-sink")).config
    progress = await console.submit(asked, RUN)
    assert progress.url.startswith(f"{gateway.url}/ui/dead-letters/progress?connector=r-sink")
    assert "0 of 3 replayed" in progress.text
    assert progress.headers["refresh"] == "2"
    config = (await client.get_connector("r-sink")).config
    assert "exception.class.name='DataError'" in config[REPLAY_WHERE]
    # a second click of the same button changes nothing
    revision = (await client.get_connector("r-sink")).revision
    await console.submit(asked, RUN)
    assert (await client.get_connector("r-sink")).revision == revision
    await commit_replayed(store, client, "r-sink", 2)
    path = progress.url.removeprefix(gateway.url)
    assert "2 of 3 replayed" in (await console.get(path)).text
    # one of them fails again
    store_letters(store, "r-sink", "NewError")
    await commit_replayed(store, client, "r-sink", 3)
    done = await console.get(path)
    assert "All 3 replayed." in done.text
    assert "refresh" not in done.headers
    assert "DataError VALUE_CONVERTER 2 0" in done.text
    assert "New dead letters since the start NewError 1" in done.text


async def test_single_dead_letters_are_replayed_and_discarded_with_a_reason(
    gateway: RunningGateway, console: ConsoleClient, store: EmbeddedStore, client: ConnectClient
) -> None:
    await create(gateway, "s-sink")
    store_letters(store, "s-sink", *["DataError"] * 5)
    page = await console.get(letters_path("s-sink", stage="VALUE_CONVERTER", cause="DataError"))
    chosen = [("letter", "0:1"), ("letter", "0:3")]
    asked = await console.submit(page, CHECK, ("action", "replay"), ("force", "yes"), *chosen)
    assert "Of 2 dead letters, 2 would be replayed." in asked.text
    assert "--letter 0:1 --letter 0:3 --force" in asked.text
    await console.submit(asked, RUN)
    assert (await client.get_connector("s-sink")).config[REPLAY] == "0:1-2,0:3-4"
    await commit_replayed(store, client, "s-sink", 4)
    letter = await console.get(letters_path("s-sink", letter="0:4"))
    forms = [each for each in letter.forms if each.action == CHECK]
    (form,) = [each for each in forms if ("action", "replay") not in each.fields]
    discard = [*form.fields, ("action", "discard")]
    without = await console.post(CHECK, discard)
    assert (without.status, "The reason is missing" in without.text) == (400, True)
    reason = ("reason", f"a test row {SCRIPT}")
    asked = await console.post(CHECK, [*discard, reason])
    assert "Of the dead letter 0:4, 1 would be discarded" in asked.text
    assert_strict(asked)
    done = await console.submit(asked, RUN)
    assert "1 discarded." in done.text
    page = await console.get(letters_path("s-sink"))
    assert "DataError VALUE_CONVERTER 2 0 2 0 1" in page.text
    # what is no longer open cannot be selected
    page = await console.get(letters_path("s-sink", stage="VALUE_CONVERTER", cause="DataError"))
    letters = [value for name, value in page.form(CHECK).checkboxes if name == "letter"]
    assert letters == ["0:2", "0:0"]
    history = await client.get_connector_history("s-sink")
    assert any("a test row" in str(each) for each in history)
    for fields in (
        [("action", "explode"), ("every", "all")],
        [("action", "replay"), ("letter", "0:99")],
        [("action", "replay"), ("letter", "x:y")],
        [("action", "replay"), ("every", "all"), ("connector", "")],
    ):
        found = await console.post(CHECK, [*page.form(CHECK).fields[:1], *fields])
        assert found.status in (400, 404), fields


async def test_a_dead_letter_is_repaired_and_replayed(
    gateway: RunningGateway, console: ConsoleClient, store: EmbeddedStore, client: ConnectClient
) -> None:
    await create(gateway, "x-sink")
    schema = {"type": "struct", "fields": [{"field": "id", "type": "int32"}], "optional": False}
    value = json.dumps({"schema": schema, "payload": {"id": 1}}).encode()
    headers = [("own", b"1"), (f"{PREFIX}topic", b"t"), (f"{PREFIX}stage", b"TASK_PUT")]
    headers.append((f"{PREFIX}exception.class.name", b"E"))
    store_records(store, "x-sink-dead", [{"key": b"k", "value": value, "headers": headers}])
    page = await console.get(letters_path("x-sink", letter="0:0"))
    (form,) = [each for each in page.forms if ("action", "replay") in each.fields]

    async def check(*fields: tuple[str, str]) -> Page:
        return await console.post(CHECK, [*form.fields, *fields])

    wrong = await check(("key", '"k"'), ("value", f'{{"id": "{SCRIPT}", "more": 1}}'))
    assert wrong.status == 400
    assert "value: id: must be of type int32" in wrong.text
    assert "value: more: is not a field of the schema" in wrong.text
    # what was entered is still there, and is text
    assert SCRIPT in html.unescape(re.sub(r"\s+", " ", wrong.html))
    assert_strict(wrong)
    # a part is changed only if it differs from what was shown, apart from line ends
    asked = await check(("key", '"k"'), ("value", '{\r\n  "id": 1\r\n}'))
    assert "Of the dead letter 0:0, 1 would be replayed." in asked.text
    asked = await check(("key", '"k"'), ("value", '{"id": 2}'))
    assert "Of the repaired dead letter 0:0, 1 would be replayed." in asked.text
    assert "drover dlq replay x-sink --repair repairs.jsonl" in asked.text
    assert await ends(client, "x-sink-dead") == 1
    for _ in range(2):
        progress = await console.submit(asked, RUN)
        assert "0 of 1 replayed" in progress.text
        assert "New dead letters" not in progress.text
    assert await ends(client, "x-sink-dead") == 2
    done = await console.get(letters_path("x-sink", letter="0:1"))
    for text in ('"id": 2', "drover.repaired.by", "replaying", "repairs 0:0"):
        assert text in done.text, text
    assert f'href="{html.escape(letters_path("x-sink", letter="0:0"))}"' in done.html
    for path in (
        letters_path("x-sink", letter="0:0"),
        letters_path("x-sink", stage="TASK_PUT", cause="E"),
    ):
        original = await console.get(path)
        assert "repaired as 0:1" in original.text
        assert f'href="{html.escape(letters_path("x-sink", letter="0:1"))}"' in original.html
        assert "discarded" not in original.text


async def ends(client: ConnectClient, topic: str) -> int:
    (partition,) = (await client.describe_topic(topic)).partitions
    return partition.end_offset


async def test_markup_in_dead_letters_stays_text(
    gateway: RunningGateway, console: ConsoleClient, store: EmbeddedStore
) -> None:
    await create(gateway, "m-sink")
    about = {"exception.message": SCRIPT, "exception.stacktrace": SCRIPT, "topic": SCRIPT}
    store_letters(store, "m-sink", SCRIPT, stage=SCRIPT, **about)
    for path in (
        letters_path("m-sink"),
        letters_path("m-sink", stage=SCRIPT, cause=SCRIPT),
        letters_path("m-sink", letter="0:0"),
        letters_path(SCRIPT),
        f"/ui/dead-letters/progress?{urlencode({'connector': 'm-sink', 'ranges': SCRIPT})}",
    ):
        page = await console.get(path)
        assert_strict(page)
    assert SCRIPT in (await console.get(letters_path("m-sink", letter="0:0"))).text


async def test_without_workers_the_pages_tell_why() -> None:
    async with running_gateway([free_address()]) as alone:
        console = ConsoleClient(alone)
        for path in ("/ui/dead-letters", letters_path("a")):
            page = await console.get(path)
            assert page.status == 503
            assert "The cluster does not answer" in page.text


async def test_roles_decide_who_reads_and_replays(tmp_path: Path) -> None:
    certs = tmp_path / "certs"
    init_certificates(certs)
    of_a = {"token_sha256": token_sha256("of-a"), "name": "a", "role": "operator"}
    grant_tokens(certs, {**of_a, "connectors": ["a-*"]})
    async with WorkerCluster(tmp_path, certificates=certs) as cluster:
        await cluster.settled_workers(1)
        store = cluster.store()
        async with running_gateway(
            [cluster.workers[0].address], certificates=certs, gateway_session_keys="k" * 32
        ) as gateway:
            for name in ("a-sink", "b-sink"):
                await create(gateway, name, role="admin")
                store_letters(store, name, "SecretError")
            viewer = ConsoleClient(gateway)
            await viewer.sign_in("viewer")
            page = await viewer.get(letters_path("a-sink"))
            assert "need another role" in page.text
            assert "SecretError" not in page.text
            all_of = [("every", "all"), ("action", "replay")]
            assert "Replay" not in page.text
            for path in (CHECK, RUN):
                refused = await viewer.post_by_hand(path, ("connector", "a-sink"), *all_of)
                assert (refused.status, "The role is missing" in refused.text) == (403, True)
            # an operator of the connector alone reads no records of topics, and may replay
            limited = ConsoleClient(gateway)
            page = await limited.get("/ui/sign-in")
            await limited.submit(page, "/ui/sign-in", ("token", "of-a"))
            page = await limited.get(letters_path("a-sink"))
            assert "SecretError" not in page.text
            asked = await limited.submit(page, CHECK, *all_of)
            assert "1 would be replayed" in asked.text
            assert (await limited.submit(asked, RUN)).status == 200
            assert (await limited.get(letters_path("b-sink"))).status in (403, 404)
