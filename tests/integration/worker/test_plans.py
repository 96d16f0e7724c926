"""``drover connector plan`` and ``apply --plan`` at a real worker."""

import json
from pathlib import Path

import pytest

from drover.client import ConnectClient
from drover.errors import FailedPreconditionError, InvalidArgumentError, Reason
from drover.model.secrets import MASK
from tests.support.cluster import run_drover
from tests.support.fake_engine import SOURCE
from tests.support.worker_cluster import RunningWorker, tasks_are_there

FIRST = {"connector.class": SOURCE, "topic": "a", "db.login": "s3cret"}
SECOND = {**FIRST, "topic": "b", "db.login": "0ther", "tasks.max": "2"}


async def test_a_plan_tells_what_changes_and_hides_secrets(client: ConnectClient) -> None:
    created = await client.plan_connector_config("c", FIRST)
    assert (created.created, created.revision) == (True, 0)
    assert list(created.input_schemas.values) == ["struct<a: string>"]
    await client.create_connector("c", FIRST)
    found = await client.plan_connector_config("c", SECOND)
    changes = {
        each.name: (
            each.before if each.HasField("before") else None,
            each.after if each.HasField("after") else None,
        )
        for each in found.changes
    }
    assert changes == {"db.login": (MASK, MASK), "tasks.max": (None, "2"), "topic": ("a", "b")}
    assert "s3cret" not in str(found) + str(created)
    assert list(found.present_output_schemas.values) == ["struct<a: string>"]
    assert list(found.output_schemas.values) == ["struct<b: string>"]
    same = await client.plan_connector_config("c", FIRST)
    assert (list(same.changes), same.created) == ([], False)
    assert (await client.get_connector("c")).config["topic"] == "a"


async def test_a_plan_is_applied_once_and_as_often_as_the_call_is_repeated(
    client: ConnectClient,
) -> None:
    await client.create_connector("c", FIRST)
    plan = (await client.plan_connector_config("c", SECOND)).plan_hash
    assert plan == (await client.plan_connector_config("c", SECOND)).plan_hash
    for _ in range(2):
        written = await client.put_connector_config("c", SECOND, plan_hash=plan)
        assert written.connector.config["topic"] == "b"
    assert len(await client.get_connector_history("c")) == 2


@pytest.mark.parametrize("changed", ["config", "running", "schema"])
async def test_what_changed_since_refuses_the_plan(client: ConnectClient, changed: str) -> None:
    await client.create_connector("c", FIRST)
    await tasks_are_there(client, "c")
    plan = (await client.plan_connector_config("c", SECOND)).plan_hash
    wanted = dict(SECOND)
    if changed == "config":
        wanted["tasks.max"] = "3"
    elif changed == "schema":
        wanted["topic"] = "c"
    else:
        await client.patch_connector_config("c", settings={"topic": "z"})
    before = await client.get_connector("c")
    with pytest.raises(FailedPreconditionError) as told:
        await client.put_connector_config("c", wanted, plan_hash=plan)
    assert told.value.reason is Reason.PLAN_CHANGED
    assert (await client.get_connector("c")) == before


async def test_what_cannot_be_previewed_is_planned_without_schemas(client: ConnectClient) -> None:
    found = await client.plan_connector_config("c", {**FIRST, "topic": "refused"})
    assert list(found.notes) == ["no schemas: reading has effects"]
    assert not found.input_schemas.values
    with pytest.raises(InvalidArgumentError):
        await client.plan_connector_config("c", {**FIRST, "tasks.max": "none"})


async def test_the_command_shows_the_plan_and_applies_it(
    client: ConnectClient, worker: RunningWorker, tmp_path: Path
) -> None:
    file = tmp_path / "c.json"
    file.write_text(json.dumps({"name": "c", "config": FIRST}))
    show = ("connector", "plan", str(file), "-a", worker.address)
    plan = json.loads((await run_drover(*show, "-o", "json", cwd=tmp_path)).out)
    assert (plan["action"], plan["schemas"]["output_then"]["values"]) == (
        "create",
        ["struct<a: string>"],
    )
    apply = ("connector", "apply", "-f", str(file), "-a", worker.address, "--plan")
    refused = await run_drover(*apply, "0" * 64, cwd=tmp_path)
    assert refused.exit_code == 1
    assert "PLAN_CHANGED" in refused.err
    assert (await run_drover(*apply, plan["plan"], cwd=tmp_path)).exit_code == 0
    assert (await client.get_connector("c")).revision > 0
    text = (await run_drover(*show, cwd=tmp_path)).out
    assert "unchanged c" in text
    assert "records as read: value struct<a: string>" in text
