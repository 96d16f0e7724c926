"""The config form of the console over real workers, with the settings of the real connectors."""

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
import pytest_asyncio

from drover.model.secrets import MASK
from drover.security import renewed
from drover.security.development_ca import init_certificates
from drover_gateway.console.config_draft import SETTING, encoded
from drover_gateway.console.config_fields import setting_id
from drover_gateway.console.config_form_page import EDIT, NEW
from tests.support import worker_cluster
from tests.support.addresses import free_address
from tests.support.console_client import ConsoleClient, Page
from tests.support.console_forms import fill_in, form_of
from tests.support.fake_engine import SOURCE
from tests.support.gateways import RunningGateway, grant_tokens, running_gateway
from tests.support.plugin_engine import FAULTY, PluginEngine
from tests.support.waiting import wait_until_async
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


async def test_a_typed_secret_stays_hidden_when_the_class_is_changed(
    console: ConsoleClient, gateway: RunningGateway
) -> None:
    """The new class does not define the setting as a password."""
    await put(gateway, "other-class", WITH_SECRET)
    page = await console.get(edit("other-class"))
    page = await fill_in(console, page, EDIT, "validate", {field("db.login"): "typed-s3cret"})
    sent = [(key, each) for key, each in form_of(page, EDIT).sent({}) if key != "p"]
    for changes in (
        {field("connector.class"): "DatagenSource"},
        {field("connector.class"): "DatagenSource", "form_token": ""},
    ):
        fields = [(key, changes.get(key, each)) for key, each in sent]
        for button in ("validate", "json", "plan"):
            found = await console.post(EDIT, [*fields, ("do", button)])
            assert "typed-s3cret" not in found.html, (changes, button)


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


async def test_a_text_is_read_as_by_the_command_line_and_errors_have_their_line(
    console: ConsoleClient, gateway: RunningGateway, worker: RunningWorker
) -> None:
    page = await console.get(f"{NEW}?notation=yaml")
    nested = "[" * 800
    bomb = "a: &a x\n" + "".join(f"b{n}: [*a, *a]\n" for n in range(9))
    for text, expected in (
        ("name: a\nconfig:\n  tasks.max: {", "Line 3"),
        ("name: a\nconfig:\n  tasks.max: 1\n  tasks.max: 2\n", "Line 4, column 3: the key"),
        ("name: a\nconfig: {tasks.max: [1]}\n", '"config.tasks.max" is a list'),
        ("name: a\n---\nname: b\n", "The text holds 2 documents"),
        ("!!python/object/apply:os.system [echo]", "a definition is an object"),
        (nested, "nested too deeply"),
        (bomb, "is a list"),
        ("x" * 300_000, "the maximum is 262,144: use JSON"),
        (" ", "a definition is an object"),
        (f"{SCRIPT}: {{", "Line 1"),
    ):
        found = await fill_in(console, page, NEW, "apply", {"text": text})
        assert (found.status, "img" in found.tags) == (400, False), text[:50]
        assert expected in found.text, (text[:50], found.text[:2_000])
        # the text is kept, also if another notation is asked for
        kept = await fill_in(console, found, NEW, "json")
        assert dict(form_of(kept, NEW).fields)["text"] == text
    text = (
        "# a comment\nname: text\ninitial_state: PAUSED\nconfig:\n  connector.class: DatagenSource"
    )
    found = await fill_in(console, page, NEW, "validate", {"text": f"{text}\n  tasks.max: -1\n"})
    assert "tasks.max (line 6) must be at least 1" in found.text
    assert "# a comment" in found.text
    text += "\n  topic: t\n  quickstart: orders\n"
    done = await fill_in(console, found, NEW, "apply", {"text": text})
    assert "The connector was created." in done.text
    assert stored(worker, "text") == DATAGEN
    info = (await gateway.ask("GET", "/connectors/text/status")).json()
    assert info["connector"]["state"] in ("PAUSED", "UNASSIGNED")
    page = await console.get(edit("text", notation="yaml"))
    for text, expected in (
        ("name: other\nconfig: {}\n", "a connector cannot be renamed"),
        ("name: text\ninitial_state: STOPPED\nconfig: {}\n", "Remove the state"),
    ):
        refused = await fill_in(console, page, EDIT, "apply", {"text": text})
        assert (refused.status, expected in refused.text) == (400, True)
    assert stored(worker, "text") == DATAGEN


async def test_a_preview_shows_each_step_and_its_faults(console: ConsoleClient) -> None:
    page = await console.get(f"{NEW}?class=DatagenSource&name=p")
    changes = {field("topic"): "t", field("quickstart"): "orders"}
    found = await fill_in(console, page, NEW, "preview", changes)
    assert "2 records were read. Nothing was written." in found.text
    assert "file:2 dropped" in found.text
    assert "a note of the preview" in found.text
    assert "<b>bold</b>" in found.text
    found = await fill_in(console, found, NEW, "edit")
    found = await fill_in(console, found, NEW, "preview", {field("topic"): FAULTY})
    assert "1 failed" in found.text
    assert "file:2 failed: no field <i>x</i>" in found.text
    page = await console.get(f"{NEW}?class=DatagenSource&name=p")
    refused = await fill_in(console, page, NEW, "preview")
    assert (refused.status, "is required" in refused.text) == (400, True)


@pytest.mark.parametrize("button", ["apply", "plan"])
async def test_a_second_user_sees_both_configs_and_keeps_the_input(
    console: ConsoleClient, gateway: RunningGateway, worker: RunningWorker, button: str
) -> None:
    name = f"two-{button}"
    await put(gateway, name, {**DATAGEN, "own.password": SECRET})
    page = await console.get(edit(name))
    theirs = {**DATAGEN, "own.password": SECRET, "tasks.max": "7", "rate.max.records": "9"}
    await put(gateway, name, theirs)
    changes = {field("tasks.max"): "3", field("topic"): "mine"}
    conflict = await fill_in(console, page, EDIT, button, changes)
    assert conflict.status == 409
    assert "Nothing was written" in conflict.text
    assert "tasks.max not set 7 3" in conflict.text
    assert "rate.max.records not set 9 not set" in conflict.text
    assert "topic t t mine" in conflict.text
    assert SECRET not in conflict.html
    assert stored(worker, name) == theirs
    merged = await fill_in(console, conflict, EDIT, "edit")
    assert dict(form_of(merged, EDIT).fields)[field("topic")] == "mine"
    done = await fill_in(console, merged, EDIT, "apply")
    assert "The config was written." in done.text
    expected = {**DATAGEN, "own.password": SECRET, "tasks.max": "3", "topic": "mine"}
    assert stored(worker, name) == expected


async def test_a_plan_is_applied_only_while_it_is_the_same(
    console: ConsoleClient, gateway: RunningGateway, worker: RunningWorker
) -> None:
    await put(gateway, "planned", DATAGEN)
    page = await console.get(edit("planned"))
    plan = await fill_in(console, page, EDIT, "plan", {field("tasks.max"): "2"})
    assert "1 setting changes" in plan.text
    assert "tasks.max not set 2" in plan.text
    assert "The connector restarts with the new config" in plan.text
    assert stored(worker, "planned") == DATAGEN
    worker.engine.versions["tests.none"] = "2"
    other = await fill_in(console, plan, EDIT, "apply", {"plan": "0" * 64})
    assert (other.status, "another hash" in other.text) == (409, True)
    assert stored(worker, "planned") == DATAGEN
    done = await fill_in(console, other, EDIT, "apply")
    assert "The config was written." in done.text
    again = await fill_in(console, other, EDIT, "apply")
    assert again.status == 409
    page = await console.get(edit("planned"))
    same = await fill_in(console, page, EDIT, "plan")
    assert "there is nothing to write" in same.text


async def test_a_connector_that_appears_or_vanishes_is_a_conflict(
    console: ConsoleClient, gateway: RunningGateway, worker: RunningWorker
) -> None:
    new = await console.get(f"{NEW}?class=DatagenSource&name=late")
    changes = {field("topic"): "t", field("quickstart"): "orders"}
    plan = await fill_in(console, new, NEW, "plan", {**changes, "state": "STOPPED"})
    assert "it has no tasks yet" in plan.text
    await put(gateway, "late", {**DATAGEN, "tasks.max": "5"})
    for page, more in ((plan, {}), (new, changes)):
        refused = await fill_in(console, page, NEW, "apply", more)
        assert refused.status == 409
        assert "There is a connector with the name late already" in refused.text
        assert "tasks.max 5 not set" in refused.text
    page = await console.get(edit("late"))
    await gateway.ask("DELETE", "/connectors/late")
    for button in ("apply", "plan"):
        gone = await fill_in(console, page, EDIT, button, {field("tasks.max"): "6"})
        assert (gone.status, "was deleted" in gone.text) == (409, True)
    back = await fill_in(console, gone, NEW, "edit", None)
    plan = await fill_in(console, back, NEW, "plan", {"state": "STOPPED"})
    done = await fill_in(console, plan, NEW, "apply")
    assert "The connector was created." in done.text
    assert stored(worker, "late") == {**DATAGEN, "tasks.max": "6"}
    states = worker.herder.context.view.connectors["late"]
    assert states.target_state == "STOPPED"


async def test_what_forms_of_other_consoles_lose_or_refuse_is_kept(
    console: ConsoleClient, gateway: RunningGateway, worker: RunningWorker
) -> None:
    """Overrides of clients, settings of converters and transforms, false and 0, equals signs,
    placeholders in passwords, unknown settings, and JSON after white space.
    """
    config = {
        **DATAGEN,
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",
        "transforms": "mask",
        "transforms.mask.type": "MaskField$Value",
        "transforms.mask.fields": "note",
        "transforms.mask.replacement": MASK,
        "rate.max.records": "0",
        "path.format": "'filedate'=YYYY-MM-dd/",
        "converters": "own",
        "own.tables.public.t.columns": "tags,schedule",
        "producer.override.linger.ms": "5",
        "own.password": "${file:/run/secrets.properties:password}",
    }
    text = " \n" + json.dumps({"name": "kept", "config": config})
    page = await console.get(f"{NEW}?notation=json")
    page = await fill_in(console, page, NEW, "validate", {"text": text})
    assert " error" not in page.text.split("Edit as")[1].split("The config as JSON")[0]
    page = await fill_in(console, page, NEW, "fields")
    assert dict(form_of(page, NEW).fields)[field("key.converter.schemas.enable")] == "false"
    done = await fill_in(console, page, NEW, "apply")
    assert "The connector was created." in done.text, done.text
    assert stored(worker, "kept") == config
    page = await console.get(edit("kept", notation="json"))
    page = await fill_in(console, page, EDIT, "fields")
    changes = {field("transforms.mask.fields"): "note,item"}
    done = await fill_in(console, page, EDIT, "apply", changes)
    assert "The config was written." in done.text, done.text
    assert stored(worker, "kept") == {**config, "transforms.mask.fields": "note,item"}


@pytest.mark.faults("console")
async def test_a_config_with_2000_settings_and_long_values_is_edited(
    console: ConsoleClient, gateway: RunningGateway, worker: RunningWorker
) -> None:
    config = {**DATAGEN, **{f"own.setting.{n}": f"<{n}>" for n in range(2_000)}}
    config["own.long"] = "line <b>ü</b>\n" * 7_000
    await put(gateway, "large", config)
    page = await console.get(edit("large"))
    assert (page.status, "2,003 warnings" in page.text) == (200, False)
    changes = {field("own.setting.1999"): "changed"}
    page = await fill_in(console, page, EDIT, "json", changes)
    done = await fill_in(console, page, EDIT, "apply")
    assert "The config was written." in done.text
    assert stored(worker, "large") == {**config, "own.setting.1999": "changed"}
    too_large = await console.post(EDIT, [("text", "x" * 5_000_000)])
    assert (too_large.status, "4,194,304 bytes" in too_large.text) == (413, True)


async def test_the_config_of_a_class_that_is_gone_can_be_changed_to_another_class(
    console: ConsoleClient, gateway: RunningGateway, worker: RunningWorker
) -> None:
    await put(gateway, "gone", {**DATAGEN, "own.password": SECRET, "own.lines": "a\nb"})
    worker.engine.lacking.add("DatagenSource")
    try:
        page = await console.get(edit("gone"))
        validated = await fill_in(console, page, EDIT, "validate")
        refused = await fill_in(console, page, EDIT, "apply", {field("topic"): "other"})
    finally:
        worker.engine.lacking.clear()
    assert page.status == 200
    assert "no connector class 'DatagenSource' is installed" in validated.text
    assert f'href="#{setting_id("connector.class")}-v"' in validated.html
    assert refused.status == 400
    fields = dict(form_of(refused, EDIT).fields)
    assert (fields[field("topic")], fields[field("own.lines")]) == ("other", "a\nb")
    assert SECRET not in page.html + validated.html + refused.html
    done = await fill_in(console, refused, EDIT, "apply")
    assert "The config was written." in done.text
    assert stored(worker, "gone")["own.password"] == SECRET


async def test_a_session_that_ends_does_not_lose_the_input(
    console: ConsoleClient, gateway: RunningGateway, worker: RunningWorker
) -> None:
    await put(gateway, "ended", WITH_SECRET)
    page = await console.get(edit("ended"))
    assert "Your session ends at" in page.text
    typed = {field("topic"): SCRIPT, field("db.token"): "typed-s3cret"}
    text = await fill_in(console, page, EDIT, "yaml")
    console.session.cookies.clear()
    for start, changes in ((page, typed), (text, {"text": f"name: ended # {SCRIPT}\n"})):
        kept = await fill_in(console, start, EDIT, "apply", changes)
        assert kept.status == 403
        assert "Nothing was written, and your input is kept below" in kept.text
        assert "Sign in in another tab" in kept.text
        assert SCRIPT in (dict(form_of(kept, EDIT).fields)["text"] or "")
        assert "img" not in kept.tags
        assert "typed-s3cret" not in kept.html
        assert stored(worker, "ended") == WITH_SECRET
        console.session.cookies.clear()
    # the new session of the page continues
    kept = await fill_in(console, page, EDIT, "apply", typed)
    done = await fill_in(console, kept, EDIT, "apply")
    assert "The config was written." in done.text, done.text
    expected = {**WITH_SECRET, "topic": SCRIPT, "db.token": "typed-s3cret"}
    assert stored(worker, "ended") == expected
    # a page of another site cannot use this
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        sent = form_of(page, EDIT).sent({})
        refused = await console.post(EDIT, [*sent, ("do", "apply")], headers=headers)
        assert (refused.status, refused.forms) == (403, [])


async def test_requests_for_no_connector_and_changed_fields_are_refused(
    console: ConsoleClient,
) -> None:
    for path, status in ((EDIT, 404), (edit("no-such"), 404), (edit("<b>"), 404)):
        page = await console.get(path)
        assert (page.status, "b" in page.tags) == (status, False)
    page = await console.get(f"{NEW}?class=DatagenSource&name=x")
    for changes in ({"config": "[1]"}, {"config": '{"a": 1}'}, {"config": "{" * 9_000}):
        refused = await fill_in(console, page, NEW, "apply", changes)
        assert (refused.status, "A hidden field was changed." in refused.text) == (400, True)
    for changes in ({"sealed": "x"}, {"sealed": "ü"}, {"sealed": "A" * 80}):
        refused = await fill_in(console, page, NEW, "apply", changes)
        assert (refused.status, "type them again" in refused.text) == (400, True)
    odd = await console.get(f"{NEW}?class={quote(SCRIPT)}&name={quote(SCRIPT)}")
    assert (odd.status, "img" in odd.tags) == (200, False)
    assert "style" not in odd.attributes


async def test_without_workers_the_form_tells_why_and_keeps_the_input(
    console: ConsoleClient, gateway: RunningGateway
) -> None:
    async with running_gateway([free_address()]) as alone:
        other = ConsoleClient(alone)
        for path in (NEW, f"{NEW}?class=DatagenSource", edit("a")):
            assert (await other.get(path)).status == 503, path
        page = await other.get(f"{NEW}?notation=json")
        text = json.dumps({"name": "a", "config": DATAGEN})
        for button in ("validate", "preview", "plan", "apply", "fields"):
            found = await fill_in(other, page, NEW, button, {"text": text})
            assert found.status == 503, button
            assert "The config was not checked" in found.text
            assert dict(form_of(found, NEW).fields)["text"]


async def test_a_missing_role_is_named_and_a_revoked_token_loses_no_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewed, "CHECK_EVERY_S", 0.0)
    certs = tmp_path / "certs"
    init_certificates(certs)
    grant_tokens(certs)
    async with WorkerCluster(tmp_path, certificates=certs) as cluster:
        await cluster.settled_workers(1)
        async with running_gateway(
            [cluster.workers[0].address], certificates=certs, gateway_session_keys="k" * 32
        ) as gateway:
            path = "/connectors/roles/config"
            assert (await gateway.ask("PUT", path, role="admin", json=DATAGEN)).ok
            viewer, operator, admin = (ConsoleClient(gateway) for _ in range(3))
            # of an unknown caller no text is read, which would take seconds
            unknown = ConsoleClient(gateway)
            refused = await unknown.post(NEW, [("notation", "yaml"), ("text", "[")])
            for _ in range(2):
                assert "your input is kept below" in refused.text
                assert dict(form_of(refused, NEW).fields)["text"] == "["
                assert "The text is not a config" not in refused.text
                refused = await fill_in(unknown, refused, NEW, "validate")
            assert refused.status == 401
            await viewer.sign_in("viewer")
            for place in (edit("roles"), f"{NEW}?class=DatagenSource"):
                page = await viewer.get(place)
                assert (page.status, "The role is missing" in page.text) == (403, True), place
                assert "the role operator" in page.text
            await operator.sign_in("operator")
            page = await operator.get(edit("roles"))
            assert page.status == 200
            (form,) = [each for each in page.forms if each.action == EDIT]
            offered = {value for name, value in form.buttons if name == "do"}
            assert offered == {"validate", "check", "fields", "yaml", "json"}
            changes = {field("tasks.max"): "4"}
            for button in ("preview", "plan", "apply"):
                refused = await fill_in(operator, page, EDIT, button, changes)
                assert (refused.status, "the role admin" in refused.text) == (403, True), button
                assert dict(form_of(refused, EDIT).fields)[field("tasks.max")] == "4"
            await admin.sign_in("admin")
            page = await admin.get(edit("roles"))
            done = await fill_in(admin, page, EDIT, "apply", changes)
            assert "The config was written." in done.text
            page = await admin.get(edit("roles"))
            grant_tokens(certs, roles=False)

            async def is_refused() -> bool:
                found.append(await fill_in(admin, page, EDIT, "apply", {field("tasks.max"): "9"}))
                return found[-1].status == 401

            found: list[Page] = []
            await wait_until_async(is_refused)
            text = dict(form_of(found[-1], EDIT).fields)["text"] or ""
            assert json.loads(text)["config"]["tasks.max"] == "9"
            assert "your input is kept below" in found[-1].text
