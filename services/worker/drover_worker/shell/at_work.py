"""Which connectors and tasks may have ended an engine, by what was at work then and before."""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from drover.model.status import StatusKey
from drover_worker.core.events import EndKind
from drover_worker.engine.in_flight import Mark

_PROC = Path("/proc")
#: A thread holds the interpreter if it used at least this time, and this share of the time that
#: all threads at work used. On a busy machine it gets only a part of a core.
_BUSY_MIN_S, _BUSY_SHARE = 0.05, 0.5
#: Fields of /proc/PID/stat after the name in brackets, from 0: user and system time, in ticks.
_TIME_FIELDS = slice(11, 13)
#: Code that ran may end the engine up to this time later, such as after it closed descriptors.
_RECENT_NS = 2_000_000_000
#: Connectors and tasks that were started this shortly before the end are suspected first.
_YOUNG_NS = 10_000_000_000


@dataclass(frozen=True, slots=True)
class Suspects:
    """The connectors and tasks that may have ended an engine, the most suspicious first.

    Attributes:
        at_work: The ones at work, and the ones that worked shortly before and are newer than all of
            these; None if unknown.
        recent: The others that worked shortly before.
    """

    at_work: tuple[StatusKey, ...] | None = ()
    recent: tuple[StatusKey, ...] = ()


def suspects(
    marks: Sequence[Mark] | None,
    kind: EndKind,
    busy_threads: Collection[int] = (),
    *,
    ended_ns: int | None = None,
) -> Suspects:
    """The connectors and tasks that may be the cause of an end.

    Args:
        marks: What was at work and before; None if unknown.
        kind: How the engine ended.
        busy_threads: If it did not answer: the ids of threads that used a processor.
        ended_ns: If the process ended without a request: when, by a monotonic clock.
    """
    if marks is None:
        return Suspects(None)
    damaged = [each for each in marks if each.has_damaged]
    if damaged:
        return Suspects(_keys(damaged))
    present = [each for each in marks if each.ended_ns is None]
    new = [each for each in present if not each.is_seasoned]
    if kind is EndKind.KILL:
        # another process may have killed it; only work that ends each engine at once is suspected
        chosen = new
    elif kind is EndKind.MEMORY:
        # healthy tasks block as well when memory runs out
        chosen = new or present
    else:
        # the others wait for the interpreter lock
        chosen = [each for each in present if each.thread_id in busy_threads] or present
    young = _young(marks, ended_ns) if ended_ns is not None else frozenset()
    ordered = _keys(
        sorted(
            chosen,
            key=lambda each: (
                not each.in_call,
                each.key not in young,
                each.is_seasoned,
                -each.started_ns,
            ),
        )
    )
    if kind is not EndKind.CRASH or ended_ns is None:
        return Suspects(ordered)
    recent = _keys(sorted(_recent(marks, ended_ns), key=lambda each: -each.since_ns))
    first = () if young & set(ordered) else tuple(key for key in recent if key in young)
    at_work = (*first, *ordered) if ordered else ()
    return Suspects(at_work, tuple(key for key in recent if key not in at_work))


def _recent(marks: Iterable[Mark], ended_ns: int) -> list[Mark]:
    """Work that ended shortly before the engine."""
    return [
        each
        for each in marks
        if each.ended_ns is not None and ended_ns - each.ended_ns <= _RECENT_NS
    ]


def _young(marks: Iterable[Mark], ended_ns: int) -> frozenset[StatusKey]:
    return frozenset(each.key for each in marks if ended_ns - each.since_ns <= _YOUNG_NS)


def _keys(marks: Iterable[Mark]) -> tuple[StatusKey, ...]:
    return tuple(dict.fromkeys(each.key for each in marks))


def thread_times_s(thread_ids: Iterable[int]) -> dict[int, float]:
    """The processor time that each thread has used, in seconds, without threads that ended."""
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    times = {}
    for thread_id in thread_ids:
        try:
            # /proc/ID/stat has the times of the whole process, also if ID is a thread
            thread = _PROC / str(thread_id) / "task" / str(thread_id)
            fields = (thread / "stat").read_text(errors="replace")
        except OSError:
            continue
        # the name in brackets may contain anything; the fields follow the last bracket
        used = fields.rpartition(")")[2].split()[_TIME_FIELDS]
        times[thread_id] = sum(int(each) for each in used) / ticks_per_s
    return times


def busy_threads(before: Mapping[int, float], after: Mapping[int, float]) -> frozenset[int]:
    """The threads that used a processor between two readings of ``thread_times_s``."""
    used_s = {thread: after[thread] - before[thread] for thread in before.keys() & after.keys()}
    least_s = max(_BUSY_MIN_S, _BUSY_SHARE * sum(used_s.values()))
    return frozenset(thread for thread, each_s in used_s.items() if each_s >= least_s)
