"""The page with the audit events, and its filters."""

from dataclasses import dataclass
from typing import Self
from urllib.parse import urlencode

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.codec.common import encode_timestamp
from drover_gateway.console.command_lines import grpc_command
from drover_gateway.console.connectors_page import time_html
from drover_gateway.console.frame import AUDIT, CONNECTOR, commands, notice
from drover_gateway.console.html import Html, Node, join, tag
from drover_gateway.console.http import Form

_TEXT_MAX_CHARS = 300
_COLUMNS = ("Time", "Caller", "Call", "Connector", "Outcome", "Request", "From")
_SINCE_LABELS = {0: "all that is kept", 15: "15 minutes", 60: "an hour", 1_440: "a day"}


@dataclass(frozen=True, slots=True)
class AuditFilters:
    """Which events are shown: all of it is in the URL.

    Attributes:
        caller: Only calls of this principal; empty for all.
        call: Only this RPC; empty for all.
        outcome: Only this outcome; empty for all.
        since_minutes: Only the last minutes; 0 for all.
        after: The token of the page; empty for the first one.
    """

    caller: str = ""
    call: str = ""
    outcome: str = ""
    since_minutes: int = 0
    after: str = ""

    @classmethod
    def read(cls, query: Form) -> Self:
        """From a query; unknown values are left out."""
        since = query.one("since")
        minutes = int(since) if since.isascii() and since.isdecimal() and len(since) < 6 else 0
        return cls(
            caller=query.one("caller").strip()[:_TEXT_MAX_CHARS],
            call=query.one("call").strip()[:_TEXT_MAX_CHARS],
            outcome=query.one("outcome").strip()[:_TEXT_MAX_CHARS],
            since_minutes=minutes if minutes in _SINCE_LABELS else 0,
            after=query.one("after")[:_TEXT_MAX_CHARS],
        )

    def url(self, **changes: str) -> str:
        """The first page with these filters, or another one with ``after``."""
        fields = {
            "caller": self.caller,
            "call": self.call,
            "outcome": self.outcome,
            "since": str(self.since_minutes) if self.since_minutes else "",
            "after": "",
            **changes,
        }
        query = urlencode({key: value for key, value in fields.items() if value})
        return f"{AUDIT}?{query}" if query else AUDIT

    def request(self, now_ms: int) -> pb.ListAuditEventsRequest:
        """As a request."""
        since_ms = now_ms - self.since_minutes * 60_000
        return pb.ListAuditEventsRequest(
            page_token=self.after,
            principal=self.caller,
            call=self.call,
            outcome=self.outcome.upper(),
            since_time=encode_timestamp(since_ms) if self.since_minutes else None,
        )


def audit_html(filters: AuditFilters, found: pb.ListAuditEventsResponse) -> Html:
    """The page."""
    silent = (
        tag(
            "p",
            "Without the events of these workers, which did not answer: ",
            tag("bdi", ", ".join(found.silent_worker_ids)),
            class_="bad",
        )
        if found.silent_worker_ids
        else None
    )
    return join(
        _form(filters),
        silent,
        _table(found) if found.events else _empty(filters),
        tag("p", tag("a", "Older events", href=filters.url(after=found.next_page_token)))
        if found.next_page_token
        else None,
        tag(
            "p",
            "Changes, reads of records and refused calls. Each worker keeps its last 1,000 until it"
            " ends; the audit log has all of them.",
            class_="quiet-note",
        ),
        commands(
            "The same from the command line and by gRPC",
            [
                "drover cluster audit",
                grpc_command("ListAuditEvents"),
            ],
        ),
    )


def _form(filters: AuditFilters) -> Html:
    options = [
        tag("option", label, value=minutes, selected=minutes == filters.since_minutes)
        for minutes, label in _SINCE_LABELS.items()
    ]
    return tag(
        "form",
        _field("Caller", "caller", filters.caller),
        _field("Call", "call", filters.call, "PauseConnector"),
        _field("Outcome", "outcome", filters.outcome, "PERMISSION_DENIED"),
        tag("label", "The last", tag("select", *options, name="since")),
        tag("button", "Apply"),
        tag("a", "Clear", href=AUDIT) if filters != AuditFilters() else None,
        action=AUDIT,
        method="get",
        role="search",
        class_="plain-filters",
        aria_label="Filters",
    )


def _field(label: str, name: str, value: str, example: str = "") -> Html:
    given = tag(
        "input",
        type="search",
        name=name,
        value=value,
        placeholder=f"such as {example}" if example else None,
        maxlength=_TEXT_MAX_CHARS,
        autocomplete="off",
    )
    return tag("label", label, given)


def _empty(filters: AuditFilters) -> Html:
    if filters != AuditFilters():
        return notice(
            "empty", "No event matches", tag("p", tag("a", "Show all events", href=AUDIT))
        )
    return notice(
        "empty",
        "There are no events yet",
        tag("p", "Each change of a connector is one, such as:"),
        tag("pre", tag("code", "drover connector pause NAME"), tabindex=0),
    )


def _table(found: pb.ListAuditEventsResponse) -> Html:
    return tag(
        "div",
        tag(
            "table",
            tag("caption", "Audit events, the newest first", class_="quiet"),
            tag("thead", tag("tr", *(tag("th", each, scope="col") for each in _COLUMNS))),
            tag("tbody", *(_row(each) for each in found.events)),
        ),
        class_="wide",
        tabindex=0,
        role="group",
        aria_label="Audit events",
    )


def _row(event: pb.AuditEvent) -> Html:
    is_good = event.outcome in ("OK", "OPENED", "STARTED")
    outcome: list[Node] = [event.outcome, tag("small", event.reason) if event.reason else None]
    return tag(
        "tr",
        tag("td", time_html(event.event_time.ToMilliseconds())),
        tag("td", _link(event.principal, AuditFilters(caller=event.principal).url())),
        tag("th", _link(event.call, AuditFilters(call=event.call).url()), scope="row"),
        tag("td", _connector(event.connector), class_="long"),
        tag("td", *outcome, class_=None if is_good else "bad"),
        tag("td", _request(event), class_="long"),
        tag("td", tag("bdi", event.peer), tag("small", f"at {event.worker_id}"), class_="long"),
    )


def _link(text: str, url: str) -> Node:
    return tag("a", tag("bdi", text), href=url) if text else "unknown"


def _connector(name: str) -> Node:
    if not name:
        return None
    return tag("a", tag("bdi", name), href=f"{CONNECTOR}?{urlencode({'name': name})}")


def _request(event: pb.AuditEvent) -> Node:
    shown = [event.request, f"request id {event.request_id}" if event.request_id else ""]
    text = "\n".join(each for each in shown if each)
    if not text:
        return None
    return tag("details", tag("summary", "Show"), tag("pre", text, tabindex=0))
