"""``drover apply`` at a real worker: it is idempotent, and after any fault nothing changes."""

import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from drover.client import ConnectClient
from drover.errors import AbortedError, InvalidArgumentError
from drover.model.secrets import MASK
from tests.support.cluster import run_drover
from tests.support.fake_engine import SINK, SOURCE
from tests.support.forked import Finished
from tests.support.worker_cluster import RunningWorker

#: Runs the command; returns its exit code, stdout and stderr.
Run = Callable[..., Coroutine[Any, Any, Finished]]

LINES = f"name: lines\nconnector.class: {SOURCE}\ntopic: t\ndb.login: s3cret\n"
COPIES = f"name: copies\nconnector.class: {SINK}\ntopic: t\n"


@pytest.fixture
def drover(worker: RunningWorker, tmp_path: Path) -> Run:
    async def run(*arguments: str) -> Finished:
        return await run_drover(*arguments, "--address", worker.address, cwd=tmp_path)

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two connectors in one file, and a file that ``apply`` ignores."""
    folder = tmp_path / "connectors"
    folder.mkdir()
    (folder / "both.yaml").write_text(f"{LINES}---\n{COPIES}---\n")
    (folder / "README.md").write_text("not a definition")
    return folder


async def revisions(client: ConnectClient) -> dict[str, int]:
    entries = await client.list_connectors(include_config=True)
    return {entry.name: entry.connector.revision for entry in entries}


async def test_what_is_so_already_stays_untouched(
    drover: Run, client: ConnectClient, folder: Path
) -> None:
    code, out, _ = await drover("apply", "-f", str(folder))
    assert code == 0
    assert out.splitlines()[0] == "created lines"
    assert "  + topic: t" in out
    assert "s3cret" not in out
    before = await revisions(client)
    assert before.keys() == {"lines", "copies"}
    code, out, _ = await drover("apply", "-f", str(folder))
    assert (code, out) == (0, "unchanged lines\nunchanged copies\n")
    assert await revisions(client) == before


async def test_only_what_differs_is_written_and_shown(
    drover: Run, client: ConnectClient, folder: Path
) -> None:
    await drover("apply", "-f", str(folder))
    before = await revisions(client)
    changed = LINES.replace("topic: t", "padding: 3").replace("s3cret", "0ther")
    (folder / "both.yaml").write_text(f"{changed}---\n{COPIES}")
    code, out, _ = await drover("apply", "-f", str(folder), "--dry-run")
    assert code == 3
    assert out.splitlines() == [
        "change lines",
        f"  ~ db.login: {MASK} -> {MASK}",
        "  + padding: 3",
        "  - topic: t",
        "unchanged copies",
    ]
    assert await revisions(client) == before
    code, out, _ = await drover("connector", "apply", "-f", str(folder), "-o", "json")
    assert code == 0
    assert [(each["name"], each["action"]) for each in json.loads(out)] == [
        ("lines", "changed"),
        ("copies", "unchanged"),
    ]
    assert json.loads(out)[0]["changes"][1] == {"setting": "padding", "from": None, "to": "3"}
    after = await revisions(client)
    assert (after["lines"] > before["lines"], after["copies"]) == (True, before["copies"])
    assert (await drover("apply", "-f", str(folder), "--dry-run"))[0] == 0


async def test_with_a_fault_in_one_definition_none_is_applied(
    drover: Run, client: ConnectClient, folder: Path
) -> None:
    (folder / "wrong.json").write_text(
        json.dumps({"name": "wrong", "config": {"connector.class": SOURCE, "tasks.max": 0}})
    )
    (folder / "unknown.json").write_text('{"name": "unknown", "config": {}}')
    code, out, err = await drover("apply", "-f", str(folder))
    assert (code, out) == (1, "")
    assert "wrong.json: wrong" in err
    assert "unknown.json: unknown" in err
    assert "nothing was changed" in err
    assert await revisions(client) == {}


async def test_pruning_deletes_what_no_file_defines_and_says_so(
    drover: Run, client: ConnectClient, folder: Path
) -> None:
    await client.create_connector("old", {"connector.class": SOURCE})
    await drover("apply", "-f", str(folder))
    assert "old" in await revisions(client)
    code, out, _ = await drover("apply", "-f", str(folder), "--prune", "--dry-run")
    assert (code, out.splitlines()[-1]) == (3, "delete old")
    code, out, _ = await drover("apply", "-f", str(folder), "--prune", "--yes")
    assert (code, out.splitlines()[-1]) == (0, "deleted old")
    assert (await revisions(client)).keys() == {"lines", "copies"}


async def test_an_initial_state_counts_when_the_connector_is_created(
    drover: Run, client: ConnectClient, folder: Path
) -> None:
    (folder / "both.yaml").write_text(
        f"name: c\ninitial_state: stopped\nconfig: {{connector.class: {SOURCE}}}\n"
    )
    assert (await drover("apply", "-f", str(folder)))[0] == 0
    code, out, _ = await drover("connector", "get", "c", "-o", "json")
    assert (code, json.loads(out)["target_state"]) == (0, "STOPPED")
    assert (await drover("apply", "-f", str(folder)))[1] == "unchanged c\n"


async def test_two_files_of_one_name_are_misuse(
    drover: Run, client: ConnectClient, folder: Path
) -> None:
    (folder / "again.yaml").write_text(LINES)
    code, _, err = await drover("apply", "-f", str(folder))
    assert code == 2
    assert "both.yaml, document 1: lines is defined in" in err
    assert "again.yaml already" in err
    assert await revisions(client) == {}


async def test_a_dry_run_tells_every_fault_and_writes_nothing(client: ConnectClient) -> None:
    config = {"connector.class": SOURCE, "tasks.max": "0", "unknown": "1"}
    with pytest.raises(InvalidArgumentError) as caught:
        await client.put_connector_config("c", config, dry_run=True)
    assert [each.field for each in caught.value.violations] == [
        'config["tasks.max"]',
        'config["unknown"]',
    ]
    with pytest.raises(InvalidArgumentError) as caught:
        await client.put_connector_config(
            "c", {"connector.class": SINK, "consumer.override.group.id": "drover"}, dry_run=True
        )
    assert "workers' own group" in caught.value.violations[-1].description
    answer = await client.put_connector_config("c", {"connector.class": SOURCE}, dry_run=True)
    assert answer.created
    assert list(answer.added_keys) == ["connector.class", "name"]
    assert await revisions(client) == {}


async def test_skipping_what_is_unchanged_still_looks_at_the_revision(
    client: ConnectClient,
) -> None:
    config = {"connector.class": SOURCE}
    first = (await client.put_connector_config("c", config)).connector.revision
    for expected in (first, 0):
        same = await client.put_connector_config(
            "c", config, skip_unchanged=True, expected_revision=expected
        )
        assert same.connector.revision == first
    with pytest.raises(AbortedError, match=f"revision {first}"):
        await client.put_connector_config(
            "c", {**config, "topic": "t"}, skip_unchanged=True, expected_revision=0
        )
    changed = await client.put_connector_config("c", {**config, "topic": "t"}, skip_unchanged=True)
    assert list(changed.added_keys) == ["topic"]
    assert not changed.created
