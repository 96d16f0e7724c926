"""Dead letters by cause, and which of them an operator has chosen; pure."""

import hashlib
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import urlencode

from drover.api.common.v1.repairs_pb2 import DeadLetterRepair
from drover.api.common.v1.topics_pb2 import TopicRecord
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.model.command_lines import drover_command
from drover.model.dead_letters import CONNECTOR_HEADER, HEADER_PREFIX, REPAIR_HEADER
from drover.model.letter_states import LetterState, StatesNow
from drover_gateway.console.command_lines import grpc_command
from drover_gateway.console.frame import DEAD_LETTERS
from drover_gateway.console.http import Form, PageError

CHECK, RUN, PROGRESS = f"{DEAD_LETTERS}/check", f"{DEAD_LETTERS}/run", f"{DEAD_LETTERS}/progress"
REPLAY, DISCARD = "replay", "discard"
_STAGE, _CLASS = f"{HEADER_PREFIX}stage", f"{HEADER_PREFIX}exception.class.name"
#: In the header of a repair, between the id of its request and a digest.
_REPAIRED = re.compile(r" (\d{1,10}):(\d{1,18}) ", re.ASCII)
#: The URL of a page has at most this number of ranges; others are joined.
_RANGES_MAX = 100
_ROWS = 20

Range = pb.ReplayDeadLettersResponse.Range


@dataclass(frozen=True, slots=True, order=True)
class Cause:
    """Where records failed, and the class of the error; empty if there are no headers with them."""

    stage: str
    error_class: str

    @property
    def has_conditions(self) -> bool:
        """Whether ``conditions`` select its dead letters: a header that is missing meets none."""
        return bool(self.stage and self.error_class)

    @property
    def conditions(self) -> list[str]:
        """What its dead letters meet, in the language of conditions."""
        pairs = ((_STAGE, self.stage), (_CLASS, self.error_class))
        return [f"headers.{name}='{text.replace(chr(39), chr(39) * 2)}'" for name, text in pairs]


@dataclass(slots=True)
class Group:
    """Dead letters with the same cause: their number by state, and the latest one."""

    cause: Cause
    counts: Counter[LetterState] = field(default_factory=Counter)
    latest: TopicRecord | None = None

    @property
    def message(self) -> str:
        """The error of the latest one."""
        return "" if self.latest is None else headers_of(self.latest).get("exception.message", "")


def headers_of(letter: TopicRecord) -> Mapping[str, str]:
    """The headers that describe the error, without their common prefix."""
    return {
        each.key.removeprefix(HEADER_PREFIX): each.value
        for each in letter.headers
        if each.key.startswith(HEADER_PREFIX)
    }


def cause_of(letter: TopicRecord) -> Cause:
    """Where and why its record failed."""
    headers = headers_of(letter)
    return Cause(headers.get("stage", ""), headers.get("exception.class.name", ""))


def origin_of(letter: TopicRecord) -> str:
    """The place of the record that failed; empty if unknown."""
    headers = headers_of(letter)
    if "offset" in headers:
        return f"{headers.get('topic', '')}-{headers.get('partition', '')}@{headers['offset']}"
    return headers.get("origin", headers.get("topic", ""))


def original_of(letter: TopicRecord) -> tuple[int, int] | None:
    """The place of the dead letter that this one replaces, repaired; None if it is an original."""
    texts = [each.value for each in letter.headers if each.key == REPAIR_HEADER]
    place = _REPAIRED.search(texts[-1]) if texts else None
    return None if place is None else (int(place[1]), int(place[2]))


def is_of(letter: TopicRecord, connector: str) -> bool:
    """Whether it may be of a connector: connectors can share a queue."""
    names = [each.value for each in letter.headers if each.key == CONNECTOR_HEADER]
    return not names or names[-1] == connector


def groups_of(letters: Iterable[TopicRecord], states: StatesNow) -> list[Group]:
    """Groups, sorted by the number of open dead letters, the largest first."""
    found: dict[Cause, Group] = {}
    for each in letters:
        cause = cause_of(each)
        group = found.setdefault(cause, Group(cause))
        group.counts[states.state_of(each.partition, each.offset)] += 1
        group.latest = each
    return sorted(found.values(), key=lambda each: (-each.counts[LetterState.OPEN], each.cause))


def digest_of(text: str) -> str:
    """Identifies a text that a form shows, so that a changed one is noticed."""
    return hashlib.sha256(_lines(text).encode("utf-8", "replace")).hexdigest()


def _lines(text: str) -> str:
    """A text without what browsers change of it."""
    return text.replace("\r\n", "\n").strip()


@dataclass(frozen=True, slots=True)
class Repair:
    """A new key and value for the selected dead letter, as JSON; None keeps the present one."""

    key: str | None = None
    value: str | None = None

    @classmethod
    def read(cls, form: Form) -> Self:
        """The parts of a form that differ from the ones that it showed."""
        found: dict[str, str] = {}
        for name in ("key", "value"):
            for text in form.all(name):
                if digest_of(text) != form.one(f"{name}_digest"):
                    found[name] = _lines(text)
        return cls(**found)

    def __bool__(self) -> bool:
        return bool(self.parts)

    @property
    def parts(self) -> dict[str, str]:
        """The new parts by name."""
        return {
            name: text
            for name, text in (("key", self.key), ("value", self.value))
            if text is not None
        }


@dataclass(frozen=True, slots=True)
class Selection:
    """Which open dead letters of a connector: all, the ones with a cause, or single ones.

    Attributes:
        connector: The connector.
        cause: Only dead letters with this cause; None for all.
        letters: The places of the selected dead letters, as partition and offset; empty for all.
        repair: What is changed of the only one before it is replayed.
    """

    connector: str
    cause: Cause | None = None
    letters: Sequence[tuple[int, int]] = ()
    repair: Repair = field(default_factory=Repair)

    @classmethod
    def read(cls, form: Form) -> Self:
        """The selection of a form.

        Raises:
            PageError: It has none, or it is not valid.
        """
        connector = form.one("connector")
        if form.one("every") == "all":
            return cls(connector)
        if form.one("every") == "cause":
            return cls(connector, Cause(form.one("stage"), form.one("cause")))
        letters = [place_of(each) for each in form.all("letter")]
        if not letters:
            raise PageError(
                400, "Nothing is selected", "Select dead letters, or all of a cause, first."
            )
        chosen = tuple(dict.fromkeys(letters))
        repair = Repair.read(form) if len(chosen) == 1 else Repair()
        return cls(connector, letters=chosen, repair=repair)

    def fields(self) -> list[tuple[str, str]]:
        """As the fields of a form."""
        found = [("connector", self.connector)]
        if self.letters:
            found += [("letter", f"{p}:{offset}") for p, offset in self.letters]
            return [*found, *self.repair.parts.items()]
        if self.cause is None:
            return [*found, ("every", "all")]
        cause = [("stage", self.cause.stage), ("cause", self.cause.error_class)]
        return [*found, ("every", "cause"), *cause]

    @property
    def text(self) -> str:
        """In words."""
        if self.repair:
            return f"the repaired dead letter {self.letters[0][0]}:{self.letters[0][1]}"
        if len(self.letters) == 1:
            return f"the dead letter {self.letters[0][0]}:{self.letters[0][1]}"
        if self.letters:
            return f"{len(self.letters):,} dead letters"
        if self.cause is None:
            return "all open dead letters"
        return f"all open dead letters of {self.cause.error_class or 'unknown cause'}"

    @property
    def conditions(self) -> list[str]:
        """The conditions of the request."""
        return [] if self.cause is None else self.cause.conditions

    def replay(self, *, dry_run: bool, force: bool, request_id: str) -> pb.ReplayDeadLettersRequest:
        """The request for a replay."""
        return pb.ReplayDeadLettersRequest(
            name=self.connector,
            conditions=self.conditions,
            letters=self._places(),
            repairs=self._repairs(),
            dry_run=dry_run,
            row_count=_ROWS,
            force=force,
            request_id=request_id,
        )

    def discard(
        self, *, dry_run: bool, reason: str, request_id: str
    ) -> pb.DiscardDeadLettersRequest:
        """The request that discards them."""
        return pb.DiscardDeadLettersRequest(
            name=self.connector,
            conditions=self.conditions,
            letters=self._places(),
            dry_run=dry_run,
            reason=reason,
            request_id=request_id,
        )

    def _places(self) -> list[pb.DeadLetterPlace]:
        return [pb.DeadLetterPlace(partition=p, offset=offset) for p, offset in self.letters]

    def _repairs(self) -> list[DeadLetterRepair]:
        if not self.repair:
            return []
        ((partition, offset),) = self.letters
        return [DeadLetterRepair(partition=partition, offset=offset, **self.repair.parts)]

    def commands(self, action: str, *, force: bool = False, reason: str = "") -> list[str]:
        """The same from the command line and by gRPC."""
        options: list[str] = []
        body: dict[str, object] = {"name": self.connector}
        before: list[str] = []
        if self.repair:
            ((partition, offset),) = self.letters
            repaired = {"letter": f"{partition}:{offset}"} | self.repair.parts
            before = [f"printf '%s\\n' {shlex.quote(_repair_line(repaired))} > repairs.jsonl"]
            options += ["--repair", "repairs.jsonl"]
            place = {"partition": partition, "offset": offset}
            body["repairs"] = [place | self.repair.parts]
        for partition, offset in self.letters if not self.repair else ():
            options += ["--letter", f"{partition}:{offset}"]
        if self.letters:
            body["letters"] = [{"partition": p, "offset": offset} for p, offset in self.letters]
        for each in self.conditions:
            options += ["--where", each]
        if self.conditions:
            body["conditions"] = self.conditions
        if action == DISCARD:
            options += ["--reason", reason]
            body["reason"] = reason
        if force:
            options.append("--force")
            body["force"] = True
        rpc = "ReplayDeadLetters" if action == REPLAY else "DiscardDeadLetters"
        line = drover_command(f"dlq {action}", self.connector, options=options)
        return [*before, line, "", grpc_command(rpc, body)]


def _repair_line(line: Mapping[str, str]) -> str:
    """A line of the file of ``drover dlq replay --repair``; key and value are JSON already."""
    parts = [f'"letter":"{line["letter"]}"']
    parts += [
        f'"{name}":{" ".join(line[name].split(chr(10)))}' for name in line if name != "letter"
    ]
    return "{" + ",".join(parts) + "}"


def place_of(text: str) -> tuple[int, int]:
    """A dead letter from ``partition:offset``.

    Raises:
        PageError: The text has another form.
    """
    partition, _, offset = text.partition(":")
    is_place = all(n.isascii() and n.isdecimal() and len(n) < 19 for n in (partition, offset))
    if not is_place or int(partition) >= 2**31:
        message = f"A dead letter is partition:offset, not {text[:40]!r}."
        raise PageError(400, "The request cannot be read", message)
    return int(partition), int(offset)


def list_url(connector: str, cause: Cause | None = None) -> str:
    """The page of a connector's dead letters, or of the ones with a cause."""
    fields = [("connector", connector)] if connector else []
    if cause is not None:
        fields += [("stage", cause.stage), ("cause", cause.error_class)]
    return f"{DEAD_LETTERS}?{urlencode(fields)}" if fields else DEAD_LETTERS


def letter_url(connector: str, partition: int, offset: int) -> str:
    """The page of one dead letter."""
    fields = {"connector": connector, "letter": f"{partition}:{offset}"}
    return f"{DEAD_LETTERS}?{urlencode(fields)}"


def progress_url(connector: str, ranges: Sequence[Range], ends: Mapping[int, int]) -> str:
    """The page with the progress of a replay; ``ends`` are the ends of the queue at its start."""
    shown = [(each.partition, each.start_offset, each.end_offset) for each in ranges]
    if len(shown) > _RANGES_MAX:
        joined: dict[int, tuple[int, int]] = {}
        for partition, start, end in shown:
            low, high = joined.get(partition, (start, end))
            joined[partition] = (min(low, start), max(high, end))
        shown = [(partition, *each) for partition, each in joined.items()]
    fields = [
        ("connector", connector),
        ("ranges", ",".join(f"{partition}:{start}-{end}" for partition, start, end in shown)),
        ("ends", ",".join(f"{partition}:{end}" for partition, end in sorted(ends.items()))),
    ]
    return f"{PROGRESS}?{urlencode(fields)}"
