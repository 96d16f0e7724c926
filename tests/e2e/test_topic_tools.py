"""Commands that inspect topics, repair dead letters and plan changes, on a cluster."""

import json
from pathlib import Path

import pytest

from tests.support.cluster import run_drover
from tests.support.forked import Finished
from tests.support.shared_cluster import SharedCluster
from tests.support.waiting import wait_until_async

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(600)]

LINES = ['{"n":1}', "no json", '{"n":2}']
DEAD = "letters-dead"
TIMEOUT_S = 240


@pytest.mark.asyncio(loop_scope="session")
async def test_a_sink_that_could_not_read_is_mended_and_reads_once(
    unharmed: SharedCluster, tmp_path: Path
) -> None:
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    definition = tmp_path / "letters.json"

    async def drover(*arguments: str) -> Finished:
        address = unharmed.cluster.workers[0]
        done = await run_drover(*arguments, "--address", address, cwd=tmp_path)
        assert done.exit_code == 0, done
        return done

    def lines() -> list[str]:
        return target.read_text().splitlines() if target.exists() else []

    def define(converter: str) -> None:
        config = {
            "connector.class": "FileStreamSink",
            "topics": "letters",
            "file": str(target),
            "value.converter": converter,
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": DEAD,
            "errors.deadletterqueue.context.headers.enable": "true",
        }
        if converter == "JsonConverter":
            config["value.converter.schemas.enable"] = "false"
        definition.write_text(json.dumps({"name": "letters", "config": config}))

    source.write_text("".join(f"{each}\n" for each in LINES))
    await unharmed.client.create_connector(
        "letters-source",
        {"connector.class": "FileStreamSource", "file": str(source), "topic": "letters"},
    )
    define("JsonConverter")
    await drover("connector", "create", "-f", str(definition))
    await wait_until_async(lambda: len(lines()) == 2, timeout_s=TIMEOUT_S)

    found = await drover("topic", "tail", "letters", "--where", "n>1", "-o", "json")
    assert [json.loads(each)["value"] for each in found.out.splitlines()] == [{"n": 2}]
    (letter,) = (await drover("dlq", "list", "letters", "-o", "json")).out.splitlines()
    told = json.loads(letter)
    assert (told["value"], told["cause"]["topic"], told["passed"]) == ("no json", "letters", False)

    define("StringConverter")
    plan = json.loads((await drover("connector", "plan", str(definition), "-o", "json")).out)
    assert [each["setting"] for each in plan["changes"]] == [
        "value.converter", "value.converter.schemas.enable",
    ]  # fmt: skip
    assert plan["schemas"]["output_then"]["values"] == ["string"]
    await drover("connector", "apply", "-f", str(definition), "--plan", plan["plan"])
    dry = json.loads((await drover("dlq", "replay", "letters", "--dry-run", "-o", "json")).out)
    assert [each["value"] for each in dry["preview"]] == ['"no json"']
    await drover("dlq", "replay", "letters", "--wait", str(TIMEOUT_S))
    assert lines() == ["{n=1}", "{n=2}", "no json"]
    again = await drover("dlq", "replay", "letters")
    assert "no open dead letter is selected" in again.out

    more = tmp_path / "more.jsonl"
    more.write_text('{"key":"k","value":"produced"}\n{"value":"also produced"}\n')
    command = ("topic", "produce", "letters", str(more), "--connector", "letters")
    for said in ("2 records written", "2 records were already written"):
        done = await drover(*command, "--request-id", "one")
        assert done.out == f"{said} to letters\n"
    await wait_until_async(lambda: len(lines()) >= 5, timeout_s=TIMEOUT_S)
    assert lines()[3:] == ["produced", "also produced"]
    assert (await drover("topic", "count", "letters")).out == "5\n"
    for name in ("letters", "letters-source"):
        await unharmed.client.delete_connector(name)
