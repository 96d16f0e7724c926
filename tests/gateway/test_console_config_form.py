"""The config form of the console over real workers, with the settings of the real connectors."""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

import pytest
import pytest_asyncio

from drover.model.secrets import MASK
from drover_gateway.console.config_draft import SETTING, encoded
from drover_gateway.console.config_fields import setting_id
from drover_gateway.console.config_form_page import EDIT, NEW
from tests.support import worker_cluster
from tests.support.console_client import ConsoleClient
from tests.support.console_forms import fill_in, form_of
from tests.support.fake_engine import SOURCE
from tests.support.gateways import RunningGateway, running_gateway
from tests.support.plugin_engine import PluginEngine
from tests.support.worker_cluster import RunningWorker, WorkerCluster

SECRET = "s3cret-of-the-database"
SCRIPT = "</textarea><img src=x onerror=alert(1)>"
DATAGEN = {"connector.class": "DatagenSource", "topic": "t", "quickstart": "orders"}
WITH_SECRET = {"connector.class": SOURCE, "db.login": SECRET}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module", autouse=True)
def real_settings() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_cluster, "FakeEngine", PluginEngine)
        yield


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def worker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningWorker]:
    async with WorkerCluster(tmp_path_factory.mktemp("form")) as cluster:
        await cluster.settled_workers(1)
        yield cluster.workers[0]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(worker: RunningWorker) -> AsyncIterator[RunningGateway]:
    async with running_gateway([worker.address]) as running:
        yield running


@pytest.fixture
def console(gateway: RunningGateway) -> ConsoleClient:
    return ConsoleClient(gateway)


async def put(gateway: RunningGateway, name: str, config: Mapping[str, str]) -> None:
    path = f"/connectors/{quote(name, safe='')}/config"
    found = await gateway.ask("PUT", path, json=dict(config))
    assert found.ok, found.text


def stored(worker: RunningWorker, name: str) -> dict[str, str]:
    """The config as it is stored, with its secrets."""
    config = dict(worker.herder.context.view.config(name) or {})
    config.pop("name", None)
    return config


def field(setting: str) -> str:
    return SETTING + encoded(setting)


def edit(name: str, **more: str) -> str:
    return f"{EDIT}?{urlencode({'name': name, **more})}"


async def test_a_class_is_chosen_by_what_it_does(console: ConsoleClient) -> None:
    page = await console.get(f"{NEW}?name=orders")
    assert page.status == 200
    assert "Generates rows: orders, clicks, sensor readings" in page.text
    assert form_of(page, NEW).fields == [("name", "orders")]
    (form,) = [each for each in page.forms if each.action == NEW]
    assert ("class", "drover.connectors.datagen.source.DatagenSource") in form.buttons
    chosen = await console.get(f"{NEW}?name=orders&class=DatagenSource")
    assert dict(form_of(chosen, NEW).fields)["connector"] == "orders"


async def test_each_setting_has_its_documentation_default_and_values(
    console: ConsoleClient,
) -> None:
    page = await console.get(f"{NEW}?class=DatagenSource")
    form = form_of(page, NEW)
    assert form.options[field("quickstart")][:2] == ["", "orders"]
    assert "The maximum number of tasks for the connector's work." in page.text
    assert 'placeholder="1"' in page.html
    # nothing is filled in yet, so nothing is wrong yet
    assert "is required" not in page.text
    assert page.text.index("quickstart") < page.text.index("batch.max.records")
    validated = await fill_in(console, page, NEW, "validate")
    assert f'href="#{setting_id("quickstart")}-v"' in validated.html
    assert 'href="#connector-name"' in validated.html
    assert "is required" in validated.text


async def test_faults_are_at_their_fields_and_unknown_settings_stay(
    console: ConsoleClient, worker: RunningWorker
) -> None:
    page = await console.get(f"{NEW}?class=DatagenSource&name=faults")
    added = await fill_in(
        console, page, NEW, "check", {"new-name": "quikstart", "new-value": "orders"}
    )
    assert "did you mean" in added.text
    assert dict(form_of(added, NEW).fields)[field("quikstart")] == "orders"
    twice = await fill_in(console, added, NEW, "check", {"new-name": "quikstart", "new-value": "x"})
    assert "it has a field already" in twice.text
    page = await fill_in(console, twice, NEW, "apply", {field("tasks.max"): "-1"})
    assert page.status == 400
    assert f'id="{setting_id("tasks.max")}-n" class="notes"><p class="bad">must be' in page.html
    assert dict(form_of(page, NEW).fields)[field("tasks.max")] == "-1"
    assert stored(worker, "faults") == {}
    changes = {field("tasks.max"): "2", field("topic"): "t", field("quickstart"): "orders"}
    done = await fill_in(console, page, NEW, "apply", changes)
    assert "The connector was created." in done.text
    assert stored(worker, "faults") == {**DATAGEN, "tasks.max": "2", "quikstart": "orders"}


async def test_settings_of_transforms_appear_when_the_transform_is_named(
    console: ConsoleClient,
) -> None:
    page = await console.get(f"{NEW}?class=DatagenSource&name=t")
    page = await fill_in(console, page, NEW, "edit", {field("transforms"): "mask"})
    kind = field("transforms.mask.type")
    assert '<option value="MaskField$Value">' in page.html
    assert kind in dict(form_of(page, NEW).fields)
    page = await fill_in(console, page, NEW, "edit", {kind: "MaskField$Value"})
    assert "Transforms: mask" in page.text
    fields = field("transforms.mask.fields")
    part = await fill_in(console, page, NEW, "check", {fields: "a"}, ("part", "checks"))
    assert part.html.startswith('<div id="checks"')
    assert fields in part.html
    assert "form_token" not in part.html


async def test_a_secret_stays_on_the_server(
    console: ConsoleClient, gateway: RunningGateway, worker: RunningWorker
) -> None:
    """A stored one and one that was just typed, in fields, texts, plan and preview."""
    await put(gateway, "secret", WITH_SECRET)
    new = "another-s3cret"
    page = await console.get(edit("secret"))
    assert form_of(page, EDIT).kinds[field("db.login")] == "password"
    pages = [page, await console.get(edit("secret", notation="yaml"))]
    pages += [
        await fill_in(console, page, EDIT, button, {field("tasks.max"): "3"})
        for button in ("validate", "yaml", "json", "plan", "preview", "edit")
    ]
    typed = {field("db.token"): new, field("tasks.max"): "4"}
    plan = await fill_in(console, page, EDIT, "plan", typed)
    for button in ("yaml", "json", "edit"):
        pages.append(await fill_in(console, plan, EDIT, button))
        pages.append(await fill_in(console, pages[-1], EDIT, "validate"))
    for each in (*pages, plan):
        assert each.status == 200, each.text
        assert SECRET not in each.html
        assert new not in each.html
    done = await fill_in(console, plan, EDIT, "apply")
    assert "The config was written." in done.text
    assert stored(worker, "secret") == {**WITH_SECRET, "db.token": new, "tasks.max": "4"}
    # through a text and back to the fields
    page = await fill_in(console, await console.get(edit("secret")), EDIT, "json")
    text = dict(form_of(page, EDIT).fields)["text"] or ""
    assert json.loads(text)["config"]["db.login"] == MASK
    page = await fill_in(console, page, EDIT, "fields", {"text": text.replace(MASK, "n3w", 1)})
    assert "n3w" not in page.html
    done = await fill_in(console, page, EDIT, "apply", {"x": encoded("db.token")})
    assert stored(worker, "secret") == {
        "connector.class": SOURCE,
        "db.login": "n3w",
        "tasks.max": "4",
    }


async def test_every_value_comes_back_as_it_was(
    console: ConsoleClient, gateway: RunningGateway, worker: RunningWorker
) -> None:
    config = {
        **DATAGEN,
        "own.password": SECRET,
        "own.empty": "",
        "own.script": SCRIPT,
        "own.lines": " \n two lines & a tab\t\n",
        "own.crlf": "a\r\nb\rc",
        "own.controls": "\x01\x02\x7f",
        "own.long": "<b>ü</b>" * 100,
        "own.true": "TRUE",
        "own.number": "1.50",
        "own.null": "null",
        "own.spaces": "   ",
        "own.<i>\"'&": "quotes \"'",
        "own.mask": "*******",
        "own.emoji": "\U0001f600\u2028\ufeff",
        "own.placeholder": "${file:/run/x:password}",
        "own.url": f"jdbc:postgresql://u:{SECRET}@host/db",
        "transforms.m.replacement": MASK,
    }
    await put(gateway, "values", config)
    for steps in (["validate"], ["yaml", "fields", "json", "fields"], ["json", "yaml"], ["plan"]):
        page = await console.get(edit("values"))
        assert "img" not in page.tags
        for each in steps:
            page = await fill_in(console, page, EDIT, each)
            assert page.status == 200, page.text[:500]
            assert "img" not in page.tags
        done = await fill_in(console, page, EDIT, "apply")
        assert "had this config already" in done.text, steps
    assert stored(worker, "values") == config
