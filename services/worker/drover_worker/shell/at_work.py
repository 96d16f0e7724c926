"""Which connectors and tasks may have ended an engine, by what was at work at its end."""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
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


def suspects(
    marks: Sequence[Mark] | None, kind: EndKind, busy_threads: Collection[int] = ()
) -> tuple[StatusKey, ...] | None:
    """The connectors and tasks that may be the cause of an end, the most suspicious first.

    Args:
        marks: What was at work; None if unknown.
        kind: How the engine ended.
        busy_threads: If it did not answer: the ids of threads that used a processor.

    Returns:
        None if they are unknown.
    """
    if marks is None:
        return None
    new = [each for each in marks if not each.is_seasoned]
    if kind is EndKind.KILL:
        # another process may have killed it; only work that ends each engine at once is suspected
        chosen = new
    elif kind is EndKind.MEMORY:
        # healthy tasks block as well when memory runs out
        chosen = new or list(marks)
    else:
        # the others wait for the interpreter lock
        chosen = [each for each in marks if each.thread_id in busy_threads] or list(marks)
    ordered = sorted(
        chosen, key=lambda each: (not each.in_call, each.is_seasoned, -each.started_ns)
    )
    return tuple(dict.fromkeys(each.key for each in ordered))


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
