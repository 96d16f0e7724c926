"""``drover dlq …``: a connector's dead letters; their replay, and how they are discarded."""

import asyncio
import json
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any

import typer

from drover.api.common.v1.repairs_pb2 import DeadLetterRepair
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
    shortened,
)
from drover.cli.names import NameArgument
from drover.cli.output.previews import preview_tables
from drover.cli.output.records import record_document, time_text
from drover.client import ConnectClient
from drover.codec.dead_letters import decode_ranges, decode_states
from drover.model.dead_letters import DEAD_LETTER_TOPIC
from drover.model.letter_states import (
    LetterState,
    StatesNow,
    count_of,
    within,
)
from drover.record.json import schemaless

commands = typer.Typer(no_args_is_help=True, help="Dead letters: list, show, replay, discard.")

_PREFIX = "__connect.errors."
_POLL_S = 0.5
_MESSAGE_MAX_LENGTH = 100

_Range = pb.ReplayDeadLettersResponse.Range

PartitionOption = Annotated[
    list[int] | None,
    typer.Option("--partition", "-p", min=0, help="Only this partition; repeatable."),
]
StartOption = Annotated[
    int, typer.Option("--from", metavar="OFFSET", min=0, help="First offset, per partition.")
]
EndOption = Annotated[
    int | None,
    typer.Option(
        "--to",
        metavar="OFFSET",
        min=1,
        help="Up to this offset of each partition, without it.",
    ),
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

LetterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--letter",
        metavar="PARTITION:OFFSET",
        help="Only this dead letter, from `drover dlq list`; repeatable.",
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
    only_open: Annotated[
        bool,
        typer.Option("--open", help="Only dead letters that were not replayed or discarded."),
    ] = False,
    address: AddressOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """List the last dead letters of a connector with their states and causes."""

    async def read(client: ConnectClient) -> tuple[str, list[TopicRecord], StatesNow]:
        topic, decoder = await _queue_of(client, name)
        states = await _states(client, name)
        query = RecordQuery(
            topic=topic, partitions=partition or [], conditions=_conditions(cause, where)
        )
        if only_open:
            return topic, await _open_letters(client, query, decoder, count, states), states
        request = pb.WatchTopicRequest(query=query, connector=decoder, last_count=count)
        return topic, await _letters(client, request), states

    topic, letters, states = call_worker(address, read)
    if output is not Output.TABLE:
        for each in letters:
            print_event(_document(topic, each, states), output)
        return
    rows = [
        (
            f"{each.partition}:{each.offset}",
            time_text(each),
            _origin(cause_headers),
            cause_headers.get("stage", ""),
            cause_headers.get("exception.class.name", ""),
            shortened(cause_headers.get("exception.message", ""), _MESSAGE_MAX_LENGTH),
            str(states.state_of(each.partition, each.offset)),
        )
        for each in letters
        for cause_headers in [_cause_headers(each)]
    ]
    columns = ("LETTER", "TIME", "FROM", "STAGE", "CAUSE", "MESSAGE", "STATE")
    what = "open dead letters" if only_open else "dead letters"
    print_table(columns, rows, empty=f"no {what} in {plain(topic)}")


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
    """Show a dead letter: its state, its cause with the stack trace, its key, value and headers."""
    place = _place(letter)

    async def read(client: ConnectClient) -> tuple[str, list[TopicRecord], StatesNow]:
        topic, decoder = await _queue_of(client, name)
        query = RecordQuery(topic=topic, partitions=[place.partition])
        request = pb.WatchTopicRequest(
            query=query, connector=decoder, start_offset=place.offset, record_count_max=1
        )
        letters = await _letters(client, request)
        return topic, letters, await _states(client, name)

    topic, letters, states = call_worker(address, read)
    if not letters or letters[0].offset != place.offset:
        raise CliError(f"{topic} has no dead letter {letter}; `drover dlq list` shows them")
    document = _document(topic, letters[0], states)
    if output is not Output.TABLE:
        print_document(document, output)
        return
    as_what = f" as {document['repaired_as']}" if document["repaired_as"] else ""
    say(f"state: {document['state']}{as_what}")
    for key, value in document["cause"].items():
        say(plain(f"{key}: {value}"))
    for part in ("key", "value"):
        say(plain(f"{part}: {json.dumps(document[part], ensure_ascii=False)}"))
    for header in document["headers"]:
        say(plain(f"header {header['key']}: {header['value']}"))


@commands.command()
def replay(
    name: NameArgument,
    start: StartOption = 0,
    end: EndOption = None,
    partition: PartitionOption = None,
    cause: CauseOption = "",
    where: WhereOption = None,
    letter: LetterOption = None,
    repair: Annotated[
        Path | None,
        typer.Option(
            "--repair",
            metavar="FILE",
            help="New keys and values: a JSON object in each line with letter, and key or value or "
            "both. Without --letter these dead letters alone are replayed.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Preview the first ones without replaying them.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replay them even if they overwrite newer data.")
    ] = False,
    rows: Annotated[int, typer.Option(min=1, max=1_000, help="Dead letters in the preview.")] = 10,
    wait_s: Annotated[
        float, typer.Option("--wait", metavar="SECONDS", min=0, help="Wait for the replay to end.")
    ] = 0.0,
    address: AddressOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Replay a connector's open dead letters with its present config.

    A dead letter that would overwrite newer data is skipped and stays open.
    """
    repairs = [] if repair is None else _repairs(repair)
    letters = [_place(each) for each in letter or ()]
    letters += _further(letters, repairs)
    request = pb.ReplayDeadLettersRequest(
        name=name,
        partitions=partition or [],
        start_offset=start,
        end_offset=end,
        conditions=_conditions(cause, where),
        letters=letters,
        repairs=repairs,
        dry_run=dry_run,
        row_count=rows,
        force=force,
    )

    async def ask(client: ConnectClient) -> tuple[pb.ReplayDeadLettersResponse, int]:
        found = await client.replay_dead_letters(request)
        left = _count(found.ranges)
        if wait_s and left and not dry_run:
            left = await _wait(client, name, found, wait_s)
        return found, left

    found, left = call_worker(address, ask)
    ranges = _range_texts(found.ranges)
    if output is not Output.TABLE:
        document: dict[str, Any] = {"name": name, "topic": found.topic, "ranges": ranges}
        document |= {"left": left, "notes": list(found.notes)}
        document["skipped"] = [_skipped(each) for each in found.skipped_letters]
        document["skipped_count"] = found.skipped_count
        if dry_run:
            document["preview"] = [_preview_row(each) for each in found.preview.rows]
        print_document(document, output)
    else:
        _say_replay(found, left, dry_run=dry_run, waited=wait_s > 0)
    if left and wait_s and not dry_run:
        raise CliError(
            f"{left} dead letters are not replayed after {wait_s:g} s; the replay continues"
        )


def _say_replay(
    found: pb.ReplayDeadLettersResponse,
    left: int,
    *,
    dry_run: bool,
    waited: bool,
) -> None:
    if dry_run:
        print_tables(preview_tables(found.preview))
    for note in (*found.notes, *found.preview.notes):
        say(plain(note))
    if found.skipped_count:
        rows = [tuple(_skipped(each).values()) for each in found.skipped_letters]
        print_table(("SKIPPED", "WHY", "REASON"), rows, empty="")
        say(
            f"{'would skip' if dry_run else 'skipped'} {_counted(found.skipped_count)}, still "
            "open: --force replays them, and `drover dlq discard` discards them"
        )
    if not found.ranges:
        return
    where = plain(f"{found.topic} ({_letters_text(found.ranges)})")
    if dry_run:
        say(f"would replay {_counted(left)} of {where}")
    elif waited and not left:
        say(f"replayed {where}")
    else:
        say(f"started the replay of {_counted(left)} of {where}")


@commands.command()
def discard(
    name: NameArgument,
    reason: Annotated[str, typer.Option("--reason", help="Why, for the connector's history.")],
    start: StartOption = 0,
    end: EndOption = None,
    partition: PartitionOption = None,
    cause: CauseOption = "",
    where: WhereOption = None,
    letter: LetterOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show which ones, without discarding them.")
    ] = False,
    address: AddressOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Discard a connector's open dead letters: they are not replayed.

    They stay in their topic. `drover connector history` shows the reason.
    """
    request = pb.DiscardDeadLettersRequest(
        name=name,
        partitions=partition or [],
        start_offset=start,
        end_offset=end,
        conditions=_conditions(cause, where),
        letters=[_place(each) for each in letter or ()],
        reason=reason,
        dry_run=dry_run,
    )
    found = call_worker(address, lambda client: client.discard_dead_letters(request))
    ranges = _range_texts(found.ranges)
    count = _count(found.ranges)
    if output is not Output.TABLE:
        document = {"name": name, "topic": found.topic, "ranges": ranges, "count": count}
        print_document(document | {"notes": list(found.notes)}, output)
        return
    for note in found.notes:
        say(plain(note))
    if ranges:
        where_text = plain(f"{found.topic} ({_letters_text(found.ranges)})")
        say(f"{'would discard' if dry_run else 'discarded'} {_counted(count)} of {where_text}")


def _place(text: str) -> pb.DeadLetterPlace:
    partition, _, offset = text.partition(":")
    is_place = all(each.isascii() and each.isdecimal() for each in (partition, offset))
    if not is_place or int(partition) >= 2**31 or int(offset) >= 2**63:
        raise CliError(f"{text!r} is not PARTITION:OFFSET")
    return pb.DeadLetterPlace(partition=int(partition), offset=int(offset))


def _repairs(file: Path) -> list[DeadLetterRepair]:
    """The repairs of a file.

    Raises:
        CliError: It cannot be read, or lines are no repairs; it has all of them.
    """
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{file} cannot be read: {error}") from None
    found, faults = [], []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(_repair(line))
        except (ValueError, CliError) as error:
            faults.append(f"{file}:{number}: {error}")
    if faults:
        raise CliError("\n".join(faults))
    return found


def _repair(line: str) -> DeadLetterRepair:
    """The repair of a line; key and value stay JSON as they are written."""
    try:
        found = schemaless.loads(line)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    known = ("letter", "key", "value")
    if not isinstance(found, dict) or not {"letter"} < found.keys() <= set(known):
        raise ValueError("it must be an object with letter, and key or value or both")
    if not isinstance(found["letter"], str):
        raise ValueError('letter must be text: "PARTITION:OFFSET"')
    place = _place(found["letter"])
    repair = DeadLetterRepair(partition=place.partition, offset=place.offset)
    for name in ("key", "value"):
        if name in found:
            setattr(repair, name, schemaless.value_text(found[name]))
    return repair


def _further(
    letters: list[pb.DeadLetterPlace], repairs: list[DeadLetterRepair]
) -> list[pb.DeadLetterPlace]:
    """The dead letters to replay because they are repaired."""
    if letters:
        return []
    return [pb.DeadLetterPlace(partition=each.partition, offset=each.offset) for each in repairs]


def _counted(count: int) -> str:
    return "1 dead letter" if count == 1 else f"{count} dead letters"


def _letters_text(ranges: Iterable[_Range]) -> str:
    """The first and the last dead letter of each range, such as "0:1 to 0:4, 1:7"."""
    texts = []
    for each in ranges:
        first, last = (f"{each.partition}:{at}" for at in (each.start_offset, each.end_offset - 1))
        texts.append(first if first == last else f"{first} to {last}")
    return ", ".join(texts)


def _range_texts(ranges: Iterable[_Range]) -> list[str]:
    """Ranges in the form of ``errors.deadletterqueue.replay``, whose ends are exclusive."""
    return [f"{each.partition}:{each.start_offset}-{each.end_offset}" for each in ranges]


def _count(ranges: Iterable[_Range]) -> int:
    return sum(each.end_offset - each.start_offset for each in ranges)


def _skipped(each: pb.SkippedDeadLetter) -> dict[str, str]:
    why = {pb.SKIP_REASON_NEWER: "newer", pb.SKIP_REASON_UNDETERMINED: "undetermined"}
    return {
        "letter": f"{each.partition}:{each.offset}",
        "why": why.get(each.reason, "unknown"),
        "reason": each.message,
    }


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


async def _states(client: ConnectClient, name: str) -> StatesNow:
    return decode_states(await client.dead_letter_states(name))


async def _open_letters(
    client: ConnectClient, query: RecordQuery, decoder: str, count: int, states: StatesNow
) -> list[TopicRecord]:
    """The last open dead letters."""
    found: deque[TopicRecord] = deque(maxlen=count)
    request = pb.WatchTopicRequest(query=query, connector=decoder)
    async with aclosing(client.watch_topic(request)) as responses:
        async for response in responses:
            found += (
                each
                for each in response.records
                if states.state_of(each.partition, each.offset) is LetterState.OPEN
            )
    return list(found)


async def _wait(
    client: ConnectClient, name: str, found: pb.ReplayDeadLettersResponse, wait_s: float
) -> int:
    """Wait for the replay; returns the number of dead letters left to replay."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + wait_s
    wanted = decode_ranges(found.ranges)
    while True:
        left = count_of(within(wanted, (await _states(client, name)).replaying))
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


def _document(topic: str, letter: TopicRecord, states: StatesNow) -> dict[str, Any]:
    document = record_document(topic, letter)
    document["headers"] = [
        each for each in document["headers"] if not each["key"].startswith(_PREFIX)
    ]
    state = states.state_of(letter.partition, letter.offset)
    new_offset = states.repaired_as(letter.partition, letter.offset)
    return document | {
        "cause": _cause_headers(letter),
        "state": str(state),
        "passed": state in (LetterState.REPLAYED, LetterState.REPAIRED, LetterState.DISCARDED),
        "repaired_as": None if new_offset is None else f"{letter.partition}:{new_offset}",
    }


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
