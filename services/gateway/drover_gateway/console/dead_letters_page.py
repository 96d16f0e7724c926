"""Dead letters as HTML."""

from collections.abc import Iterable, Sequence

from drover.api.common.v1.preview_pb2 import Preview, PreviewedRow
from drover.api.common.v1.topics_pb2 import TopicRecord
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.model.command_lines import drover_command
from drover.model.letter_states import LetterState, StatesNow
from drover_gateway.console.frame import Visit, commands, notice
from drover_gateway.console.html import Html, Node, join, tag
from drover_gateway.console.json_texts import document_of, indented
from drover_gateway.console.letter_groups import (
    CHECK,
    DISCARD,
    REPLAY,
    RUN,
    Cause,
    Group,
    Range,
    Repair,
    Selection,
    cause_of,
    digest_of,
    headers_of,
    letter_url,
    list_url,
    origin_of,
    original_of,
)
from drover_gateway.console.links import connector_url, topic_url
from drover_gateway.console.parts import table_html
from drover_gateway.console.topic_page import part_html, time_text

_MESSAGE_MAX_CHARS = 200
_UNKNOWN_CAUSE = (
    "A dead letter without headers has no known cause. With"
    " errors.deadletterqueue.context.headers.enable=true in the config, the next dead letters have"
    " their cause, stage and message in headers. The page of a dead letter shows what its converter"
    " reports now."
)
_SKIPPED_SHOWN = 100
_RANGES_SHOWN = 20
_TRACE = "exception.stacktrace"
_REPLAY_CALL, _DISCARD_CALL = "ReplayDeadLetters", "DiscardDeadLetters"
_STATES = tuple(LetterState)


def connectors_html(found: Sequence[tuple[str, str, int]]) -> Html:
    """Connectors with their queues, and the number of their dead letters since their creation."""
    if not found:
        return notice(
            "empty",
            "No connector has a dead letter queue",
            tag("p", "Records that fail are kept with these settings of a connector:"),
            tag(
                "pre",
                tag(
                    "code",
                    "errors.tolerance: all\n"
                    "errors.deadletterqueue.topic.name: TOPIC\n"
                    "errors.deadletterqueue.context.headers.enable: true",
                ),
                tabindex=0,
            ),
        )
    rows = [
        tag(
            "tr",
            tag("th", tag("a", tag("bdi", name), href=list_url(name)), scope="row"),
            tag("td", f"{count:,}", class_="num"),
            tag("td", tag("a", tag("bdi", topic), href=topic_url(topic))),
        )
        for name, topic, count in found
    ]
    return table_html("Dead letters by connector", ("Connector", "Since creation", "Topic"), rows)


def none_html(topic: str) -> Html:
    """Nothing has failed yet."""
    return notice(
        "empty",
        "There are no dead letters",
        tag("p", "The topic ", tag("bdi", topic), " does not exist yet: no record has failed."),
    )


def forbidden_html(visit: Visit, connector: str, message: str) -> Html:
    """The caller may not read the dead letters, but may replay them."""
    return join(
        notice(
            "forbidden",
            "Dead letters are records, which need another role",
            tag("p", message),
        ),
        _actions(visit, Selection(connector)),
    )


def groups_html(
    visit: Visit, connector: str, topic: str, groups: Sequence[Group], cut: int
) -> Html:
    """The causes; ``cut`` is the number of dead letters that were read if there are more."""
    about = tag(
        "p",
        tag("a", "Connector ", tag("bdi", connector), href=connector_url(connector)),
        " · ",
        tag("a", "Topic ", tag("bdi", topic), href=topic_url(topic)),
    )
    if not groups:
        text = "No record of this connector has become a dead letter, or retention removed them."
        return join(about, notice("empty", "There are no dead letters", tag("p", text)))
    note = f"The last {cut:,} dead letters are counted; there are more." if cut else None
    head = ("Cause", "Stage", *(each.value.capitalize() for each in _STATES), "Latest")
    rows = [_group(connector, each) for each in groups]
    open_count = sum(each.counts[LetterState.OPEN] for each in groups)
    return join(
        about,
        tag("p", note, class_="quiet-note") if note else None,
        table_html("Dead letters by cause", head, rows),
        None
        if all(each.cause.stage or each.cause.error_class for each in groups)
        else tag("p", _UNKNOWN_CAUSE, class_="quiet-note"),
        _actions(visit, Selection(connector)) if open_count else tag("p", "None is open."),
        commands(
            "The same from the command line and by gRPC",
            [drover_command("dlq list", connector)],
        ),
    )


def _group(connector: str, group: Group) -> Html:
    latest: Node = "-"
    if group.latest is not None:
        place = f"{group.latest.partition}:{group.latest.offset}"
        url = letter_url(connector, group.latest.partition, group.latest.offset)
        latest = [
            tag("a", place, href=url),
            " ",
            tag("small", tag("bdi", _short(group.message))),
        ]
    name = group.cause.error_class or "unknown"
    url = list_url(connector, group.cause)
    return tag(
        "tr",
        tag("th", tag("a", tag("bdi", name), href=url), scope="row"),
        tag("td", tag("bdi", group.cause.stage or "-")),
        *(tag("td", f"{group.counts[each]:,}", class_="num") for each in _STATES),
        tag("td", latest, class_="wrapped"),
    )


def cause_html(
    visit: Visit,
    connector: str,
    cause: Cause,
    letters: Sequence[TopicRecord],
    states: StatesNow,
    count_max: int,
) -> Html:
    """The last dead letters of a cause, of which some can be selected."""
    name = cause.error_class or "unknown cause"
    heading = tag("h2", tag("bdi", name), f" at {cause.stage}" if cause.stage else None)
    back = tag("p", tag("a", "All causes", href=list_url(connector)))
    if not letters:
        return join(heading, notice("empty", "There are no dead letters of this cause"), back)
    rows = [_letter_row(connector, each, states) for each in reversed(letters)]
    head = ("Select", "Letter", "Time", "Record", "State", "Message")
    note = f"These are the last {count_max:,}." if len(letters) >= count_max else None
    every = tag(
        "label",
        tag("input", type="checkbox", name="every", value="cause"),
        " all open ones of this cause" if cause.has_conditions else " all open ones of this list",
    )
    return join(
        heading,
        tag("p", note, class_="quiet-note") if note else None,
        visit.form(
            CHECK,
            _hidden(
                [("connector", connector), ("stage", cause.stage), ("cause", cause.error_class)]
            ),
            table_html("Dead letters", head, rows),
            tag("p", every),
            _buttons(visit, connector),
        ),
        back,
    )


def _letter_row(connector: str, letter: TopicRecord, states: StatesNow) -> Html:
    place = f"{letter.partition}:{letter.offset}"
    state = states.state_of(letter.partition, letter.offset)
    box = None
    if state is LetterState.OPEN:
        box = tag(
            "input", type="checkbox", name="letter", value=place, aria_label=f"Select {place}"
        )
    headers = headers_of(letter)
    return tag(
        "tr",
        tag("td", box),
        tag(
            "th",
            tag("a", place, href=letter_url(connector, letter.partition, letter.offset)),
            scope="row",
        ),
        tag("td", time_text(letter)),
        tag("td", tag("bdi", origin_of(letter) or "-")),
        tag("td", _state(connector, letter, states)),
        tag("td", tag("bdi", _short(headers.get("exception.message", ""))), class_="wrapped"),
    )


def _state(connector: str, letter: TopicRecord, states: StatesNow) -> list[Node]:
    """The state, with a link to the repaired dead letter."""
    found: list[Node] = [states.state_of(letter.partition, letter.offset).value]
    new_offset = states.repaired_as(letter.partition, letter.offset)
    if new_offset is not None:
        url = letter_url(connector, letter.partition, new_offset)
        found += [" as ", tag("a", f"{letter.partition}:{new_offset}", href=url)]
    return found


def letter_html(
    visit: Visit,
    connector: str,
    topic: str,
    letter: TopicRecord,
    states: StatesNow,
    entered: Repair | None = None,
    faults: Sequence[str] = (),
) -> Html:
    """One dead letter: what failed, its record, and what can be done. After a repair that was not
    accepted, ``entered`` is what was entered, and ``faults`` is what is wrong with it.
    """
    headers = headers_of(letter)
    state = states.state_of(letter.partition, letter.offset)
    place = f"{letter.partition}:{letter.offset}"
    facts: list[tuple[str, Node]] = [
        ("state", _state(connector, letter, states)),
        ("step that failed", headers.get("stage", "unknown")),
        ("error", headers.get("exception.class.name", "unknown")),
        ("record", origin_of(letter) or "unknown"),
        ("time", time_text(letter) or "unknown"),
    ]
    original = original_of(letter)
    if original is not None:
        text = f"{original[0]}:{original[1]}"
        facts.append(("repairs", tag("a", text, href=letter_url(connector, *original))))
    own = [each for each in letter.headers if not each.key.startswith("__connect.errors.")]
    url = letter_url(connector, letter.partition, letter.offset)
    key = letter.key if letter.HasField("key") else None
    value = letter.value if letter.HasField("value") else None
    rows = [
        tag("div", tag("dt", tag("bdi", each.key)), tag("dd", tag("bdi", each.value)))
        for each in own
    ]
    trace = headers.get(_TRACE, "")
    shown = [
        *part_html("Key", key, "null: the record has no key", url, is_whole=True),
        *part_html("Value", value, "null: a tombstone", url, is_whole=True),
    ]
    return join(
        tag("h2", f"Dead letter {place}"),
        tag(
            "dl",
            *(tag("div", tag("dt", what), tag("dd", tag("bdi", text))) for what, text in facts),
            class_="facts",
        ),
        tag("p", tag("bdi", headers.get("exception.message", "")), class_="bad"),
        tag("details", tag("summary", "Stack trace"), tag("pre", tag("code", trace), tabindex=0))
        if trace
        else None,
        tag("p", "Not decoded: ", tag("bdi", letter.error), class_="quiet-note")
        if letter.error
        else None,
        tag(
            "div",
            *shown,
            tag("h3", "Headers") if rows else None,
            tag("dl", *rows, class_="headers") if rows else None,
            tag(
                "details",
                tag("summary", "As JSON"),
                tag("pre", tag("code", indented(document_of(topic, letter))), tabindex=0),
            ),
            class_="record-body",
        ),
        join(
            _repair(visit, connector, letter, entered or Repair(), faults)
            if visit.rights.may(_REPLAY_CALL, connector)
            else None,
            _actions(visit, Selection(connector, letters=((letter.partition, letter.offset),))),
        )
        if state is LetterState.OPEN
        else None,
        commands(
            "The same from the command line",
            [drover_command("dlq show", connector, place)],
        ),
        tag(
            "p",
            tag("a", "All of this cause", href=list_url(connector, cause_of(letter))),
            " · ",
            tag("a", "All causes", href=list_url(connector)),
        ),
    )


# actions


def _repair(
    visit: Visit, connector: str, letter: TopicRecord, entered: Repair, faults: Sequence[str]
) -> Html:
    heading = tag("h2", "Repair it, and replay it")
    if letter.truncated:
        text = "The record is too large to be changed here: use drover dlq replay --repair FILE."
        return tag("section", heading, tag("p", text))
    selection = Selection(connector, letters=((letter.partition, letter.offset),))
    fields = [*selection.fields(), ("action", REPLAY)]
    areas = []
    for name in ("key", "value"):
        present = indented(getattr(letter, name)) if letter.HasField(name) else "null"
        text = entered.parts.get(name, present)
        fields.append((f"{name}_digest", digest_of(present)))
        areas.append(
            tag(
                "label",
                name.capitalize(),
                tag(
                    "textarea",
                    # a line end after the start tag is not part of the text
                    f"\n{text}",
                    name=name,
                    rows=min(20, text.count("\n") + 2),
                    spellcheck="false",
                    autocomplete="off",
                ),
            )
        )
    problems = [tag("li", tag("bdi", each)) for each in faults]
    return tag(
        "section",
        heading,
        tag(
            "p",
            "JSON, of the schema of the present key or value if it has one; null makes it null. A"
            " part that is not changed is kept byte by byte.",
        ),
        notice("error", "It is not valid", tag("ul", *problems)) if problems else None,
        visit.form(
            CHECK,
            _hidden(fields),
            *areas,
            tag("p", tag("button", "Check and replay…", class_="primary")),
            class_="repair",
        ),
    )


def _actions(visit: Visit, selection: Selection) -> Html | None:
    buttons = _buttons(visit, selection.connector)
    if not buttons:
        return None
    return tag(
        "section",
        tag("h2", f"Replay or discard {selection.text}"),
        visit.form(CHECK, _hidden(selection.fields()), buttons),
        class_="letter-actions",
    )


def _buttons(visit: Visit, connector: str) -> Html:
    """The buttons for the actions that the caller may do; empty if there is none."""
    replay = join(
        tag(
            "p",
            tag(
                "label",
                tag("input", type="checkbox", name="force", value="yes"),
                " Replay them even if they overwrite newer data",
            ),
        ),
        tag(
            "p",
            tag("button", "Replay…", name="action", value=REPLAY, class_="primary"),
            " The next page shows what would be written.",
        ),
    )
    discard = join(
        tag(
            "p",
            tag(
                "label",
                "Reason to discard them ",
                tag("input", type="text", name="reason", maxlength=1_000, autocomplete="off"),
            ),
            " ",
            tag("button", "Discard…", name="action", value=DISCARD, class_="danger"),
        ),
    )
    rights = visit.rights
    return join(
        replay if rights.may(_REPLAY_CALL, connector) else None,
        discard if rights.may(_DISCARD_CALL, connector) else None,
    )


def replay_check_html(
    visit: Visit,
    selection: Selection,
    found: pb.ReplayDeadLettersResponse,
    request_id: str,
    *,
    force: bool,
) -> Html:
    """The result of a dry run, with the button that replays."""
    count = _count(found.ranges)
    fields = [*selection.fields(), ("action", REPLAY), ("request_id", request_id)]
    fields += [("force", "yes")] if force else []
    button = None
    if count:
        button = visit.form(
            RUN,
            _hidden(fields),
            tag("button", f"Replay {count:,}", class_="primary"),
            tag("a", "Cancel", href=_back(selection)),
            class_="decide",
        )
    return join(
        tag("p", f"Of {selection.text}, {count:,} would be replayed.", role="status"),
        _notes([*found.notes, *found.preview.notes]),
        _skipped(found),
        _preview(found.preview),
        button or tag("p", tag("a", "Back", href=_back(selection))),
        commands(
            "The same from the command line and by gRPC", selection.commands(REPLAY, force=force)
        ),
    )


def discard_check_html(
    visit: Visit,
    selection: Selection,
    found: pb.DiscardDeadLettersResponse,
    request_id: str,
    reason: str,
) -> Html:
    """Which ones would be discarded, with the button that does it."""
    count = _count(found.ranges)
    fields = [*selection.fields(), ("action", DISCARD), ("reason", reason)]
    fields.append(("request_id", request_id))
    button = None
    if count:
        button = visit.form(
            RUN,
            _hidden(fields),
            tag("button", f"Discard {count:,}", class_="danger"),
            tag("a", "Cancel", href=_back(selection)),
            class_="decide",
        )
    return join(
        tag(
            "p",
            f"Of {selection.text}, {count:,} would be discarded. They stay in their topic, and no"
            " replay has them. The history keeps the reason: ",
            tag("bdi", reason),
        ),
        _ranges(found.ranges),
        _notes(found.notes),
        button or tag("p", tag("a", "Back", href=_back(selection))),
        commands(
            "The same from the command line and by gRPC", selection.commands(DISCARD, reason=reason)
        ),
    )


def discarded_html(selection: Selection, found: pb.DiscardDeadLettersResponse) -> Html:
    """The result."""
    return join(
        tag("p", f"{_count(found.ranges):,} discarded.", class_="good", role="status"),
        _ranges(found.ranges),
        _notes(found.notes),
        tag("p", tag("a", "Back to the dead letters", href=list_url(selection.connector))),
    )


def _preview(preview: Preview) -> Html | None:
    if not preview.rows:
        return None
    failed = sum(1 for each in preview.rows if each.failed_step)
    text = f"The first {len(preview.rows):,}, of which {failed:,} would fail again."
    return tag(
        "section",
        tag("h2", "What would be written"),
        tag("p", text, class_="bad" if failed else "good"),
        tag("ul", *(_preview_row(each, preview.steps) for each in preview.rows), class_="lines"),
    )


def _preview_row(row: PreviewedRow, steps: Sequence[str]) -> Html:
    if row.failed_step:
        outcome = tag("span", f"fails at {row.failed_step}: ", tag("bdi", row.error), class_="bad")
    elif row.dropped_by:
        outcome = tag("span", f"dropped by {row.dropped_by}", class_="now")
    else:
        outcome = tag("span", "would be written", class_="good")
    shown: list[Node] = []
    for step, record in zip(steps, row.records, strict=False):
        value = indented(record.value) if record.HasField("value") else "null"
        key = record.key if record.HasField("key") else "null"
        shown += [
            tag("h3", step),
            tag("pre", tag("code", f"{record.topic}\nkey: {key}\n{value}"), tabindex=0),
        ]
    steps_html = tag("details", tag("summary", "After each step"), *shown) if shown else None
    target = tag("span", "to ", tag("bdi", row.target), class_="now") if row.target else None
    return tag("li", tag("bdi", row.place, class_="who"), outcome, target, steps_html)


def _skipped(found: pb.ReplayDeadLettersResponse) -> Html | None:
    if not found.skipped_count:
        return None
    reasons = {pb.SKIP_REASON_NEWER: "newer data"}
    lines = [
        tag(
            "li",
            tag("span", f"{each.partition}:{each.offset}", class_="who"),
            tag("span", reasons.get(each.reason, "not known"), class_="now"),
            tag("bdi", each.message),
        )
        for each in found.skipped_letters[:_SKIPPED_SHOWN]
    ]
    left = found.skipped_count - len(lines)
    return tag(
        "section",
        tag("h2", f"Skipped, and still open: {found.skipped_count:,}"),
        tag("ul", *lines, class_="lines"),
        tag("p", f"and {left:,} more") if left else None,
    )


def _notes(notes: Iterable[str]) -> Html:
    return join(*(tag("p", each, class_="quiet-note") for each in dict.fromkeys(notes)))


def _ranges(ranges: Sequence[Range]) -> Html | None:
    if not ranges:
        return None
    shown = [f"{each.partition}:{each.start_offset}-{each.end_offset}" for each in ranges]
    left = len(shown) - _RANGES_SHOWN
    more = f" and {left:,} more ranges" if left > 0 else ""
    return tag("p", ", ".join(shown[:_RANGES_SHOWN]) + more, class_="quiet-note num")


def _count(ranges: Sequence[Range]) -> int:
    return sum(each.end_offset - each.start_offset for each in ranges)


def _back(selection: Selection) -> str:
    if len(selection.letters) == 1:
        return letter_url(selection.connector, *selection.letters[0])
    return list_url(selection.connector, selection.cause)


def _hidden(fields: Iterable[tuple[str, str]]) -> list[Html]:
    return [tag("input", type="hidden", name=name, value=value) for name, value in fields]


def _short(text: str) -> str:
    return text if len(text) <= _MESSAGE_MAX_CHARS else f"{text[: _MESSAGE_MAX_CHARS - 1]}…"
