"""The calls of the admin API that concern topics, records and dead letters."""

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing

import grpc.aio

from drover.api.common.v1.topics_pb2 import (
    ProduceOptions,
    RecordQuery,
    Topic,
    TopicDescription,
)
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.api.connect.v1 import connect_service_pb2_grpc as pb_grpc
from drover.client.calls import (
    RequestT,
    ResponseT,
    client_stream,
    new_request_id,
    pages,
    server_stream,
    unary,
)
from drover.errors import Reason, UnavailableError

ADMIN_TIMEOUT_S = 60.0
PAGE_SIZE = 1000
#: The size of messages with an input.
_CHUNK_BYTES = 1024 * 1024


class TopicCalls:
    """The part of ``ConnectClient`` that it inherits."""

    def __init__(self, channel: grpc.aio.Channel, *, retry: bool = True, author: str = "") -> None:
        self._stub = pb_grpc.ConnectServiceStub(channel)
        self._retry = retry
        # metadata is ASCII
        self._author = author.encode("ascii", "backslashreplace").decode()

    async def replay_dead_letters(
        self, request: pb.ReplayDeadLettersRequest, *, timeout_s: float = ADMIN_TIMEOUT_S
    ) -> pb.ReplayDeadLettersResponse:
        """Replay dead letters of a connector, or preview the replay."""
        sent = pb.ReplayDeadLettersRequest()
        sent.CopyFrom(request)
        sent.request_id = request.request_id or new_request_id()
        return await self._call(self._stub.ReplayDeadLetters, sent, timeout_s=timeout_s)

    async def discard_dead_letters(
        self, request: pb.DiscardDeadLettersRequest, *, timeout_s: float = ADMIN_TIMEOUT_S
    ) -> pb.DiscardDeadLettersResponse:
        """Discard dead letters of a connector."""
        sent = pb.DiscardDeadLettersRequest()
        sent.CopyFrom(request)
        sent.request_id = request.request_id or new_request_id()
        return await self._call(self._stub.DiscardDeadLetters, sent, timeout_s=timeout_s)

    async def dead_letter_states(
        self, name: str, *, timeout_s: float = ADMIN_TIMEOUT_S
    ) -> pb.GetDeadLetterStatesResponse:
        """Which dead letters of a connector were replayed or discarded."""
        request = pb.GetDeadLetterStatesRequest(name=name)
        return await self._call(self._stub.GetDeadLetterStates, request, timeout_s=timeout_s)

    async def list_topics(self, *, timeout_s: float = ADMIN_TIMEOUT_S) -> list[Topic]:
        """All topics that connectors may use, by name, from all pages."""

        async def fetch(token: str) -> pb.ListTopicsResponse:
            request = pb.ListTopicsRequest(page_size=PAGE_SIZE, page_token=token)
            return await self._call(self._stub.ListTopics, request, timeout_s=timeout_s)

        return [topic async for page in pages(fetch) for topic in page.topics]

    async def describe_topic(
        self, name: str, *, timeout_s: float = ADMIN_TIMEOUT_S
    ) -> TopicDescription:
        """A topic's partitions and retention."""
        request = pb.DescribeTopicRequest(name=name)
        response = await self._call(self._stub.DescribeTopic, request, timeout_s=timeout_s)
        return response.topic

    async def watch_topic(
        self, request: pb.WatchTopicRequest
    ) -> AsyncGenerator[pb.WatchTopicResponse, None]:
        """Yield records of a topic; without ``follow`` only to the response with ``synced``.

        If the server ends the stream, for example because it drains, the client resumes it at the
        last positions.

        Raises:
            DroverError: The error that broke the stream.
        """
        resumed = pb.WatchTopicRequest()
        resumed.CopyFrom(request)
        while True:
            progress = False
            async with aclosing(server_stream(self._stub.WatchTopic, resumed)) as stream:
                async for response in stream:
                    progress = True
                    if response.positions:
                        resumed.ClearField("positions")
                        resumed.positions.extend(response.positions)
                    if resumed.record_count_max:
                        resumed.record_count_max -= len(response.records)
                    yield response
                    if response.synced and (
                        not request.follow
                        or (request.record_count_max and not resumed.record_count_max)
                    ):
                        return
            if not progress:
                raise UnavailableError(
                    Reason.SERVICE_UNREACHABLE, "the worker ended the stream of records: retry"
                )

    async def get_topic_record_count(
        self,
        query: RecordQuery,
        *,
        connector: str = "",
        count_offsets: bool = False,
        timeout_s: float = ADMIN_TIMEOUT_S,
    ) -> pb.GetTopicRecordCountResponse:
        """Count the records that match a query, as far as possible within ``timeout_s``; with
        ``count_offsets`` the topic's offsets.
        """
        request = pb.GetTopicRecordCountRequest(
            query=query, connector=connector, count_offsets=count_offsets
        )
        return await self._call(self._stub.GetTopicRecordCount, request, timeout_s=timeout_s)

    async def produce_records(
        self,
        options: ProduceOptions,
        data: bytes,
        *,
        timeout_s: float = ADMIN_TIMEOUT_S,
        on_sent: Callable[[int], None] = lambda _: None,
    ) -> pb.ProduceRecordsResponse:
        """Write the records of an input to a topic, all or none.

        Args:
            options: Where to write them, and how to encode them.
            data: The input.
            timeout_s: The time limit of the call.
            on_sent: Called with the number of bytes that were sent so far.
        """
        sent = ProduceOptions()
        sent.CopyFrom(options)
        sent.request_id = options.request_id or new_request_id()

        def requests() -> Iterator[pb.ProduceRecordsRequest]:
            yield pb.ProduceRecordsRequest(options=sent, data=data[:_CHUNK_BYTES])
            for start in range(_CHUNK_BYTES, len(data), _CHUNK_BYTES):
                on_sent(start)
                yield pb.ProduceRecordsRequest(data=data[start : start + _CHUNK_BYTES])
            on_sent(len(data))

        return await client_stream(
            self._stub.ProduceRecords,
            requests,
            timeout_s=timeout_s,
            retry=self._retry,
            author=self._author,
        )

    async def _call(
        self,
        method: "grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT]",
        request: RequestT,
        *,
        timeout_s: float,
    ) -> ResponseT:
        """Call an idempotent method."""
        return await unary(
            method, request, timeout_s=timeout_s, retry=self._retry, author=self._author
        )

    async def _call_once(
        self,
        method: "grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT]",
        request: RequestT,
        *,
        timeout_s: float,
    ) -> ResponseT:
        """Call a method that is not idempotent, without retries."""
        return await unary(method, request, timeout_s=timeout_s, retry=False, author=self._author)
