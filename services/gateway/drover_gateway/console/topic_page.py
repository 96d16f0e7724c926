"""One topic as HTML: its partitions, and records."""

from collections.abc import Sequence
from dataclasses import replace

from drover.api.common.v1.topics_pb2 import PartitionBounds, TopicDescription, TopicRecord
from drover.errors import DroverError, InvalidArgumentError, PermissionDeniedError
from drover.model.command_lines import drover_command
from drover_gateway.console.frame import TOPIC, TOPICS, commands, notice
from drover_gateway.console.html import Html, Node, join, tag
from drover_gateway.console.json_texts import document_of, indented, kind_of
from drover_gateway.console.links import connector_url, dead_letters_url
from drover_gateway.console.record_reads import READ_S, Records
from drover_gateway.console.record_windows import CONVERTERS, COUNTS, RecordWindow
from drover_gateway.console.topics_page import Uses, records_of, retention_text

_PARTITIONS_SHOWN = 100
_PARTITIONS_OPEN = 12
#: The limit of a key, a value or a header in a response of the workers.
PART_MAX_CHARS = 64 * 1024
#: Of longer parts, and of all parts after a page has this many characters, the start is shown.
_PAGE_CHARS = 512 * 1024
_START_CHARS = 1_000
_SUMMARY_CHARS = 160
_FOLLOWED_PAGE_CHARS = 64 * 1024


def topic_html(
    window: RecordWindow, described: TopicDescription, uses: Uses, found: Records
) -> Html:
    """The content of the page."""
    return join(
        _facts(described, uses),
        _partitions(window, described.partitions),
        _form(window, described, uses),
        tag(
            "section",
            tag("h2", _heading(window)),
            _records(window, described, found),
            # the stream continues here
            id="records-section",
            data_version=found.next.text if found.next is not None and window.follows else None,
        ),
        commands(
            "The same from the command line and by gRPC",
            [drover_command("topic describe", window.topic), *window.commands()],
        ),
        tag("p", tag("a", "All topics", href=TOPICS)),
    )


def _heading(window: RecordWindow) -> str:
    where = "" if window.partition is None else f" of partition {window.partition}"
    if window.count == 1 and window.offset is not None:
        return f"Record {window.partition}:{window.offset}"
    if window.shows_last:
        return f"Last records{where}"
    if window.before is not None:
        return f"Records{where} before offset {window.before:,}"
    if window.offset is not None:
        return f"Records{where} from offset {window.offset:,}"
    if window.time_ms is not None:
        return f"Records{where} from {window.time_text.replace('T', ' ')} UTC"
    return f"Next records{where}"


def _facts(described: TopicDescription, uses: Uses) -> Html:
    facts: list[tuple[str, Node]] = [
        (
            "partition" if len(described.partitions) == 1 else "partitions",
            f"{len(described.partitions):,}",
        ),
        ("records, with gaps in the offsets", f"{records_of(described):,}"),
        ("retention", retention_text(described)),
    ]
    for what, names in (("writing it", uses.writers), ("reading it", uses.readers)):
        if names:
            facts.append((what, _names(names, connectors=True)))
    if uses.dead_letters_of:
        facts.append(("dead letters of", _names(uses.dead_letters_of, connectors=False)))
    return tag(
        "dl",
        *(tag("div", tag("dt", what), tag("dd", value)) for what, value in facts),
        class_="facts",
    )


def _names(names: Sequence[str], *, connectors: bool) -> list[Node]:
    parts: list[Node] = []
    for name in names[:_PARTITIONS_OPEN]:
        parts += [", "] if parts else []
        url = connector_url(name) if connectors else dead_letters_url(name)
        parts.append(tag("a", tag("bdi", name), href=url))
    left = len(names) - _PARTITIONS_OPEN
    return [*parts, f" and {left:,} more"] if left > 0 else parts


def _partitions(window: RecordWindow, partitions: Sequence[PartitionBounds]) -> Html:
    head = ("Partition", "First offset", "End offset", "Records", "Show")
    shown = partitions[:_PARTITIONS_SHOWN]
    table = tag(
        "div",
        tag(
            "table",
            tag("caption", "Partitions", class_="quiet"),
            tag("thead", tag("tr", *(tag("th", each, scope="col") for each in head))),
            tag("tbody", *(_partition(window, each) for each in shown)),
        ),
        class_="wide",
        tabindex=0,
        role="group",
        aria_label="Partitions",
    )
    left = len(partitions) - len(shown)
    return tag(
        "details",
        tag("summary", f"Partitions ({len(partitions):,})"),
        table,
        tag("p", f"and {left:,} more: enter the number of one below") if left else None,
        class_="partitions",
        open=len(partitions) <= _PARTITIONS_OPEN,
    )


def _partition(window: RecordWindow, bounds: PartitionBounds) -> Html:
    number = bounds.partition
    first = window.moved(partition=number, offset=bounds.start_offset)
    last = window.moved(partition=number)
    return tag(
        "tr",
        tag("th", str(number), scope="row"),
        tag("td", f"{bounds.start_offset:,}", class_="num"),
        tag("td", f"{bounds.end_offset:,}", class_="num"),
        tag("td", f"{bounds.end_offset - bounds.start_offset:,}", class_="num"),
        tag(
            "td",
            tag("a", "first", href=first.url, aria_label=f"first records of partition {number}"),
            " ",
            tag("a", "last", href=last.url, aria_label=f"last records of partition {number}"),
        ),
    )


def _form(window: RecordWindow, described: TopicDescription, uses: Uses) -> Html:
    names = sorted({*uses.writers, *uses.readers, *filter(None, [window.connector])})
    converters = {each: each or "detect" for each in CONVERTERS}
    number_most = max((each.partition for each in described.partitions), default=0)
    return tag(
        "form",
        tag("input", type="hidden", name="name", value=window.topic),
        _number_input("Partition", "partition", window.partition, most=number_most),
        _number_input("From offset", "offset", window.offset),
        _time_input(window),
        _select("Records", "count", str(window.count), {str(each): str(each) for each in COUNTS}),
        _select("Keys", "key", window.key, converters),
        _select("Values", "value", window.value, converters),
        _select(
            "Decode as", "connector", window.connector, {"": "-", **{each: each for each in names}}
        ),
        tag(
            "label",
            "Conditions, one per line, such as amount>=10, key.id=7 or headers.trace~a.*",
            tag(
                "textarea",
                # a line end after the start tag is not part of the text
                "\n" + "\n".join(window.conditions),
                name="where",
                rows=2,
                spellcheck="false",
                autocomplete="off",
            ),
            class_="long",
        ),
        tag(
            "label",
            tag("input", type="checkbox", name="follow", value="yes", checked=window.follows),
            " Follow new records",
            class_="check",
        ),
        tag("button", "Show", class_="primary"),
        action=TOPIC,
        method="get",
        role="search",
        class_="record-form",
        aria_label="Which records",
    )


def _number_input(label: str, name: str, value: int | None, most: int | None = None) -> Html:
    shown = "" if value is None else str(value)
    field = tag("input", type="number", name=name, value=shown, min=0, max=most, step=1)
    return tag("label", label, field)


def _time_input(window: RecordWindow) -> Html:
    field = tag(
        "input",
        type="datetime-local",
        name="time",
        value=window.time_text,
        min="1970-01-01T00:00",
        max="9999-12-31T23:59",
        step="0.001",
    )
    return tag("label", "From time (UTC)", field)


def _select(label: str, name: str, value: str, labels: dict[str, str]) -> Html:
    options = [
        tag("option", text, value=each, selected=each == value)
        for each, text in {**({value: value} if value else {}), **labels}.items()
    ]
    return tag("label", label, tag("select", *options, name=name))


# records


def _records(window: RecordWindow, described: TopicDescription, found: Records) -> Html:
    parts: list[Node] = []
    if found.error is not None:
        parts.append(_error(found.error))
    if window.follows and found.error is None:
        button = tag("button", "Pause", type="button", id="follow-pause", hidden=True)
        parts.append(
            tag("p", tag("span", id="follow-text", role="status"), " ", button, class_="follow")
        )
    if found.records or (window.follows and found.error is None):
        parts.append(_list(window, found.records))
    if not found.records and found.error is None:
        parts.append(_nothing(window, described, found))
    parts += [_ended(window, found), _around(window, described, found)]
    return join(*parts)


def _error(error: DroverError) -> Html:
    if isinstance(error, PermissionDeniedError):
        return notice("forbidden", "Records need another role", tag("p", error.message))
    if isinstance(error, InvalidArgumentError):
        lines = [tag("li", tag("bdi", f"{v.field}: {v.description}")) for v in error.violations]
        return notice(
            "error",
            "The query is not valid",
            tag("ul", *lines) if lines else tag("p", error.message),
        )
    return notice("error", "The records could not be read", tag("p", error.message))


def _nothing(window: RecordWindow, described: TopicDescription, found: Records) -> Html:
    if found.ended == "time":
        return notice("empty", "No record was found in time")
    if not records_of(described):
        return notice(
            "empty",
            "The topic has no records",
            tag("p", "A connector or this command writes some:"),
            tag("pre", tag("code", "drover topic produce TOPIC FILE"), tabindex=0),
        )
    what = "No record meets the conditions here" if window.conditions else "No records here"
    if window.time_ms is not None and not window.conditions:
        what = "No record is at or after this time"
    last = window.moved()
    return notice("empty", what, tag("p", tag("a", "Show the last records", href=last.url)))


def _ended(window: RecordWindow, found: Records) -> Html | None:
    if found.ended == "time" and window.time_ms is not None and found.next is None:
        not_found = (
            f"The first record at or after this time was not found in {READ_S:g} s. The command"
            " below has no time limit; with a partition the search is shorter."
        )
        return tag("p", not_found, class_="quiet-note", role="note")
    texts = {
        "time": f"The search ended after {READ_S:g} s: it may continue below.",
        "size": "The records are large, so there are fewer than the page may have.",
    }
    text = texts.get(found.ended)
    return None if text is None else tag("p", text, class_="quiet-note", role="note")


def _list(window: RecordWindow, records: Sequence[TopicRecord]) -> Html:
    return tag("ul", _items(window, records, _PAGE_CHARS), class_="records", id="records")


def followed_html(window: RecordWindow, records: Sequence[TopicRecord], skipped: int) -> Html:
    """New records for the list of a page that is open."""
    note = None
    if skipped:
        text = f"{skipped:,} records before these are not shown."
        note = tag("li", text, class_="quiet-note")
    return join(note, _items(window, records, _FOLLOWED_PAGE_CHARS))


def _items(window: RecordWindow, records: Sequence[TopicRecord], left_chars: int) -> list[Html]:
    items = []
    for record in records:
        size = len(record.key) + len(record.value)
        size += sum(len(each.key) + len(each.value) for each in record.headers)
        is_whole = size <= left_chars or len(records) == 1
        left_chars -= size if is_whole else 0
        is_open = len(records) == 1 and window.count == 1
        items.append(_record(window, record, is_whole=is_whole, is_open=is_open))
    return items


def _record(window: RecordWindow, record: TopicRecord, *, is_whole: bool, is_open: bool) -> Html:
    place = f"{record.partition}:{record.offset}"
    url = window.one(record.partition, record.offset).url
    summary = tag(
        "summary",
        tag("span", place, class_="place num"),
        " ",
        tag("span", time_text(record), class_="time"),
        " ",
        tag("bdi", _short(record.key) if record.HasField("key") else "no key", class_="key"),
        " ",
        tag("bdi", _short(record.value) if record.HasField("value") else "null", class_="value"),
    )
    parts: list[Node] = []
    if record.error:
        parts.append(tag("p", "Not decoded as chosen: ", tag("bdi", record.error), class_="bad"))
    if record.truncated:
        parts.append(tag("p", _cut_text(record), class_="quiet-note"))
    null_value = "null: a tombstone" if record.HasField("key") else "null"
    key = record.key if record.HasField("key") else None
    value = record.value if record.HasField("value") else None
    parts += [
        *part_html("Key", key, "null: the record has no key", url, is_whole=is_whole),
        *part_html("Value", value, null_value, url, is_whole=is_whole),
    ]
    parts.append(_headers(record, is_whole=is_whole))
    if is_whole:
        document = indented(document_of(window.topic, record))
        parts.append(
            tag("details", tag("summary", "As JSON"), tag("pre", tag("code", document), tabindex=0))
        )
    from_here = window.moved(partition=record.partition, offset=record.offset)
    parts.append(
        tag(
            "p",
            tag("a", "Only this record", href=url, aria_label=f"Only record {place}"),
            " · ",
            tag("a", "From here on", href=from_here.url, aria_label=f"From record {place} on"),
        )
    )
    body = tag("div", *parts, class_="record-body")
    return tag("li", tag("details", summary, body, open=is_open, class_="record"))


def part_html(name: str, text: str | None, null: str, url: str, *, is_whole: bool) -> list[Html]:
    """A key or a value; ``text`` is None for null. A part that is not whole has a link to it."""
    if text is None:
        return [tag("h3", name), tag("p", null, class_="null")]
    kind = tag("small", kind_of(text))
    if is_whole or len(text) <= _START_CHARS:
        return [tag("h3", name), kind, tag("pre", tag("code", indented(text)), tabindex=0)]
    more = f"and {len(text) - _START_CHARS:,} more characters"
    return [
        tag("h3", name),
        kind,
        tag("pre", tag("code", text[:_START_CHARS]), tabindex=0),
        tag("p", tag("a", more, href=url)),
    ]


def _headers(record: TopicRecord, *, is_whole: bool) -> Html | None:
    if not record.headers:
        return None
    rows = []
    for each in record.headers:
        text: Node = "null"
        if each.HasField("value"):
            shown = each.value if is_whole else each.value[:_START_CHARS]
            left = len(each.value) - len(shown)
            text = [tag("bdi", shown), f" and {left:,} more characters" if left else ""]
        rows.append(tag("div", tag("dt", tag("bdi", each.key)), tag("dd", text)))
    return join(tag("h3", "Headers"), tag("dl", *rows, class_="headers"))


def _cut_text(record: TopicRecord) -> str:
    return (
        f"Parts are cut at {PART_MAX_CHARS:,} characters; {record.omitted_char_count:,} more are"
        " not shown."
    )


def _short(text: str) -> str:
    return text if len(text) <= _SUMMARY_CHARS else f"{text[: _SUMMARY_CHARS - 1]}…"


def time_text(record: TopicRecord) -> str:
    """The timestamp of a record; empty if it has none."""
    if not record.HasField("record_time"):
        return ""
    shown = record.record_time.ToDatetime().isoformat(sep=" ", timespec="milliseconds")
    return f"{shown} UTC"


# other records


def _around(window: RecordWindow, described: TopicDescription, found: Records) -> Html | None:
    """Links to older and newer records."""
    links: list[Html] = []
    bounds = {each.partition: each for each in described.partitions}
    if window.partition is not None:
        partition = bounds.get(window.partition)
        if partition is None:
            return None
        first = found.records[0].offset if found.records else window.searched_from
        if window.before is not None and window.conditions and not _is_full(window, found):
            first = window.searched_from
        if window.shows_last and not found.records:
            first = max(partition.end_offset, 0)
        if window.time_ms is not None and not found.records:
            next_offsets = found.next.offsets if found.next is not None else {}
            first = next_offsets.get(window.partition, partition.start_offset)
        if first > partition.start_offset and not (window.offset == 0 and not found.records):
            links.append(_link("Older", window.moved(before=first)))
        after = found.records[-1].offset + 1 if found.records else None
        if after is None and found.next is not None:
            after = found.next.offsets.get(window.partition)
        if window.before is not None:
            after = max(after or 0, window.before if not found.records else 0)
        if after is not None and after < partition.end_offset:
            links.append(_link("Newer", window.moved(offset=after)))
    else:
        if found.next is not None and not window.shows_last and found.next.text:
            is_end = all(
                offset >= bounds[key].end_offset
                for key, offset in found.next.offsets.items()
                if key in bounds
            )
            if not is_end:
                links.append(_link("Newer", window.moved(at=found.next)))
        first_offsets: dict[int, int] = {}
        for record in found.records:
            first_offsets.setdefault(record.partition, record.offset)
        if window.time_ms is not None and found.next is not None:
            # the others continue where the time is, or at their ends
            first_offsets = {**found.next.offsets, **first_offsets}
        for number, offset in sorted(first_offsets.items())[:_PARTITIONS_OPEN]:
            if number in bounds and offset > bounds[number].start_offset:
                moved = window.moved(partition=number, before=offset)
                links.append(_link(f"Older in partition {number}", moved))
    if not window.shows_last:
        links.append(_link("Last", window.moved()))
    if not links:
        return None
    return tag(
        "nav",
        tag("ul", *(tag("li", each) for each in links)),
        aria_label="Other records",
        class_="pages",
    )


def _is_full(window: RecordWindow, found: Records) -> bool:
    return len(found.records) >= window.count


def _link(text: str, window: RecordWindow) -> Html:
    if window.count == 1:
        window = replace(window, count=50)
    return tag("a", text, href=window.url)
