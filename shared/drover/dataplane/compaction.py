"""Compacts partitions of embedded topics: the latest record of each key stays.

As Kafka's log cleaner: a pass notes the latest offset of each key among the records that no pass
has seen, then rewrites the batches from the start of the partition without the earlier records of
these keys. Offsets and order do not change. A key is the bytes of the record's key. A tombstone, a
record without a value, stays for ``delete.retention.ms`` after the first pass that has seen it, so
that readers that have read the value before also read the tombstone (KIP-534).

Each replacement of batches is one transaction that writes new blobs beside the old ones, so a pass
may end at any point: the next one starts at the first batch and finds the latest record of each key
as before.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from drover.dataplane import payload, retention
from drover.dataplane.compaction_state import CompactedBatch, CompactionWork, StoredBatch
from drover.dataplane.store import EmbeddedStore

#: Small batches are joined up to this size.
JOINED_BYTES = 4 * 1024 * 1024
#: The most batches and bytes that one transaction replaces.
BATCHES_AT_ONCE = retention.BATCHES_AT_ONCE
BYTES_AT_ONCE = retention.BYTES_AT_ONCE
#: The most keys of a pass, and the approximate bytes of them; the next pass continues after them.
KEYS_MAX = 500_000
KEYS_BYTES_MAX = 64 * 1024 * 1024
#: The pause after each replacement, in which others can lock the file.
PAUSE_S = 0.05
#: How long a process is the only one that compacts, unless it renews this claim.
TURN_MS = 60_000


@dataclass(slots=True)
class CompactionResult:
    """What compaction removed."""

    record_count: int = 0
    size_bytes: int = 0


class _EndOfPassError(Exception):
    """The partition was changed by others, or the process stops: another pass follows."""


class Compactor:
    """Compacts the topics of a store, in bounded steps. One process at a time does.

    Args:
        store: The store.
        holder: Identifies the process.
        wait: Waits for a number of seconds, or until the process stops; returns whether it stops.
    """

    def __init__(self, store: EmbeddedStore, holder: str, wait: Callable[[float], bool]) -> None:
        self._store = store
        self._holder = holder
        self._wait = wait
        self._renewed_ms = 0

    def run(self) -> CompactionResult:
        """A pass over each partition that needs one.

        Raises:
            DroverError: The store cannot be used; completed steps are not undone.
        """
        result = CompactionResult()
        for topic, partition in self._store.due_compactions():
            self._renewed_ms = 0
            try:
                self._renew()
                work = self._store.compaction_work(topic, partition)
                if work is not None:
                    self._pass(work, result)
            except _EndOfPassError:
                continue
        return result

    def _pass(self, work: CompactionWork, result: CompactionResult) -> None:
        latest, end_offset = self._latest_offsets(work)
        expired_ms = self._store.now_ms() - work.settings.delete_retention_ms
        times = [each.tombstone_ms for each in work.batches if each.tombstone_ms is not None]
        if end_offset <= work.clean_offset and min(times, default=expired_ms + 1) > expired_ms:
            return
        group = _Group()
        for batch in work.batches:
            if batch.end_offset > end_offset:
                break
            self._renew()
            kept = self._kept(work, batch, latest)
            if not group.takes(batch, kept, _spread_ms(work)):
                self._replace(work, group, result)
                group = _Group()
            group.add(batch, kept)
        self._replace(work, group, result)
        if end_offset > work.clean_offset:
            self._store.end_compaction(work, end_offset)

    def _latest_offsets(self, work: CompactionWork) -> tuple[dict[bytes | None, int], int]:
        """The latest offset of each key that no pass has seen, up to the returned offset."""
        latest: dict[bytes | None, int] = {}
        key_bytes = 0
        end_offset = work.clean_offset
        for batch in work.batches:
            if batch.end_offset <= work.clean_offset:
                continue
            if len(latest) >= KEYS_MAX or key_bytes >= KEYS_BYTES_MAX:
                break
            self._renew()
            for records in self._records(batch):
                known_count, keys = len(latest), records.column("key")
                offsets = records.column("offset").to_pylist()
                latest.update(zip(keys.to_pylist(), offsets, strict=True))
                key_bytes += keys.nbytes * (len(latest) - known_count) // len(offsets)
            end_offset = batch.end_offset
        latest.pop(None, None)  # records without a key stay
        return latest, end_offset

    def _kept(
        self, work: CompactionWork, batch: StoredBatch, latest: dict[bytes | None, int]
    ) -> "_Kept":
        """The records of a batch that stay."""
        now_ms = self._store.now_ms()
        kept = _Kept()
        for records in self._records(batch):
            kept.add(records, latest, now_ms, now_ms - work.settings.delete_retention_ms)
        return kept

    def _records(self, batch: StoredBatch) -> Iterator[Any]:
        stored = self._store.read_blob(batch.blob_id)
        if stored is None:
            raise _EndOfPassError
        return payload.decode(stored, batch.base_offset)

    def _replace(self, work: CompactionWork, group: "_Group", result: CompactionResult) -> None:
        if not group.changes:
            return
        if not self._store.replace_batches(work, group.batches, group.encoded()):
            raise _EndOfPassError
        result.record_count += group.removed_count
        result.size_bytes += group.stored_bytes - group.size_bytes
        if self._wait(PAUSE_S):
            raise _EndOfPassError

    def _renew(self) -> None:
        """Keep the turn; renewed long before it ends."""
        now_ms = self._store.now_ms()
        if self._renewed_ms and now_ms - self._renewed_ms < TURN_MS // 4:
            return
        self._renewed_ms = now_ms
        if self._wait(0) or not self._store.take_compaction_turn(self._holder, TURN_MS):
            raise _EndOfPassError


@dataclass(slots=True)
class _Kept:
    """The records of one batch that stay."""

    batches: list[Any] = field(default_factory=list)
    size_bytes: int = 0
    record_count: int = 0
    removed_count: int = 0
    #: The earliest time at which a tombstone was kept.
    tombstone_ms: int | None = None
    has_new_tombstones: bool = False

    def add(
        self, records: Any, latest: dict[bytes | None, int], now_ms: int, expired_ms: int
    ) -> None:
        """Keep the latest records of ``records``, and the tombstones kept first after
        ``expired_ms``.
        """
        keys = records.column("key").to_pylist()
        offsets = records.column("offset").to_pylist()
        stays = np.fromiter(
            (latest.get(key, -1) <= offset for key, offset in zip(keys, offsets, strict=True)),
            bool,
            len(offsets),
        )
        is_tombstone = records.column("value").is_null().to_numpy(zero_copy_only=False)
        since = records.column("kept_ms").fill_null(-1).to_numpy(zero_copy_only=False)
        stays &= ~(is_tombstone & (since >= 0) & (since <= expired_ms))
        is_new = is_tombstone & (since < 0) & stays
        self.removed_count += len(offsets) - int(stays.sum())
        if is_new.any():
            self.has_new_tombstones = True
            since = np.where(is_new, now_ms, since)
        times = since[is_tombstone & stays]
        if len(times):
            earliest = int(times.min())
            self.tombstone_ms = min(earliest, self.tombstone_ms or earliest)
        column = pa.array(since, pa.int64(), mask=since < 0)
        index = records.schema.get_field_index("kept_ms")
        kept = records.set_column(index, records.schema.field(index), column).filter(
            pa.array(stays)
        )
        if kept.num_rows:
            self.batches.append(kept)
            self.record_count += kept.num_rows
            self.size_bytes += kept.nbytes


@dataclass(slots=True)
class _Group:
    """Neighbouring batches that become one."""

    batches: list[StoredBatch] = field(default_factory=list)
    kept: list[_Kept] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.kept)

    @property
    def stored_bytes(self) -> int:
        return sum(each.size_bytes for each in self.batches)

    @property
    def removed_count(self) -> int:
        return sum(each.removed_count for each in self.kept)

    @property
    def changes(self) -> bool:
        """Whether the stored batches differ from the group."""
        changed = any(each.removed_count or each.has_new_tombstones for each in self.kept)
        return changed or len(self.batches) > 1

    def takes(self, batch: StoredBatch, kept: _Kept, spread_ms: int | None) -> bool:
        """Whether the batch may be joined to the group."""
        if not self.batches:
            return True
        first_ms = min(each.created_ms for each in self.batches)
        return (
            (spread_ms is None or batch.created_ms - first_ms <= spread_ms)
            and self.size_bytes + kept.size_bytes <= JOINED_BYTES
            # one transaction removes them all
            and self.stored_bytes + batch.size_bytes <= BYTES_AT_ONCE
            and len(self.batches) < BATCHES_AT_ONCE
        )

    def add(self, batch: StoredBatch, kept: _Kept) -> None:
        """Join a batch."""
        self.batches.append(batch)
        self.kept.append(kept)

    def encoded(self) -> CompactedBatch:
        """The batch that replaces the group's."""
        records = [batch for each in self.kept for batch in each.batches]
        times = [each.tombstone_ms for each in self.kept if each.tombstone_ms is not None]
        return CompactedBatch(
            payload=payload.encode(records, payload.COMPACTED_SCHEMA),
            record_count=sum(each.record_count for each in self.kept),
            size_bytes=self.size_bytes,
            tombstone_ms=min(times, default=None),
        )


def _spread_ms(work: CompactionWork) -> int | None:
    """The most time between batches that are joined: the joined one is as new as its newest, and
    should not keep old records much longer than their retention.
    """
    retention_ms = work.settings.retention_ms
    return retention_ms // 10 if work.settings.deletes and retention_ms is not None else None
