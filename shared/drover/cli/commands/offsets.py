"""``drover connector offsets``: shows, alters and resets a connector's committed offsets.

``--file`` accepts the output of ``-o json`` and of Kafka Connect's REST API.
"""

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.caller import call_worker
from drover.cli.console import (
    AddressOption,
    CliError,
    Output,
    OutputOption,
    YesOption,
    confirm,
    plain,
    print_document,
    print_table,
    say,
)
from drover.cli.definitions import file_label, read_text
from drover.cli.names import NameArgument
from drover.cli.output.offset_moves import move_text
from drover.cli.output.times import iso_time
from drover.cli.since import time_ms_of

#: Shown with a sink's offsets, ignored in a file.
_SHOWN_BESIDE = {"end_offset", "lag"}


def offsets(
    name: NameArgument,
    file: Annotated[
        str,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="Alter the offsets listed in a file like the output of `-o json` (null removes "
            "one); - for standard input. The connector must be STOPPED.",
            show_default=False,
        ),
    ] = "",
    adopt: Annotated[
        bool,
        typer.Option(
            "--adopt",
            help="Commit the offsets behind the records in the output of a sink whose offsets were "
            "lost. The connector must be STOPPED.",
        ),
    ] = False,
    to_time: Annotated[
        str,
        typer.Option(
            "--to-time",
            metavar="TIME",
            help="Move a sink to the first record of each partition at or after this time, or to "
            "the end of a partition without one: ISO 8601 such as 2026-01-31T12:00:00Z (without a "
            "time zone in UTC), or a duration before now such as 1h or 1d. The difference is shown "
            "first. The connector must be STOPPED.",
            show_default=False,
        ),
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --to-time: show the difference only.")
    ] = False,
    reset: Annotated[
        bool,
        typer.Option(
            "--reset",
            help="Remove all offsets; the output stays. The connector must be STOPPED.",
        ),
    ] = False,
    yes: YesOption = False,
    address: AddressOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Show a connector's committed offsets (a sink's with lag), or alter a STOPPED connector's."""
    if bool(file) + adopt + bool(to_time) + reset > 1:
        raise CliError("give one of --file, --adopt, --to-time and --reset, not both")
    if dry_run and not to_time:
        raise CliError("--dry-run belongs to --to-time")
    if file:
        changes = parse_offsets(read_text(file), file_label(file))
        message = call_worker(address, lambda c: c.alter_connector_offsets(name, changes))
    elif adopt:
        message = call_worker(address, lambda c: c.adopt_connector_offsets(name))
    elif to_time:
        _move(name, time_ms_of(to_time, "--to-time"), address, output, dry_run=dry_run, yes=yes)
        return
    elif reset:
        confirm(f"Remove all offsets of {plain(name)}?", yes=yes)
        message = call_worker(address, lambda c: c.reset_connector_offsets(name))
    else:
        _show(call_worker(address, lambda c: c.get_connector_offsets(name)), output)
        return
    if output is not Output.TABLE:
        print_document({"name": name, "message": message}, output)
    else:
        say(plain(f"{name}: {message}"))


def _move(
    name: str, time_ms: int, address: str, output: Output, *, dry_run: bool, yes: bool
) -> None:
    """Move a sink's offsets to a time, after the difference was shown."""
    found = call_worker(address, lambda c: c.find_connector_offsets(name, time_ms))
    changes = [
        each.found
        for each in found
        if each.found.HasField("offset_json")
        and each.found.offset_json != each.committed_offset_json
    ]
    if output is Output.TABLE:
        _show_moves(found)
    message = "nothing to change" if not changes else "nothing was written"
    if changes and not dry_run:
        count = f"{len(changes)} offset{'' if len(changes) == 1 else 's'}"
        confirm(f"Write {count} of {plain(name)}?", yes=yes)
        message = call_worker(address, lambda c: c.alter_connector_offsets(name, changes))
    if output is Output.TABLE:
        say(plain(f"{name}: {message}"))
        return
    print_document(
        {
            "name": name,
            "message": message,
            "time": iso_time(time_ms),
            "offsets": [_move_document(each) for each in found],
        },
        output,
    )


def _show_moves(found: Sequence[pb.FoundOffset]) -> None:
    rows = [
        (
            _readable(each.found.partition_json),
            _readable(each.committed_offset_json) if each.committed_offset_json else "none",
            _readable(each.found.offset_json) if each.found.offset_json else "unchanged",
            move_text(each),
        )
        for each in found
    ]
    print_table(("PARTITION", "OFFSET", "AFTERWARDS", "CHANGE"), rows, empty="no partitions")


def _move_document(each: pb.FoundOffset) -> dict[str, Any]:
    before, after = each.committed_offset_json, each.found.offset_json
    return {
        "partition": json.loads(each.found.partition_json),
        "committed_offset": json.loads(before) if before else None,
        "offset": json.loads(after) if after else None,
        "is_end": each.is_end,
    }


def parse_offsets(text: str, label: str) -> list[pb.ConnectorOffset]:
    """Offsets in JSON or YAML: ``{"offsets": [{"partition": {…}, "offset": {…} or null}, …]}``.

    Raises:
        CliError: The text is malformed; the message has the file and the position.
    """
    try:
        document = json.loads(text) if text.lstrip()[:1] == "{" else _load_yaml(text)
    except (ValueError, RecursionError) as error:
        raise CliError(f"{label}: {error}") from None
    entries = document.get("offsets") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise CliError(f'{label}: must be {{"offsets": [{{"partition": …, "offset": …}}, …]}}')
    return [_parse_entry(entry, f"{label}: offsets[{at}]") for at, entry in enumerate(entries)]


def _load_yaml(text: str) -> Any:
    """The content of YAML without aliases, which could make a short text a huge value."""
    import yaml

    try:
        events = yaml.parse(text, Loader=yaml.SafeLoader)
        if any(isinstance(event, yaml.AliasEvent) for event in events):
            raise ValueError("has an alias: write the value itself")
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None


def _parse_entry(entry: Any, label: str) -> pb.ConnectorOffset:
    if not isinstance(entry, dict) or entry.keys() - _SHOWN_BESIDE != {"partition", "offset"}:
        raise CliError(f'{label} must have "partition" and "offset" (null to remove it)')
    try:
        return pb.ConnectorOffset(
            partition_json=_compact(entry["partition"]),
            offset_json=None if entry["offset"] is None else _compact(entry["offset"]),
        )
    except (TypeError, ValueError) as error:
        raise CliError(f"{label} is not JSON: {error}") from None


def _show(found: Sequence[pb.ConnectorOffset], output: Output) -> None:
    if output is not Output.TABLE:
        print_document(
            {
                "offsets": [
                    {
                        "partition": json.loads(each.partition_json),
                        "offset": json.loads(each.offset_json),
                        **(
                            {"end_offset": each.end_offset, "lag": each.lag}
                            if each.HasField("end_offset")
                            else {}
                        ),
                    }
                    for each in found
                ]
            },
            output,
        )
        return
    rows = [(_readable(each.partition_json), _readable(each.offset_json)) for each in found]
    if not any(each.HasField("end_offset") for each in found):
        print_table(("PARTITION", "OFFSET"), rows, empty="none yet")
        return
    lags = [
        (str(each.end_offset), str(each.lag)) if each.HasField("end_offset") else ("-", "-")
        for each in found
    ]
    table = [(*row, *lag) for row, lag in zip(rows, lags, strict=True)]
    if len(found) > 1:
        table.append(("total", "", "", str(sum(each.lag for each in found))))
    print_table(("PARTITION", "OFFSET", "END", "LAG"), table)


def _readable(text: str) -> str:
    """``kafka_topic=t kafka_partition=0`` for the JSON of an object."""
    return " ".join(
        f"{key}={value if isinstance(value, str) else _compact(value)}"
        for key, value in json.loads(text).items()
    )


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
