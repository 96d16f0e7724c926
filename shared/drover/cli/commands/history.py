"""``drover connector history`` and ``rollback``: a connector's changes, and a return to one."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC
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
    complain,
    confirm,
    plain,
    print_document,
    print_table,
    say,
    shortened,
)
from drover.cli.names import NameArgument
from drover.cli.output.connectors import connector_document, target_state
from drover.cli.warnings import print_warnings

_RANGES_MAX_LENGTH = 60


def history(
    name: NameArgument, address: AddressOption = "", output: OutputOption = Output.TABLE
) -> None:
    """Show the changes to a connector with time and author, newest first, and changed values."""
    changes = call_worker(address, lambda c: c.get_connector_history(name))
    if output is not Output.TABLE:
        print_document([_document(change) for change in changes], output)
        return
    rows = [
        (str(change.revision), _when(change), change.author or "unknown", _what(change))
        for change in changes
    ]
    print_table(("VERSION", "WHEN", "WHO", "WHAT"), rows)
    for line in value_lines(changes):
        say(plain(line))


def value_lines(changes: Sequence[pb.ConnectorChange]) -> Iterator[str]:
    """The values that each version changed, newest first; the first version of a config none.

    Secrets are masked, so the values before and after a changed secret are equal.
    """
    before: Mapping[str, str] = {}
    lines: list[list[str]] = []
    for change in reversed(changes):
        if change.HasField("deletion"):
            before = {}
        if not change.HasField("config_version"):
            continue
        config = change.config_version
        if before:
            lines.append([f"version {change.revision}", *_changed_values(before, config)])
        before = config.config
    for each in reversed(lines):
        if len(each) > 1:
            yield ""
            yield from each


def _changed_values(before: Mapping[str, str], after: pb.ConfigVersion) -> Iterator[str]:
    for key in after.added_keys:
        yield f"  + {key}: {after.config.get(key, '')}"
    for key in after.removed_keys:
        yield f"  - {key}: {before.get(key, '')}"
    for key in after.changed_keys:
        yield f"  ~ {key}: {before.get(key, '')} -> {after.config.get(key, '')}"


def rollback(
    name: NameArgument,
    version: Annotated[
        int,
        typer.Argument(
            metavar="VERSION", min=1, help="Version of a config in `drover connector history`."
        ),
    ],
    yes: YesOption = False,
    address: AddressOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Restore an earlier config of a connector as a new version; shows the changes first."""
    if not yes:
        _confirm(name, version, call_worker(address, lambda c: c.get_connector_history(name)))
    answer = call_worker(address, lambda c: c.rollback_connector(name, version))
    if output is not Output.TABLE:
        print_document(connector_document(answer.connector) | {"created": answer.created}, output)
    else:
        what = "recreated" if answer.created else "rolled back"
        say(
            plain(
                f"{what} {name}: its config is now version {answer.connector.revision}, equal to "
                f"version {version}"
            )
        )
    print_warnings(answer.connector.config, address)


def _confirm(name: str, version: int, changes: Sequence[pb.ConnectorChange]) -> None:
    configs = {c.revision: c.config_version for c in changes if c.HasField("config_version")}
    target = configs.get(version)
    if target is None:
        versions = ", ".join(map(str, sorted(configs))) or "none"
        text = f"the history of {name} has no config version {version}; it has: {versions}"
        raise CliError(plain(text))
    present = next((config for config in configs.values() if config.current), None)
    if not target.differing_keys:
        complain(f"version {version} equals the present config")
    else:
        rows = [(key, _value(present, key), _value(target, key)) for key in target.differing_keys]
        print_table(("SETTING", "NOW", f"VERSION {version}"), rows)
    confirm(f"Roll {plain(name)} back to version {version}?", yes=False)


def _value(config: pb.ConfigVersion | None, key: str) -> str:
    return config.config[key] if config is not None and key in config.config else ""


def _when(change: pb.ConnectorChange) -> str:
    if not change.HasField("change_time"):
        return "unknown"
    moment = change.change_time.ToDatetime(tzinfo=UTC).astimezone()
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def _what(change: pb.ConnectorChange) -> str:
    match change.WhichOneof("change"):
        case "config_version":
            return _config_change(change.config_version)
        case "deletion":
            return "deleted"
        case "target_state":
            return f"target state {target_state(change.target_state)}"
        case "restart":
            return f"restart{_extent(change.restart)}"
        case "dead_letters":
            letters = change.dead_letters
            what = "discarded" if letters.discarded else "replay of"
            reason = f": {letters.reason}" if letters.reason else ""
            return f"{what} dead letters {letters.topic} ({_shortened(letters.ranges)}){reason}"
        case _:
            return "unknown"


def _config_change(config: pb.ConfigVersion) -> str:
    marks = (("+", config.added_keys), ("-", config.removed_keys), ("~", config.changed_keys))
    parts = [f"{mark}{key}" for mark, keys in marks for key in keys]
    text = f"config: {' '.join(parts) if parts else 'unchanged'}"
    return f"{text} (current)" if config.current else text


def _extent(restart: pb.RestartDemand) -> str:
    tasks = " with tasks" if restart.include_tasks else ""
    return f"{tasks}, only FAILED" if restart.only_failed else tasks


def _shortened(text: str) -> str:
    return shortened(text, _RANGES_MAX_LENGTH)


def _document(change: pb.ConnectorChange) -> dict[str, Any]:
    document: dict[str, Any] = {
        "version": change.revision,
        "time": change.change_time.ToJsonString() if change.HasField("change_time") else None,
        "author": change.author,
    }
    match change.WhichOneof("change"):
        case "config_version":
            config = change.config_version
            document |= {
                "change": "config",
                "current": config.current,
                "added": list(config.added_keys),
                "removed": list(config.removed_keys),
                "changed": list(config.changed_keys),
                "config": dict(sorted(config.config.items())),
            }
        case "deletion":
            document["change"] = "deleted"
        case "target_state":
            document["change"] = "target_state"
            document["target_state"] = target_state(change.target_state)
        case "restart":
            document["change"] = "restart"
            document["include_tasks"] = change.restart.include_tasks
            document["only_failed"] = change.restart.only_failed
        case "dead_letters":
            letters = change.dead_letters
            document["change"] = "dead_letters"
            document["action"] = "discard" if letters.discarded else "replay"
            document["topic"] = letters.topic
            document["ranges"] = letters.ranges.split(",")
            document["reason"] = letters.reason
        case _:
            document["change"] = "unknown"
    return document
