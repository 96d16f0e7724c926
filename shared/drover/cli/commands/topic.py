"""``drover topic …``: topics and their records."""

import asyncio
import sys
from collections.abc import Callable
from contextlib import aclosing
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from drover.api.common.v1 import topics_pb2
from drover.api.common.v1.topics_pb2 import (
    PRODUCE_FORMAT_JSON,
    PRODUCE_FORMAT_LINES,
    ProduceOptions,
    ReadPosition,
    RecordQuery,
    TopicDescription,
)
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.caller import author, call_worker
from drover.cli.cluster_choice import worker_addresses
from drover.cli.console import (
    AddressOption,
    CliError,
    Output,
    OutputOption,
    call,
    plain,
    print_document,
    print_event,
    print_table,
    say,
)
from drover.cli.names import trimmed
from drover.cli.output.records import record_document, record_line
from drover.cli.since import SinceOption, start_time
from drover.client import ConnectClient
from drover.client.calls import new_request_id
from drover.errors import DeadlineExceededError, UnavailableError
from drover.model.produce_input import INPUT_BYTES_MAX

commands = typer.Typer(no_args_is_help=True, help="Topics: list, describe, read, count, produce.")

#: A count ended before it had read all records.
EXIT_INCOMPLETE = 3
#: After how many bytes progress is reported.
_PROGRESS_BYTES = 8 * 1024 * 1024
STANDARD_INPUT = Path("-")
_RECONNECT_S = 0.5
_CONVERTER_HELP = (
    "json, avro, protobuf, string, hex, or a converter class as in a connector's config; by "
    "default the format is detected for each record."
)

_WRITER_HELP = (
    "json, avro, protobuf, string, hex, or a converter class as in a connector's config; by default"
)


class InputFormat(StrEnum):
    """The form of an input."""

    JSON = "json"
    LINES = "lines"


_FORMATS = {InputFormat.JSON: PRODUCE_FORMAT_JSON, InputFormat.LINES: PRODUCE_FORMAT_LINES}

TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The topic's name.", callback=trimmed)
]
CountOption = Annotated[int, typer.Option("--count", "-n", min=1, help="How many records.")]
PartitionOption = Annotated[
    list[int] | None,
    typer.Option("--partition", "-p", help="Only this partition; repeatable.", min=0),
]
KeyOption = Annotated[
    str, typer.Option("--key", metavar="CONVERTER", help=f"For keys: {_CONVERTER_HELP}")
]
ValueOption = Annotated[
    str,
    typer.Option("--value", metavar="CONVERTER", help=f"For values: {_CONVERTER_HELP}"),
]
SettingOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SETTING=VALUE",
        help="A converter setting, named as in a connector's config, such as "
        "value.converter.schemas.enable=true; repeatable.",
    ),
]
ConnectorOption = Annotated[
    str,
    typer.Option("--connector", "-c", metavar="NAME", help="Use the converters of this connector."),
]
WhereOption = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        "-w",
        metavar="CONDITION",
        help="Only records that match: a path, one of = != >= <= > < ~ (a regular expression), and "
        "a value, such as 'amount>=10' or 'key.id=7'; repeatable, all must match.",
    ),
]
#: The settings of a topic that are always shown, also where they are defaults.
_SHOWN_SETTINGS = (
    "cleanup.policy",
    "delete.retention.ms",
    "min.compaction.lag.ms",
    "retention.bytes",
    "retention.ms",
)
#: The settings that have an effect with a policy only.
_SETTINGS_OF = {
    "compact": ("delete.retention.ms", "min.compaction.lag.ms"),
    "delete": ("retention.bytes", "retention.ms"),
}
_ORIGIN_TEXTS = {
    topics_pb2.SETTING_ORIGIN_TOPIC: "set for the topic",
    topics_pb2.SETTING_ORIGIN_BROKERS: "a setting of the brokers",
    topics_pb2.SETTING_ORIGIN_DEFAULT: "default",
}
_SHOWN_AGE_MAX_MS = 10**14
SelectOption = Annotated[
    list[str] | None,
    typer.Option("--select", "-s", metavar="PATH", help="Show this part only; repeatable."),
]


@commands.command("list")
def list_topics(address: AddressOption = "", output: OutputOption = Output.TABLE) -> None:
    """List the topics that connectors may use."""
    found = call_worker(address, lambda c: c.list_topics())
    if output is not Output.TABLE:
        document = [{"name": each.name, "partitions": each.partition_count} for each in found]
        print_document(document, output)
        return
    rows = [(each.name, str(each.partition_count)) for each in found]
    print_table(("TOPIC", "PARTITIONS"), rows, empty="no topics")


@commands.command()
def describe(
    topic: TopicArgument, address: AddressOption = "", output: OutputOption = Output.TABLE
) -> None:
    """Show a topic's partitions with their offsets, and its retention."""
    found = call_worker(address, lambda c: c.describe_topic(topic))
    if output is not Output.TABLE:
        print_document(_description(found), output)
        return
    rows = [
        (str(each.partition), str(each.start_offset), str(each.end_offset))
        for each in found.partitions
    ]
    print_table(("PARTITION", "START OFFSET", "END OFFSET"), rows)
    if not found.settings and found.HasField("retention"):  # of an earlier version's worker
        say(f"retention: {_age_text(found.retention.ToTimedelta())}")
    policy = found.config.get("cleanup.policy", "compact,delete")
    unused = {name for each, names in _SETTINGS_OF.items() if each not in policy for name in names}
    for each in found.settings:
        is_used = each.name in _SHOWN_SETTINGS and each.name not in unused
        if is_used or each.origin == topics_pb2.SETTING_ORIGIN_TOPIC:
            shown = _setting_text(each.name, each.value)
            say(f"{each.name}: {shown}{_origin_text(each.name, each.origin)}")


@commands.command()
def head(
    topic: TopicArgument,
    count: CountOption = 10,
    start: Annotated[
        int | None,
        typer.Option("--from", metavar="OFFSET", min=0, help="First offset, per partition."),
    ] = None,
    since: SinceOption = "",
    partition: PartitionOption = None,
    key: KeyOption = "",
    value: ValueOption = "",
    settings: SettingOption = None,
    connector: ConnectorOption = "",
    where: WhereOption = None,
    select: SelectOption = None,
    address: AddressOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the first records of a topic, or those from an offset or a time on."""
    if since and start is not None:
        raise typer.BadParameter("give --from or --since, not both")
    query = query_of(topic, partition, key, value, settings, where, select)
    request = pb.WatchTopicRequest(
        query=query,
        connector=connector,
        start_offset=start or 0,
        start_time=start_time(since),
        record_count_max=count,
    )
    print_records(request, address, output)


@commands.command()
def tail(
    topic: TopicArgument,
    count: Annotated[
        int | None,
        typer.Option("--count", "-n", min=1, help="How many records; by default 10."),
    ] = None,
    since: SinceOption = "",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing new records until Ctrl-C.")
    ] = False,
    partition: PartitionOption = None,
    key: KeyOption = "",
    value: ValueOption = "",
    settings: SettingOption = None,
    connector: ConnectorOption = "",
    where: WhereOption = None,
    select: SelectOption = None,
    address: AddressOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the last records of a topic, at most 1,000, or all from a time on; with --follow also
    new ones.
    """
    if since and count is not None:
        raise typer.BadParameter("give --count or --since, not both: head has both")
    query = query_of(topic, partition, key, value, settings, where, select)
    request = pb.WatchTopicRequest(
        query=query,
        connector=connector,
        last_count=0 if since else count or 10,
        start_time=start_time(since),
        follow=follow,
    )
    print_records(request, address, output)


@commands.command("count")
def count_records(
    topic: TopicArgument,
    partition: PartitionOption = None,
    key: KeyOption = "",
    value: ValueOption = "",
    settings: SettingOption = None,
    connector: ConnectorOption = "",
    where: WhereOption = None,
    count_offsets: Annotated[
        bool,
        typer.Option(
            "--offsets",
            help="Count offsets, without reading records. Offsets without a record count too: "
            "transaction markers, aborted, compacted and removed records.",
        ),
    ] = False,
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=1, help="Stop after this time.")
    ] = 60.0,
    address: AddressOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Count a topic's records by reading them; with --where the matching records.

    The exit code is 3 if the time was not enough to read all records.
    """
    query = query_of(topic, partition, key, value, settings, where, None)
    found = call_worker(
        address,
        lambda c: c.get_topic_record_count(
            query, connector=connector, count_offsets=count_offsets, timeout_s=timeout_s
        ),
    )
    if output is not Output.TABLE:
        document = {
            "topic": topic,
            "offsets" if count_offsets else "records": found.record_count,
            "complete": found.complete,
        }
        if not count_offsets:
            document["scanned"] = found.scanned_count
        print_document(document, output)
    else:
        noun = " offsets" if count_offsets else ""
        say(f"{'' if found.complete else 'at least '}{found.record_count}{noun}")
    if not found.complete:
        places = ", ".join(f"{each.partition}:{each.offset}" for each in found.positions)
        raise CliError(
            f"incomplete: counted up to offset {places or 0} when the deadline of {timeout_s:g} s "
            "came; increase --timeout, or count --offsets",
            EXIT_INCOMPLETE,
        )


@commands.command()
def produce(
    topic: TopicArgument,
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="The input; by default - for standard input."),
    ] = STANDARD_INPUT,
    form: Annotated[
        InputFormat,
        typer.Option(
            "--format",
            help="json: each line is an object with value, and optionally key, headers, partition "
            "and timestamp. lines: each line is a value.",
        ),
    ] = InputFormat.JSON,
    key: Annotated[
        str,
        typer.Option("--key", metavar="CONVERTER", help=f"For keys: {_WRITER_HELP} string."),
    ] = "",
    value: Annotated[
        str,
        typer.Option(
            "--value",
            metavar="CONVERTER",
            help=f"For values: {_WRITER_HELP} json, or string with --format lines.",
        ),
    ] = "",
    settings: SettingOption = None,
    connector: ConnectorOption = "",
    key_separator: Annotated[
        str,
        typer.Option(
            "--key-separator", metavar="TEXT", help="For lines: divides each into key and value."
        ),
    ] = "",
    null_marker: Annotated[
        str,
        typer.Option(
            "--null-marker",
            metavar="TEXT",
            help="For lines: a key or value of this text is null; a null value is a tombstone.",
        ),
    ] = "",
    request_id: Annotated[
        str,
        typer.Option(
            "--request-id",
            metavar="ID",
            help="A repeated command with the same id writes the records once.",
        ),
    ] = "",
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=1, help="The time limit.")
    ] = 120.0,
    address: AddressOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Write the records of a file or of the standard input to a topic, all of them or none.

    Every line is checked before the first record is written. The topic must exist.
    """
    data = _read_input(file)
    options = ProduceOptions(
        topic=topic,
        format=_FORMATS[form],
        key_converter=key,
        value_converter=value,
        config=settings_of(settings),
        connector=connector,
        key_separator=key_separator,
        null_marker=null_marker,
        request_id=request_id or new_request_id(),
    )
    try:
        found = call_worker(
            address,
            lambda c: c.produce_records(
                options, data, timeout_s=timeout_s, on_sent=_progress(len(data))
            ),
        )
    except (DeadlineExceededError, UnavailableError) as error:
        raise CliError(
            f"{plain(error.message)}; whether the records were written is unknown: repeat the "
            f"command with --request-id {options.request_id}, which writes them once"
        ) from error
    if output is not Output.TABLE:
        document = {"topic": topic, "records": found.record_count}
        print_document(document | {"repeated_call": found.repeated_call}, output)
        return
    what = "were already written" if found.repeated_call else "written"
    noun = "record" if found.record_count == 1 else "records"
    say(f"{found.record_count} {noun} {what} to {topic}")


def _read_input(file: Path) -> bytes:
    """At most INPUT_BYTES_MAX.

    Raises:
        CliError: The file cannot be read or is too large.
    """
    try:
        if file == STANDARD_INPUT:
            data = sys.stdin.buffer.read(INPUT_BYTES_MAX + 1)
        else:
            with file.open("rb") as opened:
                data = opened.read(INPUT_BYTES_MAX + 1)
    except OSError as error:
        raise CliError(f"{file} cannot be read: {error.strerror}") from None
    if len(data) > INPUT_BYTES_MAX:
        raise CliError(f"the input has more than {INPUT_BYTES_MAX} bytes (64 MiB): divide it")
    return data


def _progress(size_bytes: int) -> Callable[[int], None]:
    """Reports on stderr how much of a long input was sent."""
    reported_bytes = 0

    def report(sent_bytes: int) -> None:
        nonlocal reported_bytes
        is_last = sent_bytes == size_bytes and reported_bytes > 0
        if sent_bytes - reported_bytes >= _PROGRESS_BYTES or is_last:
            reported_bytes = sent_bytes
            text = f"sent {sent_bytes >> 20} of {size_bytes >> 20} MiB"
            print(text, file=sys.stderr, flush=True)

    return report


def settings_of(settings: list[str] | None) -> dict[str, str]:
    """The converter settings of an option.

    Raises:
        CliError: A setting is not NAME=VALUE.
    """
    pairs = {}
    for text in settings or ():
        name, equals, given = text.partition("=")
        if not (name and equals):
            raise CliError(f"{text!r} is not a setting: write NAME=VALUE")
        pairs[name] = given
    return pairs


def query_of(
    topic: str,
    partitions: list[int] | None,
    key: str,
    value: str,
    settings: list[str] | None,
    where: list[str] | None,
    select: list[str] | None,
) -> RecordQuery:
    """The query of the options.

    Raises:
        CliError: A setting is not NAME=VALUE.
    """
    return RecordQuery(
        topic=topic,
        partitions=partitions or [],
        key_converter=key,
        value_converter=value,
        config=settings_of(settings),
        conditions=where or [],
        paths=select or [],
    )


def print_records(request: pb.WatchTopicRequest, address: str, output: Output) -> None:
    """Print records as they arrive, each as a line or as a document.

    With ``follow``, when the worker becomes unavailable, another one continues from the last
    position.
    """
    positions: list[ReadPosition] = []
    printed = 0

    async def read(client: ConnectClient) -> None:
        nonlocal positions, printed
        async with aclosing(client.watch_topic(request)) as responses:
            async for response in responses:
                for record in response.records:
                    if output is Output.TABLE:
                        say(plain(record_line(record)))
                    else:
                        print_event(record_document(request.query.topic, record), output)
                    printed += 1
                positions = list(response.positions) or positions

    async def follow() -> None:
        while True:
            try:
                await call(
                    worker_addresses(address),
                    lambda c: read(ConnectClient(c, author=author())),
                    server="worker",
                )
            except UnavailableError:
                if not positions:
                    raise
            del request.positions[:]
            request.positions.extend(positions)
            await asyncio.sleep(_RECONNECT_S)

    if request.follow:
        asyncio.run(follow())
    else:
        call_worker(address, read)
        if not printed and output is Output.TABLE:
            say("no records")


def _description(found: TopicDescription) -> dict[str, Any]:
    return {
        "name": found.name,
        "partitions": [
            {
                "partition": each.partition,
                "start_offset": each.start_offset,
                "end_offset": each.end_offset,
            }
            for each in found.partitions
        ],
        "retention_ms": (found.retention.ToMilliseconds() if found.HasField("retention") else None),
        "retention_bytes": (found.retention_bytes if found.HasField("retention_bytes") else None),
        "settings": dict(sorted(found.config.items())),
        "setting_origins": {
            each.name: topics_pb2.SettingOrigin.Name(each.origin).removeprefix("SETTING_ORIGIN_")
            for each in found.settings
        },
    }


def _setting_text(name: str, value: str) -> str:
    """A setting's value, with its meaning where the number does not show it."""
    if name.startswith("retention.") and value.startswith("-"):
        return f"{value}, no limit"
    if name.endswith(".ms") and value.isdecimal() and int(value) in range(1000, _SHOWN_AGE_MAX_MS):
        return f"{value}, {_age_text(timedelta(milliseconds=int(value)))}"
    return value


def _age_text(age: timedelta) -> str:
    return str(age).removesuffix(", 0:00:00")


def _origin_text(name: str, origin: topics_pb2.SettingOrigin.ValueType) -> str:
    if origin == topics_pb2.SETTING_ORIGIN_COORDINATOR:
        return f" (the coordinator's DROVER_TOPIC_{name.upper().replace('.', '_')})"
    text = _ORIGIN_TEXTS.get(origin)
    return f" ({text})" if text else ""
