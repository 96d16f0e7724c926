"""The embedded store: topics, committed offsets and claims in one SQLite file.

One transaction can contain a batch's records, its offsets and the check of the claim, because all
are in one file. The coordinator, every engine and every Spark executor of the machine open the same
file.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from drover.clock import Clock, SystemClock
from drover.dataplane import (
    appends,
    claims,
    compaction_state,
    marks,
    offsets,
    planning,
    publishing,
    retention,
    topic_settings,
    topics,
)
from drover.dataplane.compaction_state import CompactedBatch, CompactionWork, StoredBatch
from drover.dataplane.database import LOCK_TIMEOUT_MS, Database
from drover.dataplane.values import (
    Appended,
    PublishResult,
    ReadPlan,
    RetentionResult,
    StagedBlob,
    TopicInfo,
)
from drover.errors import FailedPreconditionError, InvalidArgumentError, Reason
from drover.model.claims import ClaimRequest
from drover.model.ids import TaskId, Term
from drover.model.offset_json import canonical_json
from drover.model.offsets import (
    CommitOutcome,
    CommitResult,
    CommittedOffset,
    OffsetsChange,
    TaskOffsets,
)
from drover.model.times import DAY_MS

DEFAULT_RETENTION_MS = 7 * DAY_MS
_NO_SETTINGS: Mapping[str, str] = {}


class EmbeddedStore:
    """``data.db``, opened; thread-safe, and picklable (it opens the file again where it lands).

    Every method is one transaction. It waits, within bounds, while another process writes, and
    then raises UnavailableError STORAGE_UNAVAILABLE, with nothing done; a damaged file raises
    DataLossError LOG_CORRUPT.

    Example:
        >>> store = EmbeddedStore(Path("/var/drover/data.db"))
        >>> store.ensure_topic("flights", partition_count=1)
        TopicInfo(name='flights', partition_count=1)
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock | None = None,
        lock_timeout_ms: int = LOCK_TIMEOUT_MS,
    ) -> None:
        self.path = Path(path)
        self._clock: Clock = clock if clock is not None else SystemClock()
        self._database = Database(self.path, lock_timeout_ms=lock_timeout_ms)
        self._cache_lock = threading.Lock()
        self._cache_version = -1
        self._bounds: Mapping[tuple[str, int], tuple[int, int]] = {}
        self._topic_ids: Mapping[str, str] = {}
        self._compacts = False

    def __reduce__(self) -> tuple[Any, ...]:
        return (EmbeddedStore, (self.path,))

    # -- claims and offsets ------------------------------------------------------------------

    def claim_task(
        self,
        task: TaskId,
        *,
        generation: int,
        owner: str,
        request_id: str,
        task_config_generation: int = -1,
    ) -> Term:
        """Make ``owner`` the only committer of ``task``; removes blobs staged by earlier owners.

        All current claims of a connector belong to one set of task configs: a claim with another
        ``task_config_generation`` makes those of all its tasks stale. The later generation
        determines the current set; within a generation, the greater number.

        The same ``request_id`` gets the same claim until a later one is granted.

        Raises:
            FailedPreconditionError: STALE_TERM, a later generation holds the task, a later set of
                task configs was claimed, or this request was granted before and superseded.
        """
        request = ClaimRequest(task, generation, owner, request_id, task_config_generation)
        (answer,) = self.claim_tasks([request])
        if isinstance(answer, FailedPreconditionError):
            raise answer
        return answer

    def claim_tasks(self, requests: Sequence[ClaimRequest]) -> list[Term | FailedPreconditionError]:
        """Grant several claims, one after another, with one disk write; returns an answer for each.

        A refused request returns its STALE_TERM error and does not affect the others.
        """
        answers: list[Term | FailedPreconditionError] = []
        connectors: set[str] = set()
        with self._database.write() as connection:
            now_ms = self._clock.now_ms()
            for request in requests:
                try:
                    term = claims.grant(connection, request, now_ms)
                except FailedPreconditionError as error:
                    answers.append(error)
                else:
                    answers.append(term)
                    connectors.add(request.task.connector)
            for connector in sorted(connectors):
                publishing.discard_stale(connection, connector)
        return answers

    def current_claim(self, task: TaskId) -> Term | None:
        """The current claim, or None if the task was never claimed."""
        with self._database.read() as connection:
            return claims.current(connection, task)

    def commit_offsets(self, commits: Sequence[TaskOffsets]) -> list[CommitResult]:
        """Commit offsets of tasks, each under its claim; returns a result for each, in order.

        A task's offsets are committed together or not at all; all tasks share one disk write. A
        late copy (see ``TaskOffsets.number``) writes nothing.
        """
        faults = [offsets.validate(each.offsets) for each in commits]
        results = []
        with self._database.write() as connection:
            now_ms = self._clock.now_ms()
            for commit, violations in zip(commits, faults, strict=True):
                stale = claims.stale_message(connection, commit.task, commit.claim)
                if stale is not None:
                    results.append(CommitResult(commit.task, CommitOutcome.STALE_CLAIM, stale))
                elif violations:
                    message = "; ".join(f"{each.field} {each.description}" for each in violations)
                    results.append(CommitResult(commit.task, CommitOutcome.INVALID, message))
                else:
                    if not claims.comes_late(connection, commit.task, commit.claim, commit.number):
                        offsets.write(connection, commit.task.connector, commit.offsets, now_ms)
                        marks.remove(connection, commit.task.connector, commit.offsets)
                    results.append(CommitResult(commit.task, CommitOutcome.COMMITTED))
        return results

    def change_offsets(self, change: OffsetsChange) -> None:
        """Write or remove offsets of a connector without running tasks; makes its claims stale.

        Raises:
            InvalidArgumentError: INVALID_REQUEST, faulty offsets.
            FailedPreconditionError: STALE_TERM, a later set of task configs was claimed.
        """
        offsets.require_valid(change.offsets or ())
        what = f"the offsets of connector {change.connector} cannot be changed"
        with self._database.write() as connection:
            now_ms = self._clock.now_ms()
            claims.fence(connection, change.connector, change.task_set, what, now_ms)
            publishing.discard_stale(connection, change.connector)
            if change.offsets is None:
                if not change.without_positions:
                    marks.reset_all(connection, change.connector, change.written)
                offsets.remove_all(connection, change.connector)
            else:
                changed = marks.change(connection, change.connector, change.offsets)
                offsets.write(connection, change.connector, changed, now_ms)

    def fetch_offsets(self, connector: str, *, with_marks: bool = False) -> list[CommittedOffset]:
        """A connector's committed offsets, including all that were durable before the call.

        ``with_marks`` adds the marks of sink partitions without an offset, as offsets of None.
        """
        with self._database.read() as connection:
            found = offsets.fetch(connection, connector)
            return [*found, *marks.fetch(connection, connector)] if with_marks else found

    def marks(self, connector: str) -> list[CommittedOffset]:
        """The marks of a sink's partitions without an offset, as offsets of None."""
        with self._database.read() as connection:
            return marks.fetch(connection, connector)

    def fetch_offsets_page(
        self, connector: str, *, after_partition_json: str = "", max_bytes: int
    ) -> tuple[list[CommittedOffset], bool]:
        """Some of a connector's offsets, ordered by canonical partition.

        Args:
            connector: The connector.
            after_partition_json: Start after this partition; empty to start with the first.
            max_bytes: The approximate limit; at least one offset is returned, if there is one.

        Returns:
            The offsets, and whether more follow.
        """
        after_key = canonical_json(after_partition_json) if after_partition_json else ""
        with self._database.read() as connection:
            return offsets.fetch_page(connection, connector, after_key, max_bytes)

    # -- topics ------------------------------------------------------------------------------

    def ensure_topic(
        self,
        name: str,
        partition_count: int = 1,
        *,
        at_least: int = 0,
        settings: Mapping[str, str] = _NO_SETTINGS,
    ) -> TopicInfo:
        """Create the topic, or return it unchanged (its partition count and its settings may
        differ). A topic with fewer partitions than ``at_least`` gets ``partition_count``
        partitions.

        Raises:
            InvalidArgumentError: INVALID_REQUEST, an invalid name, count or setting.
        """
        topics.require_valid(name, max(partition_count, at_least))
        with self._database.read() as connection:
            found = topics.find(connection, name)
        if found is not None and found.partition_count >= at_least:
            return found
        valid = topic_settings.require_valid(name, settings)
        now_ms = self._clock.now_ms()
        with self._database.write() as connection:
            return topics.ensure(
                connection, name, partition_count, now_ms, at_least=at_least, settings=valid
            )

    def topic_settings(self, name: str) -> Mapping[str, str]:
        """The settings that the topic was created with."""
        with self._database.read() as connection:
            return topics.settings(connection).get(name, {})

    def has_compacted_topics(self) -> bool:
        """Whether any topic keeps the latest record of each key; as cheap as ``end_offsets``."""
        self._cached_bounds()
        return self._compacts

    def default_settings(self) -> Mapping[str, str]:
        """The cluster's settings for topics that were created without them."""
        with self._database.read() as connection:
            return topics.default_settings(connection)

    def set_default_settings(self, settings: Mapping[str, str]) -> None:
        """Store the cluster's settings for topics, to be shown; called by the coordinator."""
        if self.default_settings() == settings:
            return
        with self._database.write() as connection:
            connection.execute("DELETE FROM default_topic_settings")
            connection.executemany(
                "INSERT INTO default_topic_settings VALUES (?, ?)", settings.items()
            )

    def topic(self, name: str) -> TopicInfo | None:
        """The topic, or None if it does not exist."""
        with self._database.read() as connection:
            return topics.find(connection, name)

    def topics(self) -> list[TopicInfo]:
        """Every topic, sorted by name."""
        with self._database.read() as connection:
            return topics.list_all(connection)

    def end_offsets(self, topic: str) -> dict[int, int]:
        """The end offset of each partition; empty if the topic does not exist.

        Cheap without new writes: no disk access, so idle sinks may poll it.
        """
        return {
            partition: end
            for (name, partition), (_, end) in self._cached_bounds().items()
            if name == topic
        }

    def start_offsets(self, topic: str) -> dict[int, int]:
        """The first offset after retention, of each partition."""
        return {
            partition: start
            for (name, partition), (start, _) in self._cached_bounds().items()
            if name == topic
        }

    def bounds(self) -> Mapping[tuple[str, int], tuple[int, int]]:
        """First and end offset of every (topic, partition); as cheap as ``end_offsets``."""
        return self._cached_bounds()

    def topic_ids(self) -> Mapping[str, str]:
        """The id of every topic; as cheap as ``end_offsets``. A topic that is created again under
        the same name gets another id.
        """
        self._cached_bounds()
        return self._topic_ids

    def has_data(self, starts: Mapping[tuple[str, int], int]) -> bool:
        """Whether any (topic, partition) has records at or after its start; as cheap as
        ``end_offsets``.
        """
        bounds = self._cached_bounds()
        return any(bounds.get(key, (0, 0))[1] > start for key, start in starts.items())

    # -- writing and reading records ---------------------------------------------------------

    def stage(self, task: TaskId, claim: Term, payload: bytes) -> int:
        """Write a blob that is not visible to readers; returns its id. Called by executors.

        Raises:
            FailedPreconditionError: STALE_CLAIM, nothing was written.
        """
        with self._database.write() as connection:
            return publishing.stage(connection, task, claim, payload)

    def publish(
        self,
        task: TaskId,
        claim: Term,
        staged: Iterable[StagedBlob],
        committed: Sequence[CommittedOffset] = (),
    ) -> PublishResult:
        """Make staged blobs visible and commit their source offsets, in one transaction.

        Blobs get their offsets in the order of (spark_partition, sequence). Other staged blobs of
        the task belong to failed attempts and are removed.

        Raises:
            FailedPreconditionError: STALE_CLAIM, nothing was written.
            InvalidArgumentError: INVALID_REQUEST, faulty offsets, or a blob that is not staged
                under this claim.
        """
        offsets.require_valid(committed)
        ordered = sorted(staged, key=lambda each: (each.spark_partition, each.sequence))
        with self._database.write() as connection:
            now_ms = self._clock.now_ms()
            claims.check(connection, task, claim)
            result = publishing.publish(connection, task, claim, ordered, now_ms)
            offsets.write(connection, task.connector, committed, now_ms)
        return result

    def append(
        self, topic: str, parts: Mapping[int, Sequence[tuple[int, bytes]]], request_id: str
    ) -> Appended:
        """Write blobs to partitions of a topic, without a claim; a repeated call with the same
        request id writes nothing.

        Args:
            topic: The topic.
            parts: By partition, in order: the number of records and the blob.
            request_id: The id of the call.

        Raises:
            NotFoundError: TOPIC_NOT_FOUND.
            InvalidArgumentError: INVALID_REQUEST, no such partition.
        """
        with self._database.write() as connection:
            known_count = appends.find(connection, topic, request_id)
            if known_count is not None:
                return Appended(known_count, repeated=True)
            now_ms = self._clock.now_ms()
            count = publishing.append(connection, topic, parts, now_ms).record_count
            appends.remember(connection, topic, request_id, count, now_ms)
        return Appended(count)

    def plan_read(
        self,
        starts: Mapping[tuple[str, int], int],
        *,
        max_records: int = planning.MAX_RECORDS,
        max_bytes: int = planning.MAX_BYTES,
        range_bytes: int = planning.RANGE_BYTES,
    ) -> ReadPlan:
        """Plan the next read of each (topic, partition), as ranges for executors.

        Args:
            starts: The start offset by (topic, partition); 0 for a partition never read.
            max_records: The most records in total; at least one is planned if there are any.
            max_bytes: The approximate size limit in total; at least one record is planned if there
                are any.
            range_bytes: The approximate size of a range.
        """
        if min(max_records, max_bytes, range_bytes) < 1:
            raise InvalidArgumentError(
                Reason.INVALID_REQUEST, "max_records, max_bytes and range_bytes must be at least 1"
            )
        if not self.has_data(starts):
            return ReadPlan((), dict(starts))
        with self._database.read() as connection:
            return planning.plan(
                connection,
                starts,
                max_records=max_records,
                max_bytes=max_bytes,
                range_bytes=range_bytes,
            )

    def read_blobs(
        self, topic: str, partition: int, start_offset: int, end_offset: int
    ) -> list[tuple[int, int, int]]:
        """The blobs with offsets in [start_offset, end_offset): (base offset, record count, blob
        id), in order.
        """
        with self._database.read() as connection:
            return planning.blobs(connection, topic, partition, start_offset, end_offset)

    def read_blob(self, blob_id: int) -> bytes | None:
        """A blob's payload; None if retention has removed it."""
        with self._database.read() as connection:
            row = connection.execute(
                "SELECT payload FROM blobs WHERE blob_id = ?", (blob_id,)
            ).fetchone()
        return row[0] if row else None

    # -- housekeeping ------------------------------------------------------------------------

    def apply_retention(
        self,
        *,
        retention_ms: int | None = DEFAULT_RETENTION_MS,
        retention_bytes: int | None = None,
    ) -> RetentionResult:
        """Remove old batches, a bounded number per call; repeat while it removes something.

        Takes the file's write lock only if there is something to remove. New batches reuse the
        space; ``give_space_back`` shrinks the file.

        Args:
            retention_ms: Remove batches older than this; None keeps them. A topic's own setting
                takes precedence.
            retention_bytes: Remove the oldest batches of a topic partition above this size, counted
                before compression; None keeps them. As for ``retention_ms``.
        """
        with self._database.read() as connection:
            expired = retention.find(
                connection,
                now_ms=self._clock.now_ms(),
                retention_ms=retention_ms,
                retention_bytes=retention_bytes,
            )
        if not expired:
            return RetentionResult()
        with self._database.write() as connection:
            return retention.remove(connection, expired)

    def due_compactions(self) -> Sequence[tuple[str, int]]:
        """The (topic, partition) pairs that need a pass of compaction."""
        with self._database.read() as connection:
            return compaction_state.due(connection, self._clock.now_ms())

    def compaction_work(self, topic: str, partition: int) -> CompactionWork | None:
        """What a pass over a partition may change; None if the topic is gone or not compacted."""
        with self._database.read() as connection:
            return compaction_state.work(connection, topic, partition, self._clock.now_ms())

    def replace_batches(
        self, of: CompactionWork, replaced: Sequence[StoredBatch], by: CompactedBatch
    ) -> bool:
        """Replace neighbouring batches; False if retention or another pass changed them."""
        with self._database.write() as connection:
            return compaction_state.replace(connection, of, replaced, by)

    def end_compaction(self, of: CompactionWork, clean_offset: int) -> None:
        """Store that a pass has seen all records before the offset."""
        with self._database.write() as connection:
            compaction_state.set_clean(connection, of, clean_offset)

    def take_compaction_turn(self, holder: str, duration_ms: int) -> bool:
        """Make ``holder`` the only process that compacts for that time; False if another one is."""
        now_ms = self._clock.now_ms()
        with self._database.write() as connection:
            return compaction_state.take_turn(connection, holder, now_ms, now_ms + duration_ms)

    def now_ms(self) -> int:
        """The store's time in milliseconds since the epoch."""
        return self._clock.now_ms()

    def give_space_back(self) -> bool:
        """Shrink a file with mostly free space by a bounded step; True while there is more.

        Some free space is kept for new batches.
        """
        with self._database.read() as connection:
            spare = retention.spare_pages(connection)
        if not spare:
            return False
        with self._database.write() as connection:
            retention.shrink(connection, spare)
        return spare > retention.PAGES_AT_ONCE

    def close(self) -> None:
        """Close the file; idempotent."""
        self._database.close()

    def _cached_bounds(self) -> Mapping[tuple[str, int], tuple[int, int]]:
        with self._cache_lock:
            version = self._database.data_version()
            if version != self._cache_version:
                with self._database.read() as connection:
                    self._bounds = topics.bounds(connection)
                    self._topic_ids = topics.ids(connection)
                    found = topics.settings(connection).values()
                    self._compacts = any(topic_settings.compacts(each) for each in found)
                self._cache_version = version
            return self._bounds
