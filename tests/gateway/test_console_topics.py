"""The pages of topics over a real worker and a real store."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import pytest
import pytest_asyncio

from drover.dataplane.store import EmbeddedStore
from drover.model.dead_letters import DEAD_LETTER_TOPIC
from drover.model.ids import TaskId
from drover.security.development_ca import init_certificates
from drover.security.grants import token_sha256
from drover_gateway.console import record_reads
from drover_gateway.console.topics_page import list_html
from tests.support.addresses import free_address
from tests.support.console_client import ConsoleClient, Page
from tests.support.fake_engine import SINK, SOURCE
from tests.support.gateways import RunningGateway, grant_tokens, running_gateway
from tests.support.stored_topics import store_records
from tests.support.waiting import wait_until_async
from tests.support.worker_cluster import WorkerCluster

SCRIPT = "<img src=x onerror=alert(1)></code></pre><script>alert(2)</script>"
PART_MAX_CHARS = 65_536
#: 2026-01-31T12:00:00Z.
NOON_MS = 1_769_860_800_000

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WorkerCluster]:
    async with WorkerCluster(tmp_path_factory.mktemp("topics")) as running:
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


def topic_path(name: str, **fields: Any) -> str:
    return f"/ui/topic?{urlencode({'name': name, **fields})}"


def places(page: Page) -> list[str]:
    """The records of a page, in order."""
    return re.findall(r'<span class="place num">([^<]*)</span>', page.html)


def link(page: Page, label: str) -> str:
    """The target of a link."""
    found = re.search(rf'<a href="([^"]*)">{re.escape(label)}</a>', page.html)
    assert found, label
    return found.group(1).replace("&amp;", "&")


def assert_strict(page: Page) -> None:
    assert "img" not in page.tags
    assert page.tags.count("script") == 1
    assert "style" not in {*page.tags, *page.attributes}
    assert not [each for each in page.attributes if each.startswith("on")]


@pytest.fixture(autouse=True)
def _long_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time limit of a page does not decide on a busy machine."""
    monkeypatch.setattr(record_reads, "READ_S", 120.0)


async def test_without_topics_the_list_tells_what_to_do_first(console: ConsoleClient) -> None:
    empty = list_html([], "", 1, 1, 0, 0).results
    assert "There are no topics" in empty
    assert "drover connector create -f FILE" in empty
    missing = await console.get(topic_path("nothing"))
    assert (missing.status, "There is no such topic" in missing.text) == (404, True)


async def test_topics_are_listed_with_the_connectors_that_use_them(
    cluster: WorkerCluster, gateway: RunningGateway, console: ConsoleClient, store: EmbeddedStore
) -> None:
    store_records(store, "l-orders", [{"value": b"1"}, {"value": b"2"}], partition_count=3)
    store_records(store, "l-dead", [{"value": b"1"}])
    store_records(store, "__l-heartbeat", [{"value": b"1"}])
    source = {"connector.class": SOURCE, "tasks.max": "1"}
    sink = {"connector.class": SINK, "topics": "l-orders", DEAD_LETTER_TOPIC: "l-dead"}
    for name, config in (("l-source", source), ("l-sink", sink)):
        created = await gateway.ask("PUT", f"/connectors/{name}/config", json=config)
        assert created.status_code == 201
    engine = cluster.workers[0].engine
    for name in ("l-source", "l-sink"):
        await cluster.running(name, 1, cluster.workers[0])
        engine.use_topics(TaskId(name, 0), "l-orders")

    async def are_used() -> bool:
        topics = await asyncio.gather(
            *(gateway.ask("GET", f"/connectors/{n}/topics") for n in ("l-source", "l-sink"))
        )
        return all("l-orders" in each.text for each in topics)

    await wait_until_async(are_used)
    found: list[Page] = []

    async def is_complete() -> bool:
        """A page waits some seconds for what the workers know."""
        found.append(await console.get("/ui/topics?q=L-ORD"))
        links = [f'href="/ui/connector?name={name}"' for name in ("l-source", "l-sink")]
        return "l-orders 3 2" in found[-1].text and all(e in found[-1].html for e in links)

    await wait_until_async(is_complete, describe=lambda: found[-1].text)
    assert "1 of " in found[-1].text
    assert 'href="/ui/topic?name=l-orders"' in found[-1].html
    page = await console.get("/ui/topics")
    assert "internal by its name" in page.text
    assert 'href="/ui/dead-letters?connector=l-sink"' in page.html
    part = await console.get("/ui/topics?q=l-dead&part=results")
    assert part.html.startswith('<div id="results"')
    assert "No topic matches" in (await console.get("/ui/topics?q=no-such-topic")).text
    one = await console.get(topic_path("l-orders"))
    assert "writing it l-source" in one.text
    assert "reading it l-sink" in one.text
    for name in ("l-source", "l-sink"):
        await gateway.ask("DELETE", f"/connectors/{name}")


async def test_records_are_shown_with_types_and_null_is_not_a_text(
    console: ConsoleClient, store: EmbeddedStore
) -> None:
    big = 2**63
    store_records(
        store,
        "t-types",
        [
            {"key": b"7", "value": b'{"amount": 1.50, "big": %d}' % big, "timestamp_ms": 1_000},
            {"key": b"gone"},
            {"value": b"null"},
            {"value": b"\xff\xfe"},
            {"value": b"text", "headers": [("trace", b"a"), ("none", None)]},
        ],
    )
    page = await console.get(topic_path("t-types"))
    assert places(page) == [f"0:{n}" for n in range(5)]
    # numbers keep their digits
    assert "1.50" in page.text
    assert str(big) in page.text
    assert "1970-01-01 00:00:01.000 UTC" in page.text
    assert page.text.count("null: a tombstone") == 1
    assert "bytes in hexadecimal digits" in page.text
    assert "trace a" in page.text
    assert "none null" in page.text
    documents = [json.loads(each) for each in json_documents(page)]
    assert documents[1] == {
        "topic": "t-types", "partition": 0, "offset": 1, "timestamp": "1970-01-01T00:00:00Z",
        "key": "gone", "value": None, "headers": [],
    }  # fmt: skip
    assert documents[4]["headers"] == [
        {"key": "trace", "value": "a"},
        {"key": "none", "value": None},
    ]
    chosen = await console.get(topic_path("t-types", value="string"))
    assert '"null"' in chosen.text
    wrong = await console.get(topic_path("t-types", value="json", offset=3, partition=0))
    assert "Not decoded as chosen" in wrong.text


def json_documents(page: Page) -> list[str]:
    found = re.findall(r"As JSON</summary><pre[^>]*><code>(.*?)</code>", page.html, re.DOTALL)
    return [
        each.replace("&quot;", '"').replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        for each in found
    ]


async def test_pages_lead_to_older_and_newer_records(
    console: ConsoleClient, store: EmbeddedStore
) -> None:
    store_records(store, "t-pages", [{"value": b"%d" % n} for n in range(50)])
    store_records(store, "t-pages", [{"value": b"%d" % n} for n in range(50, 70)])
    path = topic_path("t-pages", partition=0, count=20)
    page = await console.get(path)
    assert places(page) == [f"0:{n}" for n in range(50, 70)]
    older = await console.get(link(page, "Older"))
    assert places(older) == [f"0:{n}" for n in range(30, 50)]
    oldest = await console.get(link(await console.get(link(older, "Older")), "Older"))
    assert places(oldest) == [f"0:{n}" for n in range(10)]
    assert ">Older<" not in oldest.html
    newer = await console.get(link(oldest, "Newer"))
    assert places(newer) == [f"0:{n}" for n in range(10, 30)]
    last = await console.get(topic_path("t-pages", partition=0, count=20, offset=60))
    assert places(last) == [f"0:{n}" for n in range(60, 70)]
    assert ">Newer<" not in last.html
    assert places(await console.get(link(last, "Last"))) == [f"0:{n}" for n in range(50, 70)]
    beyond = await console.get(topic_path("t-pages", partition=0, offset=1_000))
    assert "No records here" in beyond.text
    one = await console.get(topic_path("t-pages", partition=0, offset=7, count=1))
    assert places(one) == ["0:7"]


async def test_all_partitions_are_read_on_from_where_a_page_ended(
    console: ConsoleClient, store: EmbeddedStore
) -> None:
    for number in range(2):
        records = [{"value": b"%d" % n} for n in range(15)]
        store_records(store, "t-two", records, partition=number, partition_count=2)
    first = await console.get(topic_path("t-two", offset=0, count=20))
    second = await console.get(link(first, "Newer"))
    assert ">Newer<" not in second.html
    shown = [*places(first), *places(second)]
    assert len(places(first)) == 20
    assert sorted(shown) == sorted(f"{p}:{n}" for p in range(2) for n in range(15))


async def test_a_page_starts_at_a_time_and_leads_to_older_and_newer_records(
    console: ConsoleClient, store: EmbeddedStore
) -> None:
    times_ms = [NOON_MS + n * 1_000 for n in range(70)]
    # out of order: the lowest offset counts
    times_ms[20], times_ms[65] = NOON_MS + 30_250, NOON_MS
    rows = [{"value": b"%d" % n, "timestamp_ms": at} for n, at in enumerate(times_ms)]
    store_records(store, "t-time", rows)
    page = await console.get(topic_path("t-time", time="2026-01-31T12:00:30.250", count=20))
    assert places(page) == ["0:20", *(f"0:{n}" for n in range(21, 40))]
    assert "Records of partition 0 from 2026-01-31 12:00:30.250 UTC" in page.text
    assert "From time (UTC)" in page.text
    # the form has the time again, and the commands are the same read
    assert 'type="datetime-local" name="time" value="2026-01-31T12:00:30.250"' in page.html
    assert "--since 2026-01-31T12:00:30.250Z" in page.text
    assert "&quot;start_time&quot;: &quot;2026-01-31T12:00:30.250Z&quot;" in page.html
    assert places(await console.get(link(page, "Older"))) == [f"0:{n}" for n in range(20)]
    newer = await console.get(link(page, "Newer"))
    assert places(newer) == [f"0:{n}" for n in range(40, 60)]
    assert 'name="time" value=""' in newer.html
    for same in ("2026-01-31T12:01", "2026-01-31T12:01:00Z", "2026-01-31T13:01:00+01:00"):
        found = await console.get(topic_path("t-time", time=same, count=20))
        assert places(found) == [f"0:{n}" for n in range(60, 70)], same
        assert ">Newer<" not in found.html
    where = "timestamp>=2026-01-31T12:01:00Z"
    found = await console.get(topic_path("t-time", time="2026-01-31T12:01", where=where))
    assert "0:65" not in places(found)
    assert len(places(found)) == 9


async def test_without_a_record_so_late_a_page_leads_to_older_ones(
    console: ConsoleClient, store: EmbeddedStore
) -> None:
    for number in range(2):
        rows = [{"value": b"1", "timestamp_ms": NOON_MS + number}] * 3
        store_records(store, "t-late", rows, partition=number, partition_count=2)
    one = await console.get(topic_path("t-late", time="2026-02-01T00:00", partition=0))
    assert "No record is at or after this time" in one.text
    assert places(await console.get(link(one, "Older"))) == ["0:0", "0:1", "0:2"]
    both = await console.get(topic_path("t-late", time="9999-12-31T23:59:59.999"))
    assert places(both) == []
    older = await console.get(link(both, "Older in partition 1"))
    assert places(older) == ["1:0", "1:1", "1:2"]
    # a partition without such a record has older ones too
    some = await console.get(topic_path("t-late", time="2026-01-31T12:00:00.001", count=2))
    assert places(some) == ["1:0", "1:1"]
    assert places(await console.get(link(some, "Newer"))) == ["1:2"]
    assert places(await console.get(link(some, "Older in partition 0"))) == ["0:1", "0:2"]


async def test_new_records_are_followed_from_a_time_without_records(
    gateway: RunningGateway, console: ConsoleClient, store: EmbeddedStore
) -> None:
    store_records(store, "t-time-follow", [{"value": b"0"}])
    path = topic_path("t-time-follow", time="2026-01-31T12:00", follow="yes")
    page = await console.get(path)
    assert places(page) == []
    live = re.search(r'data-live="([^"]*)"', page.html)
    version = re.search(r'data-version="([^"]*)"', page.html)
    assert live is not None
    assert version is not None
    url = live[1].replace("&amp;", "&")
    # also without the version of the page
    for since in (quote(version[1]), ""):
        async with stream(console, gateway, f"{url}&since={since}") as events:
            assert (await anext(events))["event"] == "live"
            store_records(store, "t-time-follow", [{"value": b"1", "timestamp_ms": NOON_MS}])
            found, _ = await rows_until(events, 1)
            assert found[0] == "0:1"


async def test_a_search_for_a_time_that_takes_too_long_tells_what_to_do(
    console: ConsoleClient, store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_records(store, "t-long-time", [{"value": b"1"}])
    monkeypatch.setattr(record_reads, "READ_S", 0.0)
    page = await console.get(topic_path("t-long-time", time="2026-01-31T12:00"))
    assert "The command below has no time limit" in page.text


async def test_conditions_select_records_and_their_faults_are_listed(
    console: ConsoleClient, store: EmbeddedStore
) -> None:
    records = [{"value": b'{"n": %d}' % n, "headers": [("h", b"x")]} for n in range(500)]
    store_records(store, "t-where", records)
    where = "n>=3\r\nheaders.h=x"
    page = await console.get(topic_path("t-where", where=where, count=2, partition=0))
    assert places(page) == ["0:498", "0:499"]
    older = await console.get(link(page, "Older"))
    assert places(older) == ["0:496", "0:497"]
    few = await console.get(topic_path("t-where", where="n<2", partition=0))
    assert places(few) == ["0:0", "0:1"]
    assert "--where &#x27;n&lt;2&#x27;" in few.html
    none = await console.get(topic_path("t-where", where="n<0"))
    assert "No record meets the conditions here" in none.text
    wrong = await console.get(topic_path("t-where", where="n\nheaders.h~[", value="nonsense"))
    assert wrong.status == 200
    assert "The query is not valid" in wrong.text
    for field in ("query.conditions[0]", "query.conditions[1]", "value_converter"):
        assert field in wrong.text
    # what was entered stays in the form
    assert "headers.h~[" in wrong.text


async def test_a_search_that_takes_too_long_can_be_continued(
    console: ConsoleClient, store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_records(store, "t-long", [{"value": b"%d" % n} for n in range(10)])
    monkeypatch.setattr(record_reads, "READ_S", 0.0)
    page = await console.get(topic_path("t-long", partition=0, offset=0, where="value=9"))
    assert "No record was found in time" in page.text


async def test_odd_names_offsets_and_numbers_are_shown_as_they_are(
    console: ConsoleClient, store: EmbeddedStore
) -> None:
    number = b'{"id": 23958446825181076828, "n": -7210194211959421178, "e": 1e400}'
    store_records(store, "t.data.json", [{"value": number}, {"value": b""}, {"key": b""}])
    page = await console.get(topic_path("t.data.json"))
    for text in ("23958446825181076828", "-7210194211959421178", "1e400"):
        assert text in page.text, text
    # an offset that 32 bits do not hold
    far = await console.get(topic_path("t.data.json", partition=0, offset=5_659_373_885))
    assert (far.status, "No records here" in far.text) == (200, True)
    many = await console.get(topic_path("t.data.json", partition=7))
    assert (many.status, "query.partitions[0]" in many.text) == (200, True)


async def test_a_record_of_10_mb_is_cut_and_the_page_stays_small(
    console: ConsoleClient, store: EmbeddedStore
) -> None:
    size = 10_000_000
    store_records(store, "t-large", [{"value": b"x" * size}, {"value": b'{"a":[' + b"[" * 70_000}])
    store_records(store, "t-large", [{"value": b"y" * 60_000} for _ in range(40)])
    page = await console.get(topic_path("t-large", partition=0, offset=0, count=1))
    left = size + len('""') - PART_MAX_CHARS
    assert f"{left:,} more are not shown" in page.text
    assert len(page.html) < 400_000
    deep = await console.get(topic_path("t-large", partition=0, offset=1, count=1))
    assert deep.status == 200
    assert len(deep.html) < 1_500_000
    many = await console.get(topic_path("t-large"))
    assert len(places(many)) == 42
    assert "more characters" in many.text
    assert len(many.html) < 3_000_000


async def test_markup_in_topics_and_records_stays_text(
    console: ConsoleClient, store: EmbeddedStore
) -> None:
    attack = SCRIPT.encode()
    record = {"key": attack, "value": attack, "headers": [(SCRIPT, attack)]}
    store_records(store, "t-markup", [record, {"value": b'{"</code>": "\\u202e\x00\x1b"}'}])
    pages = [
        await console.get(topic_path("t-markup", where=SCRIPT, key=SCRIPT, connector="")),
        await console.get(topic_path("t-markup")),
        await console.get(topic_path(SCRIPT)),
        await console.get(f"/ui/topics?q={quote(SCRIPT)}"),
        await console.get(topic_path("t-markup", connector=SCRIPT)),
    ]
    for each in pages:
        assert_strict(each)
    assert SCRIPT in pages[0].text
    assert SCRIPT in pages[1].text


async def test_fields_that_cannot_be_read_are_refused(console: ConsoleClient) -> None:
    for fields in (
        {"partition": "x"},
        {"offset": "-1"},
        {"count": "1000000"},
        {"before": str(2**64)},
        {"at": "0:1,x"},
        {"time": "yesterday"},
        {"time": "2026-02-30T12:00"},
        {"time": "1769860800000"},
        {"time": "1969-12-31T23:59"},
        {"time": "2026-01-31T12:00", "offset": "1"},
        {"name": ""},
    ):
        page = await console.get(topic_path(**{"name": "t", **fields}))
        assert page.status == 400, fields
        assert "cannot be read" in page.text
        stream = await console.get(
            f"/ui/live?{urlencode({'page': 'topic', 'name': 't', **fields})}"
        )
        assert stream.status == 400, fields
    assert (await console.get("/ui/topics?page=x")).status == 200


@asynccontextmanager
async def stream(console: ConsoleClient, gateway: RunningGateway, url: str) -> AsyncIterator[Any]:
    cookies = {each.name: each.value or "" for each in console.session.cookies}
    async with (
        httpx.AsyncClient(cookies=cookies, timeout=60) as client,
        client.stream("GET", gateway.url + url) as response,
    ):
        assert response.status_code == 200

        async def events() -> AsyncIterator[dict[str, str]]:
            event: dict[str, str] = {}
            async for line in response.aiter_lines():
                if line:
                    key, _, value = line.partition(": ")
                    event[key] = f"{event[key]}\n{value}" if key in event else value
                elif event:
                    yield event
                    event = {}

        yield events()


async def rows_until(events: AsyncIterator[dict[str, str]], count: int) -> tuple[list[str], str]:
    """The places of followed records until there are ``count``, and the last id."""
    found: list[str] = []
    async with asyncio.timeout(60):
        async for event in events:
            if event["event"] == "rows":
                found += re.findall(r'<span class="place num">([^<]*)</span>', event["data"])
                skipped = re.search(r"([\d,]+) records before these are not shown", event["data"])
                if len(found) + int(skipped[1].replace(",", "") if skipped else 0) >= count:
                    return found, event["id"]
    raise AssertionError("the stream ended")


async def test_new_records_are_followed_and_none_is_missed_after_a_pause(
    gateway: RunningGateway, console: ConsoleClient, store: EmbeddedStore
) -> None:
    store_records(store, "t-follow", [{"value": b"0"}])
    page = await console.get(topic_path("t-follow", follow="yes"))
    live = re.search(r'data-live="([^"]*)"', page.html)
    version = re.search(r'data-version="([^"]*)"', page.html)
    assert live is not None
    assert version is not None
    url = live[1].replace("&amp;", "&")
    async with stream(console, gateway, f"{url}&since={quote(version[1])}") as events:
        assert (await anext(events))["event"] == "live"
        store_records(store, "t-follow", [{"value": b"1"}, {"value": b"2"}])
        found, last = await rows_until(events, 2)
        assert found == ["0:1", "0:2"]
    store_records(store, "t-follow", [{"value": b"%d" % n} for n in range(200)])
    async with stream(console, gateway, f"{url}&since={quote(last)}") as events:
        found, _ = await rows_until(events, 200)
        # the last ones of many
        assert found[-1] == "0:202"
        assert len(found) == record_reads.FOLLOWED_ROWS
    # an id with more lines would be an event with markup for the page
    hostile = quote("0:1;x\nevent: swap\ndata: <img src=x>")
    async with stream(console, gateway, f"{url}&since={hostile}") as events:
        assert await anext(events) == {"event": "live", "data": ""}
    page = await console.get(topic_path("t-follow", at="0:1;x\nevent: swap"))
    assert page.status == 400
    async with stream(console, gateway, "/ui/live?page=topic&name=no-such-topic") as events:
        event = [await anext(events), await anext(events)][1]
        assert event["event"] == "failed"
        assert "no-such-topic" in json.loads(event["data"])["message"]


async def test_without_workers_the_pages_tell_why() -> None:
    async with running_gateway([free_address()]) as alone:
        console = ConsoleClient(alone)
        for path in ("/ui/topics", topic_path("t")):
            page = await console.get(path)
            assert page.status == 503
            assert "The cluster does not answer" in page.text


async def test_a_viewer_sees_topics_and_is_told_the_role_for_records(tmp_path: Path) -> None:
    certs = tmp_path / "certs"
    init_certificates(certs)
    of_a = {"token_sha256": token_sha256("of-a"), "name": "a", "role": "operator"}
    grant_tokens(certs, {**of_a, "connectors": ["a-*"]})
    async with WorkerCluster(tmp_path, certificates=certs) as cluster:
        await cluster.settled_workers(1)
        store_records(cluster.store(), "t-roles", [{"value": b"secret-7"}])
        async with running_gateway([cluster.workers[0].address], certificates=certs) as gateway:
            viewer = ConsoleClient(gateway)
            assert "/ui/sign-in" in (await viewer.get("/ui/topics")).url
            await viewer.sign_in("viewer")
            assert "t-roles" in (await viewer.get("/ui/topics")).text
            page = await viewer.get(topic_path("t-roles"))
            assert page.status == 200
            assert "Records need another role" in page.text
            assert "operator" in page.text
            assert "secret-7" not in page.text
            operator = ConsoleClient(gateway)
            await operator.sign_in("operator")
            assert "secret-7" in (await operator.get(topic_path("t-roles"))).text
            limited = ConsoleClient(gateway)
            page = await limited.get("/ui/sign-in")
            await limited.submit(page, "/ui/sign-in", ("token", "of-a"))
            forbidden = await limited.get("/ui/topics")
            assert (forbidden.status, "The role is missing" in forbidden.text) == (403, True)
