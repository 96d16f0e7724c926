"""Timers as data: keyed, replaceable, kept in a heap. Pure; the runtime supplies the time."""

import heapq

COMPACT_ABOVE = 64


class Timers:
    """The timers that a machine has set.

    Moving a timer to a later deadline, as heartbeats do, only changes a dictionary. The heap entry
    stays and is corrected when it reaches the top.
    """

    def __init__(self) -> None:
        self._by_key: dict[str, tuple[int, int, object]] = {}
        #: deadline, sequence, key. Each key of ``_by_key`` has an entry that is not later than its
        #: deadline; other entries are stale and ignored.
        self._heap: list[tuple[int, int, str]] = []
        #: deadline of the earliest heap entry of a key
        self._heap_deadline: dict[str, int] = {}
        self._sequence = 0
        self._held_until_ms = 0

    def __len__(self) -> int:
        return len(self._by_key)

    def set(self, key: str, deadline_ms: int, event: object) -> None:
        """Set or replace the timer ``key``."""
        self._sequence += 1
        self._by_key[key] = (deadline_ms, self._sequence, event)
        placed = self._heap_deadline.get(key)
        if placed is None or deadline_ms < placed:
            self._push(key, deadline_ms, self._sequence)

    def cancel(self, key: str) -> None:
        """Cancel the timer ``key``; no effect if it is not set."""
        if self._by_key.pop(key, None) is not None and len(self._heap) > COMPACT_ABOVE:
            self._rebuild_if_wasteful()

    def hold_until(self, time_ms: int) -> None:
        """Let no timer be due before ``time_ms``; a later hold replaces an earlier one."""
        self._held_until_ms = max(self._held_until_ms, time_ms)

    def next_deadline_ms(self) -> int | None:
        """The earliest deadline, or None without timers."""
        self._settle_top()
        return max(self._heap[0][0], self._held_until_ms) if self._heap else None

    def pop_due(self, now_ms: int) -> tuple[str, object] | None:
        """Remove and return key and event of the earliest due timer; None if no timer is due.

        Timers are ordered by deadline; timers with equal deadlines by when they were set.
        """
        self._settle_top()
        if not self._heap or self._heap[0][0] > now_ms or self._held_until_ms > now_ms:
            return None
        _, _, key = heapq.heappop(self._heap)
        self._heap_deadline.pop(key, None)
        return key, self._by_key.pop(key)[2]

    def clear(self) -> None:
        """Cancel all timers."""
        self._by_key.clear()
        self._heap.clear()
        self._heap_deadline.clear()

    def _push(self, key: str, deadline_ms: int, sequence: int) -> None:
        self._heap_deadline[key] = deadline_ms
        heapq.heappush(self._heap, (deadline_ms, sequence, key))

    def _settle_top(self) -> None:
        """Drop or move entries until the top entry has its timer's actual deadline."""
        heap = self._heap
        while heap:
            deadline_ms, sequence, key = heap[0]
            timer = self._by_key.get(key)
            if timer is not None and timer[0] == deadline_ms and timer[1] == sequence:
                return
            heapq.heappop(heap)
            if self._heap_deadline.get(key) != deadline_ms:
                continue  # a stale entry; the key has an earlier one
            if timer is None:
                del self._heap_deadline[key]
            else:
                self._push(key, timer[0], timer[1])

    def _rebuild_if_wasteful(self) -> None:
        if len(self._heap) <= 2 * len(self._by_key):
            return
        self._heap = [(deadline, seq, key) for key, (deadline, seq, _) in self._by_key.items()]
        heapq.heapify(self._heap)
        self._heap_deadline = {key: deadline for deadline, _, key in self._heap}
