"""Which records of a topic a page shows; pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Self
from urllib.parse import urlencode

from drover.api.common.v1.topics_pb2 import ReadPosition, RecordQuery
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.model.command_lines import drover_command
from drover.transform.exact_texts import first_ms_of
from drover_gateway.console.command_lines import grpc_command
from drover_gateway.console.frame import LIVE, TOPIC
from drover_gateway.console.http import Form, PageError

COUNTS = (20, 50, 200)
#: The names of converters that a page offers; others can be in the URL.
CONVERTERS = ("", "json", "avro", "protobuf", "string", "hex")
#: How far a page with conditions searches towards the start, in offsets.
_SEARCHED_BACK = 10_000
_NUMBER_MAX = 2**63 - 1
#: The URL of a page has the positions of at most this number of partitions.
_POSITIONS_MAX = 200
#: Without ends of lines: positions are the ids of events.
_TOPIC_ID = re.compile(r"[A-Za-z0-9_+/=.-]{1,100}")


@dataclass(frozen=True, slots=True)
class Positions:
    """The next offset in each partition, and the id of the topic; empty if unknown."""

    offsets: Mapping[int, int]
    topic_id: str = ""

    @property
    def text(self) -> str:
        """In the form of a query; empty if there are too many partitions."""
        if len(self.offsets) > _POSITIONS_MAX:
            return ""
        pairs = ",".join(f"{key}:{offset}" for key, offset in sorted(self.offsets.items()))
        return f"{pairs};{self.topic_id}"

    @property
    def messages(self) -> list[ReadPosition]:
        """As fields of a request."""
        return [
            ReadPosition(partition=key, offset=offset, topic_id=self.topic_id)
            for key, offset in sorted(self.offsets.items())
        ]

    @classmethod
    def parsed(cls, text: str) -> "Positions | None":
        """The positions of a text; None if it has not the form of ``text``."""
        pairs, _, topic_id = text.partition(";")
        if topic_id and not _TOPIC_ID.fullmatch(topic_id):
            return None
        offsets = {}
        for each in pairs.split(","):
            partition, _, offset = each.partition(":")
            numbers = _number(partition), _number(offset)
            if numbers[0] is None or numbers[1] is None or numbers[0] >= 2**31:
                return None
            offsets[numbers[0]] = numbers[1]
        return cls(offsets, topic_id)

    @classmethod
    def of(cls, found: Sequence[ReadPosition]) -> Self:
        """The positions of a response."""
        topic_id = found[0].topic_id if found else ""
        return cls({each.partition: each.offset for each in found}, topic_id)


@dataclass(frozen=True, slots=True)
class RecordWindow:
    """Which records of a topic are shown; the last ones without ``offset``, ``time_ms``, ``before``
    and ``at``.

    Attributes:
        topic: The topic.
        partition: Only this partition; None for all.
        offset: The first offset.
        time_ms: Show the records from the first one on that is at or after this time, in
            milliseconds since 1970.
        before: The offset after the last one, for the page with older records.
        at: Where to start in each partition.
        count: The maximum number of records.
        conditions: Conditions that the records meet, as in RecordQuery.
        connector: The connector whose converters decode the records; empty for none.
        key: The converter for keys; empty to detect the format.
        value: The converter for values.
        follows: Whether new records are added to the page.
    """

    topic: str
    partition: int | None = None
    offset: int | None = None
    time_ms: int | None = None
    before: int | None = None
    at: Positions | None = None
    count: int = 50
    conditions: Sequence[str] = ()
    connector: str = ""
    key: str = ""
    value: str = ""
    follows: bool = False

    @classmethod
    def read(cls, query: Form) -> Self:
        """The window of a query.

        Raises:
            PageError: Fields are not valid; it has all of them.
        """
        faults: list[str] = []

        def number(name: str, least: int = 0, most: int = _NUMBER_MAX) -> int | None:
            text = query.one(name).strip()
            found = _number(text)
            if text and (found is None or not least <= found <= most):
                faults.append(f"{name} must be a number from {least} to {most}, not {text[:40]!r}.")
                return None
            return found

        partition = number("partition", 0, 2**31 - 1)
        offset, before = number("offset"), number("before", 1)
        count = number("count", 1, COUNTS[-1])
        at = Positions.parsed(query.one("at")) if query.one("at") else None
        if query.one("at") and at is None:
            faults.append("at must have the form partition:offset,partition:offset;id.")
        time_text = query.one("time").strip()
        time_ms = first_ms_of(time_text) if time_text else None
        if time_text and time_ms is None:
            faults.append(
                "time must be a time from 1970 to 9999 in UTC, such as 2026-01-31T12:00:00, not"
                f" {time_text[:40]!r}."
            )
        others = [name for name in ("offset", "before", "at") if query.one(name).strip()]
        if time_text and others:
            faults.append(f"time must not be given with {others[0]}: leave one of them empty.")
        if not query.one("name"):
            faults.append("name must be a topic: choose one in the list of topics.")
        if faults:
            raise PageError(400, "The request cannot be read", " ".join(faults))
        lines = [line.strip() for text in query.all("where") for line in text.splitlines()]
        return cls(
            topic=query.one("name"),
            partition=partition,
            offset=offset,
            time_ms=time_ms,
            before=before if partition is not None else None,
            at=at,
            count=count or 50,
            conditions=tuple(filter(None, lines)),
            connector=query.one("connector"),
            key=query.one("key"),
            value=query.one("value"),
            follows=bool(query.one("follow")),
        )

    @property
    def shows_last(self) -> bool:
        """Whether the last records are shown."""
        starts = (self.offset, self.time_ms, self.before, self.at)
        return all(each is None for each in starts)

    @property
    def keeps_newest(self) -> bool:
        """Whether the newest of all records that were read are shown, else the oldest."""
        return self.shows_last or self.before is not None

    def request(self) -> pb.WatchTopicRequest:
        """The request for the records."""
        request = pb.WatchTopicRequest(query=self._query(), connector=self.connector)
        if self.at is not None:
            request.positions.extend(self.at.messages)
            request.record_count_max = self.count
        elif self.before is not None:
            reach = _SEARCHED_BACK if self.conditions else self.count
            request.start_offset = self.back_to(reach)
            request.record_count_max = self.before - request.start_offset
        elif self.offset is not None:
            request.start_offset = self.offset
            request.record_count_max = self.count
        elif self.time_ms is not None:
            request.start_time.FromMilliseconds(self.time_ms)
            request.record_count_max = self.count
        else:
            request.last_count = self.count
        return request

    def back_to(self, reach: int) -> int:
        """The first offset of a page with older records."""
        return max(0, (self.before or 0) - reach)

    @property
    def searched_from(self) -> int:
        """The first offset that was searched for a page with older records."""
        return self.back_to(_SEARCHED_BACK if self.conditions else self.count)

    def following(self, positions: Positions | None) -> pb.WatchTopicRequest:
        """The request for new records from positions on; None for those from the time on, or for
        the last one and new ones.
        """
        request = pb.WatchTopicRequest(query=self._query(), connector=self.connector, follow=True)
        if positions is not None:
            request.positions.extend(positions.messages)
        elif self.time_ms is not None:
            request.start_time.FromMilliseconds(self.time_ms)
        else:
            request.last_count = 1
        return request

    def _query(self) -> RecordQuery:
        return RecordQuery(
            topic=self.topic,
            partitions=[] if self.partition is None else [self.partition],
            key_converter=self.key,
            value_converter=self.value,
            conditions=self.conditions,
        )

    # links

    def fields(self) -> list[tuple[str, str]]:
        """As the fields of a query."""
        found = [
            ("name", self.topic),
            ("partition", _text(self.partition)),
            ("offset", _text(self.offset)),
            ("time", self.time_text),
            ("before", _text(self.before)),
            ("at", self.at.text if self.at is not None else ""),
            ("count", str(self.count) if self.count != 50 else ""),
            ("where", "\n".join(self.conditions)),
            ("connector", self.connector),
            ("key", self.key),
            ("value", self.value),
            ("follow", "yes" if self.follows else ""),
        ]
        return [(name, text) for name, text in found if text]

    @property
    def time_text(self) -> str:
        """The start time as fields of forms have it, in UTC without a zone; empty without one."""
        if self.time_ms is None:
            return ""
        at = datetime(1970, 1, 1) + timedelta(milliseconds=self.time_ms)
        return at.isoformat(timespec="milliseconds" if self.time_ms % 1000 else "seconds")

    @property
    def url(self) -> str:
        """The page's URL."""
        return f"{TOPIC}?{urlencode(self.fields())}"

    @property
    def live_url(self) -> str:
        """The URL of the stream with new records."""
        return f"{LIVE}?{urlencode([('page', 'topic'), *self.fields()])}"

    def moved(
        self,
        *,
        partition: int | None = None,
        offset: int | None = None,
        before: int | None = None,
        at: Positions | None = None,
    ) -> "RecordWindow":
        """The same query for other records."""
        return replace(
            self,
            partition=self.partition if partition is None else partition,
            offset=offset,
            time_ms=None,
            before=before,
            at=at,
            follows=False,
        )

    def one(self, partition: int, offset: int) -> "RecordWindow":
        """The page of one record."""
        moved = self.moved(partition=partition, offset=offset)
        return replace(moved, count=1, conditions=())

    # commands

    def commands(self) -> list[str]:
        """The same from the command line and by gRPC."""
        request = self.request()
        options = ["--count", str(self.count)]
        if self.shows_last:
            command = "topic tail"
            options += ["--follow"] if self.follows else []
        elif self.time_ms is not None:
            command = "topic head"
            options += ["--since", f"{self.time_text}Z"]
        else:
            start = request.start_offset
            if self.at is not None:
                start = min(self.at.offsets.values(), default=0)
            command = "topic head"
            options = ["--count", str(request.record_count_max), "--from", str(start)]
        options += [] if self.partition is None else ["--partition", str(self.partition)]
        for option, text in (
            ("--key", self.key),
            ("--value", self.value),
            ("--connector", self.connector),
        ):
            options += [option, text] if text else []
        for each in self.conditions:
            options += ["--where", each]
        line = drover_command(command, self.topic, options=options)
        return [line, "", grpc_command("WatchTopic", _document(request, self))]


def _document(request: pb.WatchTopicRequest, window: RecordWindow) -> Mapping[str, object]:
    query: dict[str, object] = {"topic": window.topic}
    if window.partition is not None:
        query["partitions"] = [window.partition]
    converters = {"key_converter": window.key, "value_converter": window.value}
    query |= {name: text for name, text in converters.items() if text}
    if window.conditions:
        query["conditions"] = list(window.conditions)
    found: dict[str, object] = {"query": query}
    if window.connector:
        found["connector"] = window.connector
    if window.at is not None:
        found["positions"] = [
            {"partition": key, "offset": offset, "topic_id": window.at.topic_id}
            for key, offset in sorted(window.at.offsets.items())
        ]
    for name in ("last_count", "start_offset", "record_count_max"):
        number = getattr(request, name)
        if number:
            found[name] = number
    if request.HasField("start_time"):
        found["start_time"] = request.start_time.ToJsonString()
    if window.follows:
        found["follow"] = True
    return found


def _number(text: str) -> int | None:
    is_number = text.isascii() and text.isdecimal() and len(text) < 20
    return int(text) if is_number and int(text) <= _NUMBER_MAX else None


def _text(number: int | None) -> str:
    return "" if number is None else str(number)
