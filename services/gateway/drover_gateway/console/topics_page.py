"""The list of topics as HTML."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import urlencode

from drover.api.common.v1.topics_pb2 import TopicDescription
from drover_gateway.console.command_lines import grpc_command
from drover_gateway.console.frame import TOPICS, commands, notice
from drover_gateway.console.html import Html, Node, tag
from drover_gateway.console.links import connector_url, dead_letters_url, topic_url
from drover_gateway.console.parts import search_html

#: The number of topics of a page; each needs a call of a worker.
PAGE_TOPICS = 100
_NAMES_SHOWN = 3
_UNKNOWN = "-"
_INTERNAL = "__"
_LINKS_AROUND = 3


@dataclass(frozen=True, slots=True)
class Uses:
    """The connectors that write to a topic, read it, and have their dead letters in it."""

    writers: list[str] = field(default_factory=list)
    readers: list[str] = field(default_factory=list)
    dead_letters_of: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ListedTopic:
    """A topic in the list; ``described`` is None if it is not known yet."""

    name: str
    partition_count: int
    described: TopicDescription | None
    uses: Uses | None


@dataclass(frozen=True, slots=True)
class TopicList:
    """The parts of the page."""

    search: Html
    results: Html
    commands: Html


def list_html(
    topics: Sequence[ListedTopic], text: str, number: int, pages: int, found: int, total: int
) -> TopicList:
    """The list: page ``number`` of ``pages``, of the ``found`` topics whose names have ``text``."""
    search = search_html("Name contains", TOPICS, text, id="filters")
    count = f"{found:,} of {total:,} topics" if text else f"{total:,} topics"
    results = tag(
        "div",
        tag("p", "1 topic" if count == "1 topics" else count, id="found", role="status"),
        _table(topics) if topics else _empty(total),
        _pages(text, number, pages),
        id="results",
    )
    lines = [
        "drover topic list",
        "drover topic describe TOPIC",
        grpc_command("ListTopics"),
    ]
    return TopicList(search, results, commands("The same from the command line and by gRPC", lines))


def _empty(total: int) -> Html:
    if total:
        return notice(
            "empty", "No topic matches", tag("p", tag("a", "Show all topics", href=TOPICS))
        )
    return notice(
        "empty",
        "There are no topics",
        tag("p", "A source creates its topics when it runs. Create a connector first:"),
        tag("pre", tag("code", "drover connector create -f FILE"), tabindex=0),
    )


def _table(topics: Sequence[ListedTopic]) -> Html:
    head = ("Topic", "Partitions", "Records", "Retention", "Written by", "Read by")
    return tag(
        "div",
        tag(
            "table",
            tag("caption", "Topics", class_="quiet"),
            tag("thead", tag("tr", *(tag("th", each, scope="col") for each in head))),
            tag("tbody", *(_row(each) for each in topics)),
            class_="topics",
        ),
        class_="wide",
        tabindex=0,
        role="group",
        aria_label="Topics",
    )


def _row(topic: ListedTopic) -> Html:
    uses = topic.uses or Uses()
    described = topic.described
    notes: list[Node] = []
    if topic.name.startswith(_INTERNAL):
        notes.append(tag("small", "internal by its name"))
    if uses.dead_letters_of:
        links = _links(uses.dead_letters_of, dead_letters_url)
        notes.append(tag("small", "dead letters of ", links))
    return tag(
        "tr",
        tag(
            "th",
            tag("a", tag("bdi", topic.name), href=topic_url(topic.name)),
            *notes,
            scope="row",
        ),
        tag("td", f"{topic.partition_count:,}", class_="num"),
        tag("td", _UNKNOWN if described is None else f"{records_of(described):,}", class_="num"),
        tag("td", _UNKNOWN if described is None else retention_text(described)),
        tag("td", _links(uses.writers, connector_url) or _UNKNOWN),
        tag("td", _links(uses.readers, connector_url) or _UNKNOWN),
    )


def _links(names: Sequence[str], url_of: Callable[[str], str]) -> list[Node]:
    parts: list[Node] = []
    for name in names[:_NAMES_SHOWN]:
        parts += [", "] if parts else []
        parts.append(tag("a", tag("bdi", name), href=url_of(name)))
    if len(names) > _NAMES_SHOWN:
        parts.append(f" and {len(names) - _NAMES_SHOWN:,} more")
    return parts


def records_of(described: TopicDescription) -> int:
    """The number of offsets from the start of each partition to its end."""
    return sum(each.end_offset - each.start_offset for each in described.partitions)


def retention_text(described: TopicDescription) -> str:
    """How long, and how many bytes, a topic keeps."""
    limits = []
    if described.HasField("retention"):
        limits.append(duration_text(described.retention.ToMilliseconds()))
    if described.HasField("retention_bytes"):
        limits.append(f"{described.retention_bytes:,} bytes per partition")
    policy = described.config.get("cleanup.policy", "")
    if "compact" in policy:
        limits.append("the latest of each key")
    return ", ".join(limits) or "no limit"


def duration_text(duration_ms: int) -> str:
    """A duration in days, hours, minutes and seconds."""
    if duration_ms < 1000:
        return f"{duration_ms} ms"
    return str(timedelta(seconds=duration_ms // 1000)).removesuffix(", 0:00:00")


def _pages(text: str, number: int, pages: int) -> Html | None:
    if pages == 1:
        return None
    near = range(number - _LINKS_AROUND, number + _LINKS_AROUND + 1)
    shown = sorted({1, pages, *(each for each in near if 1 <= each <= pages)})
    links = [
        tag(
            "li",
            tag(
                "a",
                f"{each:,}",
                href=_page_url(text, each),
                aria_current="page" if each == number else None,
            ),
        )
        for each in shown
    ]
    return tag("nav", tag("ul", *links), aria_label="Pages of the list", class_="pages")


def _page_url(text: str, number: int) -> str:
    fields = [("q", text), ("page", str(number) if number > 1 else "")]
    given = [(name, value) for name, value in fields if value]
    return f"{TOPICS}?{urlencode(given)}" if given else TOPICS
