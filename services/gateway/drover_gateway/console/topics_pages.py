"""The pages of topics: their list, and the records of one."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from drover.api.common.v1.topics_pb2 import Topic, TopicDescription, TopicRecord
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client import ConnectClient
from drover.errors import DroverError, NotFoundError, Reason
from drover.model.dead_letters import DEAD_LETTER_TOPIC
from drover_gateway.console.frame import TOPIC, TOPICS, encoded, page
from drover_gateway.console.html import Html
from drover_gateway.console.http import Form, PageError, Response
from drover_gateway.console.pages import Context, Pages, Request
from drover_gateway.console.record_reads import followed, read_records
from drover_gateway.console.record_windows import RecordWindow
from drover_gateway.console.topic_page import followed_html, topic_html
from drover_gateway.console.topics_page import PAGE_TOPICS, ListedTopic, Uses, list_html
from drover_gateway.identity.credentials import Caller
from drover_gateway.views import View

_DESCRIBE_S = 3.0
_AT_A_TIME = 8


class TopicsPages(Pages):
    """The list of topics, and one topic with its records."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.routes = {("GET", TOPICS): self._topics, ("GET", TOPIC): self._topic}
        self.event_pages = {"topic": self._follow}

    async def _topics(self, request: Request) -> Response:
        client = self._context.client(request)
        text = request.query.one("q")
        all_topics = await client.list_topics()
        found = [each for each in all_topics if text.lower() in each.name.lower()]
        pages = max(1, -(-len(found) // PAGE_TOPICS))
        number = min(_page_number(request.query.one("page")), pages)
        shown = found[(number - 1) * PAGE_TOPICS : number * PAGE_TOPICS]
        view = await self._context.views.opened(request.caller)
        uses = uses_of(view, await self._context.topics.of(view, client))
        listed = await _described(client, shown, uses)
        content = list_html(listed, text, number, pages, len(found), len(all_topics))
        if request.query.one("part") == "results":
            return Response(encoded(content.results))
        body = (content.search, content.results, content.commands)
        return Response(page(request.visit, "Topics", *body, current=TOPICS))

    async def _topic(self, request: Request) -> Response:
        window = RecordWindow.read(request.query)
        client = self._context.client(request)
        try:
            described = await client.describe_topic(window.topic)
        except NotFoundError as error:
            if error.reason is not Reason.TOPIC_NOT_FOUND:
                raise
            text = f"{error.message}. The list of topics has the existing ones."
            raise PageError(404, "There is no such topic", text) from None
        if len(described.partitions) == 1 and window.partition is None:
            window = replace(window, partition=described.partitions[0].partition)
        view = await self._context.views.opened(request.caller)
        uses = uses_of(view, await self._context.topics.of(view, client))
        found = await read_records(client, window)
        title = f"Topic {window.topic}"
        content = topic_html(window, described, uses.get(window.topic, Uses()), found)
        live = window.live_url if window.follows and found.error is None else ""
        return Response(page(request.visit, title, content, current=TOPICS, live=live))

    def _follow(self, caller: Caller, query: Form) -> AsyncGenerator[bytes, None]:
        window = RecordWindow.read(query)
        client = self._context.workers.client(caller)

        def render(records: Sequence[TopicRecord], skipped: int) -> Html:
            return followed_html(window, records, skipped)

        return followed(client, window, query.one("since"), render)


def uses_of(view: View, topics: Mapping[str, Sequence[str]]) -> Mapping[str, Uses]:
    """Which connectors of a view use each topic, by topic."""
    uses: dict[str, Uses] = {}
    for name in view.names():
        connector = view.connector(name)
        if connector is None:
            continue
        letters = connector.config.get(DEAD_LETTER_TOPIC, "").strip()
        for topic in topics.get(name, ()):
            own = uses.setdefault(topic, Uses())
            is_sink = connector.type == pb.CONNECTOR_TYPE_SINK
            (own.readers if is_sink else own.writers).append(name)
        if letters:
            uses.setdefault(letters, Uses()).dead_letters_of.append(name)
    return uses


async def _described(
    client: ConnectClient, topics: Sequence[Topic], uses: Mapping[str, Uses]
) -> list[ListedTopic]:
    """The topics of a page, with what is known about them within a time."""
    known: dict[str, TopicDescription] = {}
    queue = iter(topics)

    async def ask() -> None:
        for each in queue:
            with suppress(DroverError):
                known[each.name] = await client.describe_topic(each.name)

    with suppress(TimeoutError):
        async with asyncio.timeout(_DESCRIBE_S):
            await asyncio.gather(*(ask() for _ in range(_AT_A_TIME)))
    return [
        ListedTopic(each.name, each.partition_count, known.get(each.name), uses.get(each.name))
        for each in topics
    ]


def _page_number(text: str) -> int:
    is_number = text.isascii() and text.isdecimal() and len(text) < 10
    return max(1, int(text)) if is_number else 1
