"""The tab with a connector's history, and the pages of a rollback."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.output.connectors import target_state
from drover.codec.common import decode_timestamp
from drover.model.command_lines import drover_command
from drover.model.secrets import is_mask
from drover_gateway.console.command_lines import grpc_command
from drover_gateway.console.connectors_page import form_value, time_html
from drover_gateway.console.frame import CONNECTOR, Visit, commands, notice
from drover_gateway.console.html import Html, Node, join, tag
from drover_gateway.console.links import connector_url

ROLLBACK = "/ui/connector/rollback"
#: The maximum number of changes of a page.
CHANGES_MAX = 100
_VALUE_MAX_CHARS = 500


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting that differs; a value is None where the setting is not there."""

    name: str
    before: str | None
    after: str | None


def differences_of(
    names: Sequence[str], before: Mapping[str, str] | None, after: Mapping[str, str]
) -> list[Difference]:
    """The settings of ``names``; ``before`` is None if the earlier config is not known."""
    earlier = before or {}
    return [Difference(each, earlier.get(each), after.get(each)) for each in sorted(names)]


def history_html(
    visit: Visit, name: str, changes: Sequence[pb.ConnectorChange], *, has_more: bool
) -> Html:
    """The tab."""
    if not changes:
        return notice("empty", "There is no history", tag("p", "The next change starts it."))
    may_roll_back = visit.rights.may("RollbackConnector", name)
    items = [
        _change(name, change, before, may_roll_back=may_roll_back)
        for change, before in zip(changes, _configs_before(changes), strict=True)
    ]
    return join(
        tag("p", "Newest first, as far back as the config store keeps changes."),
        tag("ol", *items[:CHANGES_MAX], class_="lines history"),
        tag("p", "Earlier changes are left out; the command below lists all of them.")
        if has_more or len(changes) > CHANGES_MAX
        else None,
        commands(
            "The same from the command line and by gRPC",
            [
                drover_command("connector history", name),
                grpc_command("GetConnectorHistory", {"name": name}),
            ],
        ),
    )


def rollback_html(
    visit: Visit, name: str, version: pb.ConnectorChange, present: pb.ConnectorChange | None
) -> Html:
    """What a rollback will change, before it is done."""
    target = version.config_version
    back = connector_url(name, "history")
    now = None if present is None else present.config_version.config
    if present is not None and not target.differing_keys:
        return notice(
            "empty",
            f"Revision {version.revision} equals the present config",
            tag("p", tag("a", "Back to the history", href=back)),
        )
    names = target.differing_keys if present is not None else sorted(target.config)
    expected = present.revision if present is not None else 0
    what = (
        f"The config of revision {version.revision} is written as a new revision; the present one,"
        f" {expected}, stays in the history. Its tasks restart."
        if present is not None
        else "The connector is created again with this config."
    )
    return join(
        tag("p", what),
        _differences(differences_of(names, now, target.config), ("Setting", "Now", "Afterwards")),
        visit.form(
            ROLLBACK,
            tag("input", type="hidden", name="name", value=form_value(name)),
            tag("input", type="hidden", name="revision", value=version.revision),
            tag("input", type="hidden", name="expected", value=expected),
            tag("button", f"Roll back to revision {version.revision}", class_="danger"),
            tag("a", "Cancel", href=back),
            class_="decide",
        ),
        commands(
            "The same from the command line and by gRPC",
            [
                drover_command("connector rollback", name, str(version.revision)),
                grpc_command(
                    "RollbackConnector",
                    {"name": name, "revision": version.revision, "expected_revision": expected},
                ),
            ],
        ),
    )


def conflict_html(
    name: str, revision: int, shown: pb.ConnectorChange | None, now: pb.ConnectorChange | None
) -> Html:
    """What has changed since the page was shown; nothing was written."""
    if now is None:
        text = "It has been deleted since the page was loaded."
        table = None
    else:
        earlier = shown.config_version.config if shown is not None else {}
        present = now.config_version.config
        names = [
            each
            for each in earlier.keys() | present.keys()
            if earlier.get(each) != present.get(each)
        ]
        who = now.author or "an unknown user"
        text = f"{who} wrote revision {now.revision} since the page was loaded."
        table = _differences(
            differences_of(names, earlier, present), ("Setting", "You saw", "It is now")
        )
    return notice(
        "error",
        "Another user changed the connector",
        tag("p", text, " Nothing was written."),
        table,
        tag("p", tag("a", "Compare again", href=rollback_url(name, revision))),
        tag("p", tag("a", "Back to the history", href=connector_url(name, "history"))),
    )


def done_html(name: str, revision: int, connector: pb.Connector, *, created: bool) -> Html:
    """The result of a rollback."""
    what = "was created again" if created else "was rolled back"
    text = f" {what}: its config is revision {connector.revision}, equal to revision {revision}."
    return join(
        tag("p", tag("bdi", name), text, class_="good", role="status"),
        tag("p", tag("a", "To the connector", href=connector_url(name))),
        tag("p", tag("a", "Back to the history", href=connector_url(name, "history"))),
    )


def rollback_url(name: str, revision: int) -> str:
    """The page with the difference to a revision."""
    query = urlencode({"name": name, "tab": "history", "revision": revision})
    return f"{CONNECTOR}?{query}"


def _configs_before(
    changes: Sequence[pb.ConnectorChange],
) -> Iterator[Mapping[str, str] | None]:
    """For each change the config before it; None if it is not known or there was none."""
    found: list[Mapping[str, str] | None] = []
    before: Mapping[str, str] | None = None
    for change in reversed(changes):
        found.append(before)
        if change.HasField("deletion"):
            before = None
        elif change.HasField("config_version"):
            before = change.config_version.config
    return reversed(found)


def _change(
    name: str,
    change: pb.ConnectorChange,
    before: Mapping[str, str] | None,
    *,
    may_roll_back: bool,
) -> Html:
    when: Node = "unknown time"
    if change.HasField("change_time"):
        when = time_html(decode_timestamp(change.change_time))
    return tag(
        "li",
        tag("span", when, class_="now"),
        tag("bdi", change.author or "unknown user", class_="who"),
        *_what(name, change, before, may_roll_back=may_roll_back),
    )


def _what(
    name: str,
    change: pb.ConnectorChange,
    before: Mapping[str, str] | None,
    *,
    may_roll_back: bool,
) -> Iterator[Node]:
    match change.WhichOneof("change"):
        case "config_version":
            version = change.config_version
            url = rollback_url(name, change.revision) if may_roll_back else ""
            yield from _config(change.revision, version, before, url)
        case "deletion":
            yield tag("span", "deleted the connector")
        case "target_state":
            yield tag(
                "span", f"set the target state to {target_state(change.target_state).lower()}"
            )
        case "restart":
            tasks = " with its tasks" if change.restart.include_tasks else ""
            only = ", where they had failed" if change.restart.only_failed else ""
            yield tag("span", f"restarted the connector{tasks}{only}")
        case "dead_letters":
            letters = change.dead_letters
            what = "discarded" if letters.discarded else "requested a replay of"
            reason = f": {letters.reason}" if letters.reason else ""
            yield tag("span", f"{what} dead letters {letters.topic} {letters.ranges}{reason}")
        case _:
            yield tag("span", "made a change that this version of the console cannot show")


def _config(
    revision: int, version: pb.ConfigVersion, before: Mapping[str, str] | None, url: str
) -> Iterator[Node]:
    """A config that was written; ``url`` leads to its rollback, if the caller may do that."""
    yield tag("span", f"wrote the config of revision {revision}")
    if version.current:
        yield tag("strong", "present config")
    elif url and (version.differing_keys or before is None):
        link = tag("a", f"Roll back to {revision}…", href=url)
        yield tag("span", link)
    names = [*version.added_keys, *version.removed_keys, *version.changed_keys]
    if not names:
        yield tag("span", "no setting changed", class_="now")
        return
    count = f"{len(names):,} setting{'' if len(names) == 1 else 's'}"
    table = _differences(
        differences_of(names, before, version.config),
        ("Setting", "Before", "After"),
        label=f"Changes of revision {revision}",
    )
    # a first config is long, and all of it is new
    first = before is None and not version.removed_keys and not version.changed_keys
    yield tag(
        "details",
        tag("summary", count),
        table,
        id=f"change-{revision}",
        open=not first,
        class_="trace",
    )


def _differences(
    found: Sequence[Difference], head: Sequence[str], *, label: str = "The difference"
) -> Html:
    rows = [
        tag(
            "tr",
            tag("th", tag("bdi", each.name), scope="row"),
            tag("td", *_value(each.before), class_="before"),
            tag("td", *_value(each.after), *_secret(each), class_="after"),
        )
        for each in found
    ]
    table = tag(
        "table",
        tag("thead", tag("tr", *(tag("th", each, scope="col") for each in head))),
        tag("tbody", *rows),
        aria_label=label,
        class_="settings",
    )
    return tag("div", table, class_="wide", tabindex=0, role="group", aria_label=f"{label}, table")


def _value(value: str | None) -> Sequence[Node]:
    if value is None:
        return (tag("small", "none"),)
    cut = len(value) - _VALUE_MAX_CHARS
    more = tag("small", f"{cut:,} more characters") if cut > 0 else None
    return (tag("code", value[:_VALUE_MAX_CHARS]), more)


def _secret(difference: Difference) -> Sequence[Node]:
    masked = difference.after is not None and is_mask(difference.after)
    if masked and difference.before == difference.after:
        return (tag("small", "a secret, which differs"),)
    return ()
