"""``drover dlq …``: a connector's dead letters, and their replay."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import aclosing
from typing import Annotated, Any

import typer

from drover.api.common.v1.topics_pb2 import RecordQuery, TopicRecord
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.caller import call_worker
from drover.cli.console import (
    AddressOption,
    CliError,
    Output,
    OutputOption,
    plain,
    print_document,
    print_event,
    print_table,
    print_tables,
    say,
)
from drover.cli.names import NameArgument
from drover.cli.output.previews import preview_tables
from drover.cli.output.records import record_document, time_text
from drover.client import ConnectClient
from drover.model.dead_letters import DEAD_LETTER_TOPIC
from drover.model.offsets import CommittedOffset
from drover.model.sink_offsets import parse_sink_offset

commands = typer.Typer(no_args_is_help=True, help="Dead letters: list, show, replay.")

_PREFIX = "__connect.errors."
_POLL_S = 0.5
_MESSAGE_MAX_LENGTH = 100

PartitionOption = Annotated[
    list[int] | None,
    typer.Option("--partition", "-p", min=0, help="Only this partition; repeatable."),
]
CauseOption = Annotated[
    str,
    typer.Option(
        "--cause",
        metavar="PATTERN",
        help="Only dead letters whose whole exception class matches the regular expression.",
    ),
]
WhereOption = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        "-w",
        metavar="CONDITION",
        help="Only dead letters that match, as in `drover topic head`; repeatable, all must match.",
    ),
]


@commands.command("list")
def list_letters(
    name: NameArgument,
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, max=1_000, help="How many of the last ones.")
    ] = 20,
    partition: PartitionOption = None,
    cause: CauseOption = "",
    where: WhereOption = None,
    address: AddressOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """List the last dead letters of a connector with their causes."""

    async def read(client: ConnectClient) -> tuple[str, list[TopicRecord], Mapping[int, int]]:
        topic, decoder = await _queue_of(client, name)
        query = RecordQuery(
            topic=topic, partitions=partition or [], conditions=_conditions(cause, where)
        )
        request = pb.WatchTopicRequest(query=query, connector=decoder, last_count=count)
        letters = await _letters(client, request)
        return topic, letters, await _replayed(client, name, topic)

    topic, letters, replayed = call_worker(address, read)
    if output is not Output.TABLE:
        for each in letters:
            print_event(_document(topic, each, replayed), output)
        return
    rows = [
        (
            f"{each.partition}:{each.offset}",
            time_text(each),
            _origin(cause_headers),
            cause_headers.get("stage", ""),
            cause_headers.get("exception.class.name", ""),
            cause_headers.get("exception.message", "")[:_MESSAGE_MAX_LENGTH],
            "yes" if _is_replayed(each, replayed) else "",
        )
        for each in letters
        for cause_headers in [_cause_headers(each)]
    ]
    columns = ("LETTER", "TIME", "FROM", "STAGE", "CAUSE", "MESSAGE", "PASSED")
    print_table(columns, rows, empty=f"no dead letters in {plain(topic)}")


@commands.command()
def show(
    name: NameArgument,
    letter: Annotated[
        str,
        typer.Argument(
            metavar="PARTITION:OFFSET", help="Of the dead letter, from `drover dlq list`."
        ),
    ],
    address: AddressOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Show a dead letter: its cause with the stack trace, its key, value and headers."""
    partition, _, offset = letter.partition(":")
    if not (partition.isdecimal() and offset.isdecimal()):
        raise CliError(f"{letter!r} is not PARTITION:OFFSET")

    async def read(client: ConnectClient) -> tuple[str, list[TopicRecord], Mapping[int, int]]:
        topic, decoder = await _queue_of(client, name)
        query = RecordQuery(topic=topic, partitions=[int(partition)])
        request = pb.WatchTopicRequest(
            query=query, connector=decoder, start_offset=int(offset), record_count_max=1
        )
        letters = await _letters(client, request)
        return topic, letters, await _replayed(client, name, topic)

    topic, letters, replayed = call_worker(address, read)
    if not letters or letters[0].offset != int(offset):
        raise CliError(f"{topic} has no dead letter {letter}; `drover dlq list` shows them")
    document = _document(topic, letters[0], replayed)
    if output is not Output.TABLE:
        print_document(document, output)
        return
    for key, value in document["cause"].items():
        say(plain(f"{key}: {value}"))
    for part in ("key", "value"):
        say(plain(f"{part}: {json.dumps(document[part], ensure_ascii=False)}"))
    for header in document["headers"]:
        say(plain(f"header {header['key']}: {header['value']}"))


@commands.command()
def replay(
    name: NameArgument,
    start: Annotated[
        int,
        typer.Option("--from", metavar="OFFSET", min=0, help="First offset, per partition."),
    ] = 0,
    end: Annotated[
        int | None,
        typer.Option(
            "--to", metavar="OFFSET", min=1, help="End offset, exclusive, in each partition."
        ),
    ] = None,
    partition: PartitionOption = None,
    cause: CauseOption = "",
    where: WhereOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Preview the first ones without replaying them.")
    ] = False,
    rows: Annotated[int, typer.Option(min=1, max=1_000, help="Dead letters in the preview.")] = 10,
    wait_s: Annotated[
        float, typer.Option("--wait", metavar="SECONDS", min=0, help="Wait for the replay to end.")
    ] = 0.0,
    address: AddressOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Replay a connector's dead letters with its present config.

    Dead letters that were replayed before are skipped.
    """
    request = pb.ReplayDeadLettersRequest(
        name=name,
        partitions=partition or [],
        start_offset=start,
        end_offset=end,
        conditions=_conditions(cause, where),
        dry_run=dry_run,
        row_count=rows,
    )

    async def ask(client: ConnectClient) -> tuple[pb.ReplayDeadLettersResponse, int]:
        found = await client.replay_dead_letters(request)
        left = sum(each.end_offset - each.start_offset for each in found.ranges)
        if wait_s and left and not dry_run:
            left = await _wait(client, name, found, wait_s)
        return found, left

    found, left = call_worker(address, ask)
    ranges = [f"{each.partition}:{each.start_offset}-{each.end_offset}" for each in found.ranges]
    if output is not Output.TABLE:
        document: dict[str, Any] = {"name": name, "topic": found.topic, "ranges": ranges}
        document |= {"left": left, "notes": list(found.notes)}
        if dry_run:
            document["preview"] = [_preview_row(each) for each in found.preview.rows]
        print_document(document, output)
    else:
        _say_replay(found, ranges, left, dry_run=dry_run, waited=wait_s > 0)
    if left and wait_s and not dry_run:
        raise CliError(
            f"{left} dead letters are not replayed after {wait_s:g} s; the replay continues"
        )


def _say_replay(
    found: pb.ReplayDeadLettersResponse,
    ranges: list[str],
    left: int,
    *,
    dry_run: bool,
    waited: bool,
) -> None:
    if dry_run:
        print_tables(preview_tables(found.preview))
    for note in (*found.notes, *found.preview.notes):
        say(plain(note))
    if not ranges:
        return
    where = plain(f"{found.topic} ({', '.join(ranges)})")
    if dry_run:
        say(f"would replay {left} dead letters of {where}")
    elif waited and not left:
        say(f"replayed {where}")
    else:
        say(f"started the replay of {left} dead letters of {where}")


async def _queue_of(client: ConnectClient, name: str) -> tuple[str, str]:
    """The dead letter topic, and the connector whose converters decode it: a sink's own, none for a
    source, whose dead letters are rows.
    """
    found = await client.get_connector(name)
    topic = found.config.get(DEAD_LETTER_TOPIC, "").strip()
    if not topic:
        raise CliError(f"{name} has no dead letter queue: set {DEAD_LETTER_TOPIC} in its config")
    return topic, name if found.type == pb.CONNECTOR_TYPE_SINK else ""


async def _letters(client: ConnectClient, request: pb.WatchTopicRequest) -> list[TopicRecord]:
    async with aclosing(client.watch_topic(request)) as responses:
        return [record async for response in responses for record in response.records]


async def _replayed(client: ConnectClient, name: str, topic: str) -> Mapping[int, int]:
    """The replay's committed offset by partition of the dead letter topic."""
    offsets = await client.get_connector_offsets(name)
    parsed = [
        parse_sink_offset(CommittedOffset(each.partition_json, each.offset_json))
        for each in offsets
    ]
    return {at.partition: offset for at, offset in filter(None, parsed) if at.topic == topic}


async def _wait(
    client: ConnectClient, name: str, found: pb.ReplayDeadLettersResponse, wait_s: float
) -> int:
    """Wait for the replay; returns the number of dead letters left to replay."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + wait_s
    while True:
        replayed = await _replayed(client, name, found.topic)
        left = sum(
            max(0, each.end_offset - max(each.start_offset, replayed.get(each.partition, 0)))
            for each in found.ranges
        )
        if not left or loop.time() >= deadline_s:
            return left
        await asyncio.sleep(_POLL_S)


def _conditions(cause: str, where: list[str] | None) -> list[str]:
    conditions = [f"headers.{_PREFIX}exception.class.name~{cause}"] if cause else []
    return [*conditions, *(where or ())]


def _cause_headers(letter: TopicRecord) -> dict[str, str]:
    """The headers that describe the cause, without their common prefix."""
    return {
        each.key.removeprefix(_PREFIX): each.value
        for each in letter.headers
        if each.key.startswith(_PREFIX)
    }


def _origin(cause: Mapping[str, str]) -> str:
    if "offset" in cause:
        return f"{cause.get('topic', '')}-{cause.get('partition', '')}@{cause['offset']}"
    return cause.get("origin", cause.get("topic", ""))


def _is_replayed(letter: TopicRecord, replayed: Mapping[int, int]) -> bool:
    return letter.offset < replayed.get(letter.partition, 0)


def _document(topic: str, letter: TopicRecord, replayed: Mapping[int, int]) -> dict[str, Any]:
    document = record_document(topic, letter)
    document["headers"] = [
        each for each in document["headers"] if not each["key"].startswith(_PREFIX)
    ]
    return document | {"cause": _cause_headers(letter), "passed": _is_replayed(letter, replayed)}


def _preview_row(row: Any) -> dict[str, Any]:
    last = row.records[-1] if row.records else None
    return {
        "letter": row.place,
        "failed_step": row.failed_step or None,
        "error": row.error or None,
        "dropped_by": row.dropped_by or None,
        "topic": last.topic if last else None,
        "value": last.value if last is not None and last.HasField("value") else None,
    }
