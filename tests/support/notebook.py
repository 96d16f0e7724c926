"""A machine for tests of the runtime: it executes its events' decisions and keeps a diary."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from drover.clock import Clock
from drover.log.log import Log, LogRecord, StoredRecord
from drover.machine import AppendFailed, Complete, Instruction, Notify, Outcome, Replayed, SetTimer
from drover.runtime.runtime import Runtime

Decide = Callable[["Notebook", int], Outcome[str]]


@dataclass(frozen=True)
class Event:
    """An event with its own decision function."""

    decide: Decide
    name: str = ""


@dataclass
class Notebook:
    """A machine that executes each event's decision, and notes every call in a diary."""

    lines: list[str] = field(default_factory=list)
    diary: list[str] = field(default_factory=list)
    request_ids: list[str] = field(default_factory=list)
    replayed: list[Replayed[str]] = field(default_factory=list)

    def handle(self, event: Event | AppendFailed, now_ms: int) -> Outcome[str]:
        if isinstance(event, AppendFailed):
            assert isinstance(event.event, Event)
            self.diary.append(f"failed {event.event.name} {event.error.reason}")
            return event.event.decide(self, now_ms)
        self.diary.append(f"handle {event.name}")
        return event.decide(self, now_ms)

    def replay(self, replayed: Replayed[str]) -> Sequence[Instruction]:
        if replayed.record == "poison":
            raise KeyError("poison")
        self.diary.append(f"replay {replayed.offset} {replayed.record}")
        self.lines.append(replayed.record)
        self.request_ids.append(replayed.request_id)
        self.replayed.append(replayed)
        return (Notify("lines", replayed.record),)

    def loaded(self, now_ms: int, end_offset: int) -> Sequence[Instruction]:
        self.diary.append(f"loaded {end_offset}")
        return (
            SetTimer("from load", now_ms + 500, event("armed", answer())),
            Notify("lines", "loaded"),
        )

    def validate(self) -> None:
        pass


def event(name: str, decide: Decide) -> Event:
    return Event(decide, name)


def answer(*instructions: Instruction) -> Decide:
    """A decision without records."""
    return lambda _machine, _now_ms: Outcome((), instructions)


def write(*records: str, then: Sequence[Instruction] = (), **options: object) -> Decide:
    return lambda _machine, _now_ms: Outcome(records, then, **options)  # type: ignore[arg-type]


def encode(record: str) -> LogRecord:
    if record == "unwritable":
        raise ValueError("unwritable")
    return LogRecord(record.encode(), record.encode())


def decode(stored: StoredRecord) -> str | None:
    text = (stored.record.value or b"").decode()
    return None if text == "foreign" else text


def new_runtime(machine: Notebook, log: Log, clock: Clock, **bounds: Any) -> Runtime[str]:
    return Runtime(
        machine, log, encode=encode, decode=decode, clock=clock, name="notebook", **bounds
    )


def put(line: str, call_id: str, **options: object) -> Event:
    return event(line, write(line, then=[Complete(call_id, f"wrote {line}")], **options))


async def start(*calls: Coroutine[Any, Any, object]) -> list["asyncio.Task[object]"]:
    """Start calls in order, and run each until it waits."""
    tasks = [asyncio.create_task(call) for call in calls]
    for _ in range(5):
        await asyncio.sleep(0)
    return tasks
