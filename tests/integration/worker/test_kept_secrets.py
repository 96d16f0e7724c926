"""A config that was read with masked secrets is written back without losing them."""

import grpc.aio
import pytest

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.model.secrets import MASK
from tests.integration.worker.test_admin_api import create, fields, reason
from tests.support.fake_engine import SINK, SOURCE
from tests.support.worker_cluster import RunningWorker

SECRET = "s3cret-of-the-database"


async def read(worker: RunningWorker, name: str = "a") -> dict[str, str]:
    found = await worker.stub.GetConnector(pb.GetConnectorRequest(name=name), timeout=20)
    return dict(found.connector.config)


def stored(worker: RunningWorker, name: str = "a") -> dict[str, str]:
    return dict(worker.herder.context.view.config(name) or {})


@pytest.fixture
async def existing(worker: RunningWorker) -> RunningWorker:
    await worker.stub.CreateConnector(create("a", **{"db.login": SECRET}), timeout=20)
    return worker


@pytest.mark.parametrize("more", [{}, {"skip_unchanged": True}, {"expected_revision": True}])
async def test_a_config_that_was_read_is_put_back_with_a_changed_line(
    existing: RunningWorker, more: dict[str, bool]
) -> None:
    found = await existing.stub.GetConnector(pb.GetConnectorRequest(name="a"), timeout=20)
    config = {**found.connector.config, "tasks.max": "2"}
    assert config["db.login"] == MASK
    request = pb.PutConnectorConfigRequest(
        name="a", config=config, keep_masked=True, skip_unchanged="skip_unchanged" in more
    )
    if "expected_revision" in more:
        request.expected_revision = found.connector.revision
    answer = await existing.stub.PutConnectorConfig(request, timeout=20)
    assert answer.connector.config["db.login"] == MASK
    assert SECRET not in str(answer)
    assert stored(existing)["db.login"] == SECRET
    assert stored(existing)["tasks.max"] == "2"


async def test_an_unchanged_config_with_masks_changes_nothing(existing: RunningWorker) -> None:
    request = pb.PutConnectorConfigRequest(
        name="a", config=await read(existing), keep_masked=True, dry_run=True
    )
    answer = await existing.stub.PutConnectorConfig(request, timeout=20)
    assert [*answer.added_keys, *answer.changed_keys, *answer.removed_keys] == []
    assert SECRET not in str(answer)


async def test_a_mask_without_a_stored_value_is_a_violation(existing: RunningWorker) -> None:
    await existing.stub.CreateConnector(create("without"), timeout=20)
    masked = {"connector.class": SOURCE, "db.login": MASK}
    for name in ("without", "new"):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await existing.stub.PutConnectorConfig(
                pb.PutConnectorConfigRequest(name=name, config=masked, keep_masked=True), timeout=20
            )
        assert reason(caught.value) == "INVALID_CONFIG"
        assert fields(caught.value) == ['config["db.login"]']
        validated = await existing.stub.ValidateConfig(
            pb.ValidateConfigRequest(config={**masked, "name": name}, keep_masked=True), timeout=20
        )
        assert [each.field for each in validated.violations] == ['config["db.login"]']


async def test_without_the_flag_a_mask_is_a_violation(existing: RunningWorker) -> None:
    config = await read(existing)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await existing.stub.PutConnectorConfig(
            pb.PutConnectorConfigRequest(name="a", config=config), timeout=20
        )
    assert fields(caught.value) == ['config["db.login"]']


async def test_kept_values_are_masked_wherever_a_validation_shows_them(
    existing: RunningWorker,
) -> None:
    """Also the value of a setting that the requested class does not define."""
    await existing.stub.PutConnectorConfig(
        pb.PutConnectorConfigRequest(
            name="a",
            config={"connector.class": SOURCE, "db.login": SECRET, "fail.start": "open-" + SECRET},
        ),
        timeout=20,
    )
    config = {
        "name": "a",
        "connector.class": SINK,
        "db.login": MASK,
        "fail.start": MASK,
        "tasks.max": "-1",
    }
    answer = await existing.stub.ValidateConfig(
        pb.ValidateConfigRequest(config=config, keep_masked=True), timeout=20
    )
    assert [each.field for each in answer.violations] == ['config["tasks.max"]']
    assert SECRET not in str(answer)
    shown = {each.key.name: each.value for each in answer.values}
    assert shown["db.login"] == shown["fail.start"] == MASK


async def test_a_put_with_masks_keeps_a_secret_that_changes_at_the_same_time(
    existing: RunningWorker,
) -> None:
    """The first write uses an outdated revision, and is done again with the new secret."""
    new = "another-secret"
    first = pb.PutConnectorConfigRequest(
        name="a", config={"connector.class": SOURCE, "db.login": new}
    )
    kept = pb.PutConnectorConfigRequest(
        name="a",
        config={"connector.class": SOURCE, "db.login": MASK, "tasks.max": "3"},
        keep_masked=True,
    )
    calls = [existing.stub.PutConnectorConfig(each, timeout=20) for each in (first, kept)]
    for call in calls:
        await call
    last = stored(existing)
    # either order is correct; a mix of both configs is not
    assert (last["db.login"], last.get("tasks.max")) in ((new, "3"), (new, None))


async def test_a_patch_with_a_mask_keeps_the_secret(existing: RunningWorker) -> None:
    answer = await existing.stub.PatchConnectorConfig(
        pb.PatchConnectorConfigRequest(
            name="a", set={"db.login": MASK, "tasks.max": "4"}, keep_masked=True
        ),
        timeout=20,
    )
    assert answer.connector.config["db.login"] == MASK
    assert SECRET not in str(answer)
    assert (stored(existing)["db.login"], stored(existing)["tasks.max"]) == (SECRET, "4")
    for patch in (
        pb.PatchConnectorConfigRequest(name="a", set={"db.login": MASK}),
        pb.PatchConnectorConfigRequest(name="a", set={"db.token": MASK}, keep_masked=True),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await existing.stub.PatchConnectorConfig(patch, timeout=20)
        assert fields(caught.value) == [f'config["{next(iter(patch.set))}"]']
    assert stored(existing)["db.login"] == SECRET


async def test_a_plan_and_a_preview_keep_masked_secrets_on_request(
    existing: RunningWorker,
) -> None:
    config = {**await read(existing), "tasks.max": "2", "topic": "x"}
    plan = pb.PlanConnectorConfigRequest(name="a", config=config, keep_masked=True)
    planned = await existing.stub.PlanConnectorConfig(plan, timeout=20)
    assert [each.name for each in planned.changes] == ["tasks.max", "topic"]
    preview = pb.PreviewConnectorRequest(config=config, row_count=2, keep_masked=True)
    previewed = await existing.stub.PreviewConnector(preview, timeout=20)
    assert len(previewed.preview.rows) == 2
    assert SECRET not in f"{planned}{previewed}"
    # the put has the plan's hash, so the plan had the stored secret
    put = pb.PutConnectorConfigRequest(
        name="a", config=config, keep_masked=True, plan_hash=planned.plan_hash
    )
    await existing.stub.PutConnectorConfig(put, timeout=20)
    assert (stored(existing)["db.login"], stored(existing)["tasks.max"]) == (SECRET, "2")
    refused = {"name": "a", "connector.class": SOURCE, "db.token": MASK}
    plan, preview = (
        pb.PlanConnectorConfigRequest(name="a", config=refused, keep_masked=True),
        pb.PreviewConnectorRequest(config=refused, keep_masked=True),
    )
    for call in (
        existing.stub.PlanConnectorConfig(plan, timeout=20),
        existing.stub.PreviewConnector(preview, timeout=20),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert fields(caught.value) == ['config["db.token"]']
