"""Writes records of an operator's input to a topic; the engine checks and writes them."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import IO

from drover.api.common.v1 import topics_pb2
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.api.engine.v1 import engine_pb2
from drover.client.calls import new_request_id
from drover.errors import (
    InvalidArgumentError,
    Reason,
    ResourceExhaustedError,
    Violation,
)
from drover.model.produce_input import check_input_size
from drover_worker.admin.call import AdminCall
from drover_worker.admin.reads import Reads
from drover_worker.shell.engine_link import EngineLink

#: How many inputs a worker takes at a time: the engine holds each several times in memory.
_CALLS_MAX = 2
_MESSAGES_MAX = 100_000
_REQUEST_ID_MAX_CHARS = 200
#: The most bytes of the options, and of one of their texts.
_OPTIONS_BYTES_MAX, _TEXT_MAX_CHARS = 256 * 1024, 100
_FILE_PREFIX = "drover-produce-"


class TopicWrites:
    """Receives inputs into a file, which only this user can read, and removes it afterwards."""

    def __init__(self, engine: EngineLink, reads: Reads) -> None:
        self._engine = engine
        self._reads = reads
        self._call_count = 0

    async def produce(
        self, requests: AsyncIterator[pb.ProduceRecordsRequest], call: AdminCall
    ) -> pb.ProduceRecordsResponse:
        """Write the records of an input, all of them or none."""
        with self._place(), tempfile.NamedTemporaryFile(prefix=_FILE_PREFIX) as file:
            options = await _received(requests, file)
            file.flush()
            config = await self._reads.config_of(options.connector, call.deadline)
            options.request_id = options.request_id or new_request_id()
            produced = await self._engine.produce_records(
                engine_pb2.ProduceRecords(options=options, connector_config=config, path=file.name)
            )
        return pb.ProduceRecordsResponse(
            record_count=produced.record_count, repeated_call=produced.repeated_call
        )

    @contextmanager
    def _place(self) -> Iterator[None]:
        if self._call_count >= _CALLS_MAX:
            raise ResourceExhaustedError(
                Reason.QUEUE_FULL,
                f"{_CALLS_MAX} callers are writing to topics on this worker, the maximum: call "
                "another worker, or retry later",
            )
        self._call_count += 1
        try:
            yield
        finally:
            self._call_count -= 1


async def _received(
    requests: AsyncIterator[pb.ProduceRecordsRequest], file: IO[bytes]
) -> topics_pb2.ProduceOptions:
    """The options of the first message; writes the data of all messages to the file.

    Raises:
        InvalidArgumentError: INVALID_REQUEST with every fault of the options, TOO_LARGE.
    """
    options = topics_pb2.ProduceOptions()
    size_bytes = message_count = 0
    async for request in requests:
        message_count += 1
        if message_count == 1:
            options.CopyFrom(request.options)
            _check(options)
        elif request.HasField("options"):
            fault = Violation("options", "must be set in the first message only")
            raise InvalidArgumentError.listing([fault])
        size_bytes += len(request.data)
        check_input_size(size_bytes)
        if message_count > _MESSAGES_MAX:
            fault = Violation("data", f"must come in at most {_MESSAGES_MAX} messages")
            raise InvalidArgumentError.listing([fault])
        file.write(request.data)
    return options


def _check(options: topics_pb2.ProduceOptions) -> None:
    """Reject faults that do not depend on the topic; the engine finds the others."""
    lines = options.format == topics_pb2.PRODUCE_FORMAT_LINES
    faults = []
    if not options.topic:
        faults.append(Violation("options.topic", "must be set"))
    if options.format not in (
        topics_pb2.PRODUCE_FORMAT_JSON,
        topics_pb2.PRODUCE_FORMAT_LINES,
    ):
        faults.append(Violation("options.format", "must be JSON or LINES"))
    for name in ("key_separator", "null_marker"):
        text = getattr(options, name)
        if text and not lines:
            faults.append(Violation(f"options.{name}", "is only for the format LINES"))
        if len(text) > _TEXT_MAX_CHARS or "\n" in text:
            faults.append(
                Violation(
                    f"options.{name}",
                    f"must have at most {_TEXT_MAX_CHARS} characters, without a line end",
                )
            )
    if len(options.request_id) > _REQUEST_ID_MAX_CHARS:
        fault = f"must have at most {_REQUEST_ID_MAX_CHARS} characters"
        faults.append(Violation("options.request_id", fault))
    if options.ByteSize() > _OPTIONS_BYTES_MAX:
        faults.append(Violation("options", f"must have at most {_OPTIONS_BYTES_MAX} bytes"))
    if faults:
        raise InvalidArgumentError.listing(faults)
