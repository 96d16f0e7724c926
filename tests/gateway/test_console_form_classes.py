"""The config form over a real worker: transforms and predicates by a button, and proposals."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from drover_gateway.console.config_fields import setting_id
from drover_gateway.console.config_form_page import EDIT, NEW
from tests.gateway.test_console_config_form import DATAGEN, SCRIPT, edit, field, put, stored
from tests.support import worker_cluster
from tests.support.console_client import ConsoleClient
from tests.support.console_forms import fill_in, form_of
from tests.support.gateways import RunningGateway, running_gateway
from tests.support.plugin_engine import PluginEngine
from tests.support.worker_cluster import RunningWorker, WorkerCluster

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module", autouse=True)
def real_settings() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_cluster, "FakeEngine", PluginEngine)
        yield


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def worker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningWorker]:
    async with WorkerCluster(tmp_path_factory.mktemp("form-classes")) as cluster:
        await cluster.settled_workers(1)
        store = cluster.store()
        for topic in ("orders", "orders-late", "payments"):
            store.ensure_topic(topic, 1)
        store.close()
        yield cluster.workers[0]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(worker: RunningWorker) -> AsyncIterator[RunningGateway]:
    async with running_gateway([worker.address]) as running:
        yield running


@pytest.fixture
def console(gateway: RunningGateway) -> ConsoleClient:
    return ConsoleClient(gateway)


async def test_a_transform_and_a_predicate_are_added_by_their_class(
    console: ConsoleClient, worker: RunningWorker
) -> None:
    page = await console.get(f"{NEW}?class=DatagenSource&name=added")
    kind, name = "new-transforms-class", "new-transforms-name"
    form = form_of(page, NEW)
    assert form.options[kind][0] == ""
    assert {"MaskField$Value", "RegexRouter", "Filter"} <= {*form.options[kind]}
    assert "HasHeaderKey" in form.options["new-predicates-class"]
    page = await fill_in(console, page, NEW, "check", {kind: "MaskField$Value"})
    assert "Added: transforms.maskField.type" in page.text
    fields = dict(form_of(page, NEW).fields)
    assert fields[field("transforms")] == "maskField"
    assert fields[field("transforms.maskField.type")] == "MaskField$Value"
    assert field("transforms.maskField.fields") in fields
    both = {kind: "MaskField$Value", "new-predicates-class": "HasHeaderKey"}
    page = await fill_in(console, page, NEW, "validate", both)
    fields = dict(form_of(page, NEW).fields)
    assert fields[field("transforms")] == "maskField,maskField2"
    assert fields[field("predicates")] == "hasHeaderKey"
    # a predicate is proposed where a transform can have one
    assert '<option value="hasHeaderKey"></option>' in page.html
    wrong = {
        "a.b": "must not have dots",
        "a,b": "must not have dots",
        SCRIPT: "must not have dots",
        "maskField": "there is one with the name maskField",
    }
    for text, told in wrong.items():
        refused = await fill_in(console, page, NEW, "check", {kind: "Filter", name: text})
        assert told in refused.text
        assert dict(form_of(refused, NEW).fields)[field("transforms")] == "maskField,maskField2"
    unclear = await fill_in(console, page, NEW, "check", {name: "drop"})
    assert "Choose a class for the transform drop." in unclear.text
    values = {"topic": "t", "quickstart": "orders", "predicates.hasHeaderKey.name": "h"}
    values |= {f"transforms.{each}.fields": "id" for each in ("maskField", "maskField2")}
    changes = {field(key): value for key, value in values.items()}
    page = await fill_in(console, page, NEW, "apply", {kind: "Filter", name: "drop", **changes})
    assert "The connector was created." in page.text, page.text
    config = stored(worker, "added")
    assert config["transforms"] == "maskField,maskField2,drop"
    assert config["transforms.drop.type"] == "Filter"


async def test_an_edited_config_keeps_what_the_form_does_not_change(
    console: ConsoleClient, worker: RunningWorker, gateway: RunningGateway
) -> None:
    transforms = {
        "transforms": "flat, rename",
        "transforms.flat.type": "org.apache.kafka.connect.transforms.Flatten$Value",
        "transforms.rename.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
        "transforms.rename.renames": "STATPIXEL_CM2:EVENT_ID,eventDate:TIMESTAMP",
    }
    await put(gateway, "edited", {**DATAGEN, **transforms})
    page = await console.get(edit("edited"))
    added = {"new-transforms-class": "InsertField$Value", "new-transforms-name": "at"}
    page = await fill_in(console, page, EDIT, "check", added)
    page = await fill_in(
        console, page, EDIT, "apply", {field("transforms.at.timestamp.field"): "at"}
    )
    assert "The config was written." in page.text, page.text
    assert stored(worker, "edited") == {
        **DATAGEN,
        **transforms,
        "transforms": "flat,rename,at",
        "transforms.at.type": "InsertField$Value",
        "transforms.at.timestamp.field": "at",
    }


async def test_a_sink_with_topics_needs_no_pattern_for_topics(console: ConsoleClient) -> None:
    page = await console.get(f"{NEW}?class=FilesSink&name=pattern")
    page = await fill_in(console, page, NEW, "validate", {field("topics"): "orders"})
    notes = f'id="{setting_id("topics.regex")}-n" class="notes"></div>'
    assert notes in page.html
    assert f'href="#{setting_id("topics")}-v"' not in page.html


@pytest.mark.parametrize("before", [" ", "\n\n", "\t", "\r\n "])
async def test_a_pasted_config_may_start_with_white_space(
    console: ConsoleClient, before: str
) -> None:
    page = await console.get(f"{NEW}?notation=json")
    text = before + json.dumps({"name": "pasted", "config": DATAGEN})
    page = await fill_in(console, page, NEW, "fields", {"text": text})
    assert page.status == 200, page.text
    assert dict(form_of(page, NEW).fields)[field("quickstart")] == "orders"


async def test_classes_and_topics_are_proposed_also_while_the_user_types(
    console: ConsoleClient,
) -> None:
    page = await console.get(f"{NEW}?class=FilesSink&name=proposed")
    topics = ("orders", "orders-late", "payments")
    assert all(f'<option value="{each}"></option>' in page.html for each in topics)
    typed = {
        field("topics"): "orders,",
        field("transforms"): "mask",
    }
    part = await fill_in(console, page, NEW, "check", typed, ("part", "checks"))
    assert part.html.startswith('<div id="checks"')
    assert '<option value="orders,payments"></option>' in part.html
    assert '<option value="orders,orders"></option>' not in part.html
    assert '<option value="MaskField$Value"></option>' in part.html
    # the start of another topic is replaced
    typed[field("topics")] = "orders,pay"
    part = await fill_in(console, page, NEW, "check", typed, ("part", "checks"))
    assert '<option value="orders,payments"></option>' in part.html
    source = await console.get(f"{NEW}?class=KafkaSource&name=proposed")
    # a KafkaSource reads the topics of another cluster
    topics_of_source = f'id="{setting_id("topics")}-l"'
    assert topics_of_source in page.html
    assert topics_of_source not in source.html
