"""The commands that pages of the console show: each is one of the CLI, or a call of the API."""

import html
import json
import re
import shlex
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import typer.main
from google.protobuf import json_format

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.main import cli
from drover.model.command_lines import drover_command
from drover_gateway.console import connectors_page, letter_groups
from drover_gateway.console.actions import ACTIONS
from tests.support.console_client import ConsoleClient, Page
from tests.support.console_walk import CONFIG, FAILED, FORMS, World, places, walked_world
from tests.support.fake_engine import SINK
from tests.support.stored_topics import store_records

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

#: A connector and a topic with a name that a command would read as an option.
OPTION = "--address=attacker.example:1"
SERVICE = pb.DESCRIPTOR.services_by_name["ConnectService"]
_CODE = re.compile(r"<pre[^>]*><code>(.*?)</code></pre>", re.DOTALL)
_CALL = "drover.api.connect.v1.ConnectService/"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with walked_world(tmp_path_factory.mktemp("commands")) as running:
        letters = {"errors.deadletterqueue.topic.name": "o-dead"}
        await running.put(OPTION, {**CONFIG, "connector.class": SINK, "topics": "t", **letters})
        store_records(running.cluster.store(), "-t", [{"value": b"1"}])
        yield running


def lines_of(page: Page) -> Iterator[str]:
    """The commands of a page; the others on its lines are the contents of files."""
    for code in _CODE.findall(page.html):
        for line in html.unescape(code).splitlines():
            if line.startswith(("drover ", "grpcurl ", "echo ", "printf ", "DROVER_TOKEN=")):
                yield line


def arguments_of(line: str, file: Path) -> dict[str, Any]:
    """The arguments and options of a command of ``drover`` as the command gets them."""
    words = shlex.split(line)
    words = words[words.index("drover") + 1 :]
    words = [str(file) if each in ("FILE", "repairs.jsonl") else each for each in words]
    command: Any = typer.main.get_command(cli)
    context = command.make_context("drover", words)
    while hasattr(command, "resolve_command"):
        # the group before keeps its name and the rest of the words
        rest = [*context._protected_args, *context.args]
        name, command, rest = command.resolve_command(context, rest)
        context = command.make_context(name, rest, parent=context)
    return dict(context.params)


def check_call(line: str) -> None:
    """A call of the API by grpcurl: the method exists, and has the fields of the document."""
    words = shlex.split(line)
    (target,) = [each for each in words if each.startswith(_CALL)]
    method = SERVICE.methods_by_name[target.removeprefix(_CALL)]
    document = words[words.index("-d") + 1] if "-d" in words else "{}"
    if document != "@":
        request = getattr(pb, method.input_type.name)()
        json_format.Parse(document, request)
        assert json.loads(document) or not request.ByteSize()


async def pages_of(world: World) -> AsyncIterator[Page]:
    """All pages, and the pages that all forms lead to, of an admin."""
    console = ConsoleClient(world.gateway)
    await console.sign_in("admin")
    for place in places():
        yield await console.get(world.url(place))
    for query in ("", "&tab=config", "&tab=offsets", "&tab=history", "&tab=topics"):
        yield await console.get(f"/ui/connector?name={OPTION}{query}")
    yield await console.get("/ui/topic?name=-t")
    for each in FORMS:
        if each.path.endswith("/run"):
            continue
        fields = list(world.filled(each.fields).items())
        yield await console.post_by_hand(each.path, *fields)
    for action in ACTIONS:
        names = [("name", name) for name in (OPTION, FAILED)]
        yield await console.post_by_hand(connectors_page.CONFIRM, ("action", action), *names)
    letters = [("connector", FAILED), ("letter", "0:0"), ("reason", "-wrong"), ("force", "yes")]
    for action in (letter_groups.REPLAY, letter_groups.DISCARD):
        yield await console.post_by_hand(letter_groups.CHECK, ("action", action), *letters)


async def test_each_command_exists_and_reads_no_name_as_an_option(
    world: World, tmp_path: Path
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("{}")
    seen: set[str] = set()
    async for page in pages_of(world):
        for line in lines_of(page):
            try:
                if _CALL in line:
                    check_call(line)
                else:
                    found = arguments_of(line, file)
                    assert "attacker" not in str(found.get("address")), line
            except Exception as error:
                raise AssertionError(f"{page.url}: {line}: {error!r}") from error
            seen.add(" ".join(shlex.split(line)[:3]))
    # the commands of all pages were found
    assert len(seen) > 30, sorted(seen)


async def test_a_name_like_an_option_is_an_argument(tmp_path: Path) -> None:
    line = drover_command("connector restart", OPTION, "b", options=("--include-tasks",))
    found = arguments_of(line, tmp_path)
    assert list(found["names"]) == [OPTION, "b"], found
    assert found["include_tasks"]
    assert not found["address"]
