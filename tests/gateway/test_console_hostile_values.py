"""Values that no page offers: each field of each query and form is answered, never by a 500."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping

import pytest
import pytest_asyncio

from tests.support.console_client import ConsoleClient, Page
from tests.support.console_walk import FORMS, SCRIPT, World, places, walked_world

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(1_800)]

#: Numbers, texts that a parser may refuse, ends of lines, other alphabets, and deep documents.
VALUES: Mapping[str, str] = {
    "digits": "9" * 5_000,
    "negative": "-1",
    "superscript": "²",
    "deep": "[" * 3_000,
    "deep object": '{"a":' * 500,
    "not a number": "NaN",
    "infinite": "1e999999999",
    "nul": "a\x00b",
    "ends of lines": "a\r\nset-cookie: x=1\r\n\r\n",
    "script": SCRIPT,
    "proto": '{"__proto__": {"a": "1"}, "constructor": null}',
    "path": "../../../etc/passwd",
    "places": "0:9223372036854775808-0:x",
    "alias bomb": "a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]",
    "astral": "\U0001f4a5\u202e" * 100,
}
#: In ``make test``; ``make test-faults ONLY=console`` sends all.
FEW = ("digits", "script")
#: Fields that many pages read, besides the ones of the walk.
_COMMON = ("q", "page", "at", "since", "time", "part", "next")
#: Requests wait in threads of the executor that the cluster in this process needs too.
_AT_A_TIME = 2
#: What a page answers to a value that it does not accept.
_ACCEPTED = {200, 303, 400, 403, 404, 405, 409, 413, 415}


each_value = pytest.mark.parametrize(
    "value",
    [
        each if each in FEW else pytest.param(each, marks=pytest.mark.faults("console"))
        for each in VALUES
    ],
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with walked_world(tmp_path_factory.mktemp("hostile")) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def signed_in(world: World) -> ConsoleClient:
    client = ConsoleClient(world.gateway)
    await client.sign_in("admin")
    return client


def faults_of(page: Page) -> Iterator[str]:
    if page.status not in _ACCEPTED:
        yield f"status {page.status}: {page.text[:200]}"
    if "img" in page.tags or page.tags.count("script") > 1:
        yield "markup of a value is part of the page"
    if "x=1" in str(page.headers.get("set-cookie", "")) or "Traceback (most" in page.text:
        yield "a value reached the headers, or the cause of a defect the page"


@each_value
async def test_no_value_of_a_query_makes_a_500(
    world: World, signed_in: ConsoleClient, value: str
) -> None:
    queries: dict[str, dict[str, str]] = {}
    for each in places():
        if each.status == 200:
            queries.setdefault(each.path, {}).update(world.filled(each.query))
    limit = asyncio.Semaphore(_AT_A_TIME)

    async def fault(path: str, name: str) -> list[str]:
        query = {**queries[path], name: VALUES[value]}
        async with limit:
            page = await signed_in.get(path, params=query, allow_redirects=False)
        return [f"{path} {name}: {each}" for each in faults_of(page)]

    tasks = [fault(path, name) for path in queries for name in {*queries[path], *_COMMON}]
    found = [each for faults in await asyncio.gather(*tasks) for each in faults]
    assert found == []


@each_value
async def test_no_value_of_a_form_makes_a_500(
    world: World, signed_in: ConsoleClient, value: str
) -> None:
    limit = asyncio.Semaphore(_AT_A_TIME)

    async def fault(path: str, fields: Mapping[str, str], name: str) -> list[str]:
        sent = [(key, text) for key, text in fields.items() if key != name]
        async with limit:
            page = await signed_in.post_by_hand(path, *sent, (name, VALUES[value]))
        return [f"{path} {name}: {each}" for each in faults_of(page)]

    forms = {
        each.path: world.filled(each.fields)
        for each in FORMS
        # these would end what the others need
        if each.fields.get("action") not in ("delete", "drain")
    }
    tasks = [
        fault(path, fields, name)
        for path, fields in forms.items()
        for name in {*fields, "filter", "of"} - {"name"}
    ]
    found = [each for faults in await asyncio.gather(*tasks) for each in faults]
    assert found == []
