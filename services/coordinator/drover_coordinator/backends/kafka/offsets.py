"""Claims of tasks, source offsets and sink offsets on Kafka, for the owner of the workers' shard.

A commit is one Kafka transaction: the number of the commit under its claim, source offsets in
Kafka Connect's topic, sink offsets in consumer groups. A new owner of the shard fences the writer,
so that a decision about claims still holds when it is written.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from drover.clock import Clock, SystemClock
from drover.errors import (
    DroverError,
    FailedPreconditionError,
    InvalidArgumentError,
    Reason,
    UnavailableError,
    Violation,
)
from drover.log.kafka.fencing import fence_producer
from drover.log.kafka.records import GroupPosition, Produced
from drover.log.kafka.topics import ensure_topics, own_offset_topic
from drover.model import pages
from drover.model.claims import ClaimRequest
from drover.model.config import CONSUMER_GROUP_SETTING
from drover.model.group import shard_of
from drover.model.ids import TaskId, Term, producer_id
from drover.model.offset_json import size_bytes, validate
from drover.model.offsets import (
    CommitOutcome,
    CommitResult,
    CommittedOffset,
    OffsetsChange,
    TaskOffsets,
    TopicPartition,
)
from drover.model.sink_offsets import (
    SinkOffsetError,
    group_of,
    is_sink_partition,
    parse_partition,
    parse_position,
    parse_sink_offset,
    sink_offset,
)
from drover.model.sink_outputs import OutputMark, SinkMetadata, SinkOutput, encode_mark
from drover.model.times import DAY_MS
from drover.policy.consumer_groups import group_id_fault
from drover_coordinator.backends.kafka.claims_log import ClaimsLog
from drover_coordinator.backends.kafka.control import LazyControlTopic
from drover_coordinator.backends.kafka.offset_topic import OffsetTopic
from drover_coordinator.backends.kafka.sink_groups import SinkGroupCheck, SinkGroups
from drover_coordinator.core.claims.task_claims import Draft, MarkRecord, grant_or_reject
from drover_coordinator.offset_store import OffsetQueue, canonical_token
from drover_coordinator.sharding.shards import Fencing

FENCED_AT_ONCE = 8
#: Marks that were not refreshed for this long are forgotten; running sinks refresh them every day.
MARKS_KEPT_MS = 365 * DAY_MS


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The state of the shard while this coordinator owns it."""

    log: ClaimsLog
    topic: OffsetTopic
    lost: Callable[[], object]
    #: Tasks whose own producers were fenced, with the term of the revocation.
    fenced: dict[TaskId, Term] = field(default_factory=dict)

    async def close(self) -> None:
        await self.log.close()
        await self.topic.close()


@dataclass(slots=True)
class _Transaction:
    """The writes of several commits: records by key, positions by group and partition."""

    draft: Draft
    records: dict[tuple[str, bytes], Produced] = field(default_factory=dict)
    positions: dict[tuple[str, TopicPartition], GroupPosition] = field(default_factory=dict)

    def add(self, records: Sequence[Produced]) -> None:
        """Add records; a later record of a key replaces an earlier one."""
        self.records.update({(each.topic, each.key): each for each in records})


@dataclass(slots=True)
class _Parsed:
    """A commit: its source offsets, its sink positions, and their faults."""

    commit: TaskOffsets
    group_id: str
    sources: list[CommittedOffset] = field(default_factory=list)
    positions: dict[TopicPartition, GroupPosition] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, commit: TaskOffsets) -> "_Parsed":
        parsed = cls(commit, commit.consumer_group or group_of(commit.task.connector))
        parsed.faults += (f"{each.field} {each.description}" for each in validate(commit.offsets))
        for index, offset in enumerate(() if parsed.faults else commit.offsets):
            try:
                sink_position = parse_sink_offset(offset)
            except SinkOffsetError as error:
                parsed.faults.append(f"offsets[{index}] {error}")
                continue
            if sink_position is None:
                parsed.sources.append(offset)
            else:
                place, position = sink_position
                parsed.positions[place] = GroupPosition(
                    parsed.group_id,
                    *(place.topic, place.partition, position),
                    offset.metadata,
                )
        if parsed.positions:
            parsed.faults += _group_faults(parsed.group_id)
        return parsed


class KafkaOffsets:
    """An ``OffsetStore``, and a ``ShardResource`` of the workers' group's shard."""

    def __init__(self, control: LazyControlTopic, clock: Clock | None = None) -> None:
        self._control = control
        self._clock = clock or SystemClock()
        self._client = control.client
        self._shard = shard_of(control.client.storage.group_id, control.group_shards)
        self._groups = SinkGroups(control.client)
        self._write_lock = asyncio.Lock()
        self._loaded: _Loaded | None = None
        self._queue = OffsetQueue(self._write_claims, self._write_commits)

    # --- a shard resource -------------------------------------------------------------------------

    async def load(self, shard: int, fencing: Fencing) -> None:
        """See ``ShardResource``."""
        if shard != self._shard:
            return
        await self._control.topic()
        group_id = self._client.storage.group_id
        loaded = _Loaded(
            ClaimsLog(
                self._client,
                partition=1 + self._control.group_shards + shard,
                transactional_id=f"drover-claims-{group_id}-{shard}",
            ),
            OffsetTopic(self._client, self._control.offset_partition_count),
            fencing.lost,
        )
        try:
            await loaded.log.take(fencing.owner, fencing.epoch)
            await loaded.topic.load()
            await self._forget_marks(loaded.log)
        except BaseException:
            await loaded.close()
            raise
        self._loaded = loaded

    async def _forget_marks(self, log: ClaimsLog) -> None:
        draft = log.claims.draft()
        draft.forget_marks(self._clock.now_ms() - MARKS_KEPT_MS)
        if draft.records:
            await log.write(draft.records, (), ())

    async def unload(self, shard: int, why: DroverError | None) -> None:
        """See ``ShardResource``."""
        if shard != self._shard:
            return
        async with self._write_lock:
            loaded, self._loaded = self._loaded, None
        if loaded is not None:
            await loaded.close()

    # --- a store of offsets ------------------------------------------------------------------

    async def claim(self, request: ClaimRequest) -> Term:
        """See ``OffsetStore``."""
        return await self._queue.claim(request)

    async def commit(self, tasks: Sequence[TaskOffsets]) -> list[CommitResult]:
        """See ``OffsetStore``."""
        return await self._queue.commit(tasks)

    async def change(self, change: OffsetsChange) -> None:
        """See ``OffsetStore``."""
        async with self._write_lock:
            await self._change(self._required(), change)

    async def fetch(
        self,
        connector: str,
        page_token: str,
        *,
        without_positions: bool = False,
        consumer_group: str = "",
        with_marks: bool = False,
    ) -> tuple[list[CommittedOffset], str]:
        """See ``OffsetStore``."""
        after = canonical_token(page_token)
        loaded = self._required()
        await loaded.topic.refresh()
        offsets = dict(loaded.topic.of(connector))
        if not without_positions:
            group_id = consumer_group or group_of(connector)
            marks = loaded.log.claims.marks(connector, group_id) if with_marks else {}
            found = [sink_offset(key, None, encode_mark(mark)) for key, mark in marks.items()]
            # a position replaces the mark of its partition
            for position in (*found, *await self._groups.positions(group_id)):
                offsets[canonical_token(position.partition_json)] = position
        return page_of(offsets, after)

    async def close(self) -> None:
        """Finish the calls in progress and close the store."""
        await self._queue.close()
        await self.unload(self._shard, None)

    # --- writing -----------------------------------------------------------------------------

    async def _write_claims(
        self, requests: Sequence[ClaimRequest]
    ) -> Sequence[Term | FailedPreconditionError]:
        async with self._write_lock:
            loaded = self._required()
            errors = await self._fence_earlier_sets(loaded, requests)
            draft = loaded.log.claims.draft()
            granted = [each for each in requests if each.task.connector not in errors]
            results = iter(grant_or_reject(draft, granted))
            await self._write(loaded, _Transaction(draft))
            return [errors.get(each.task.connector) or next(results) for each in requests]

    async def _fence_earlier_sets(
        self, loaded: _Loaded, requests: Sequence[ClaimRequest]
    ) -> dict[str, FailedPreconditionError]:
        """Fence the producers of tasks of earlier sets of task configs.

        This happens before any claim of the new set is granted: a partition of one task may belong
        to another task of the new set. The claims are revoked before the producers are fenced,
        because a task with a valid claim could start a new producer.

        Returns:
            The error by connector, for connectors whose producers cannot be fenced.
        """
        connectors = sorted({each.task.connector for each in requests})
        if not loaded.log.claims.have_own_producers(connectors):
            return {}
        draft = loaded.log.claims.draft()
        for request in requests:
            with contextlib.suppress(FailedPreconditionError):  # the grant below rejects it
                draft.enter_set(request)
        await self._write(loaded, _Transaction(draft))
        errors = {}
        for connector in connectors:
            try:
                await self._fence(loaded, connector)
            except FailedPreconditionError as error:
                errors[connector] = error
        return errors

    async def _fence(self, loaded: _Loaded, connector: str) -> None:
        """Fence the producers of tasks whose claims are revoked, once for each revocation."""
        revoked = loaded.log.claims.revoked_producers(connector)
        unfenced = {task: term for task, term in revoked.items() if loaded.fenced.get(task) != term}
        group_id = self._client.storage.group_id
        ordered = sorted(unfenced)
        for start in range(0, len(ordered), FENCED_AT_ONCE):
            tasks = ordered[start : start + FENCED_AT_ONCE]
            ids = [producer_id(group_id, task) for task in tasks]
            await asyncio.gather(
                *(asyncio.to_thread(fence_producer, self._client, each) for each in ids)
            )
            loaded.fenced.update({task: unfenced[task] for task in tasks})

    async def _write_commits(self, tasks: Sequence[TaskOffsets]) -> Sequence[CommitResult]:
        async with self._write_lock:
            return await self._commit(self._required(), tasks)

    async def _commit(self, loaded: _Loaded, tasks: Sequence[TaskOffsets]) -> list[CommitResult]:
        parsed = [_Parsed.of(each) for each in tasks]
        sinks = [each for each in parsed if each.positions]
        check = await self._groups.check(
            sorted({each.group_id for each in sinks}),
            sorted({place.topic for each in sinks for place in each.positions}),
        )
        transaction = _Transaction(loaded.log.claims.draft())
        results = [self._decide(loaded, transaction, each, check) for each in parsed]
        try:
            await self._write(loaded, transaction)
        except (UnavailableError, FailedPreconditionError) as error:
            if not _is_of_one_task(error):
                raise
            return await self._commit_apart(loaded, tasks, error)
        except DroverError as error:
            return await self._commit_apart(loaded, tasks, error)
        return results

    async def _change(self, loaded: _Loaded, change: OffsetsChange) -> None:
        transaction = _Transaction(loaded.log.claims.draft())
        what = f"the offsets of connector {change.connector} cannot be changed"
        transaction.draft.fence(change.connector, change.task_set, what)
        if loaded.log.claims.have_own_producers([change.connector]):
            await self._write(loaded, transaction)
            await self._fence(loaded, change.connector)
            transaction = _Transaction(loaded.log.claims.draft())
        if change.offsets_topic:
            topic = own_offset_topic(self._client.storage, change.offsets_topic)
            await ensure_topics(self._client, [topic])
        group_id = change.consumer_group or group_of(change.connector)
        if change.offsets is None:
            await loaded.topic.refresh()
            present = [offset for _, offset in loaded.topic.of(change.connector)]
            sources = [CommittedOffset(each.partition_json, None) for each in present]
            positions: dict[TopicPartition, int | None] = {}
            deletes_group = not change.without_positions
        else:
            sources, positions = parse_change(change.offsets)
            deletes_group = False
        outputs: dict[TopicPartition, OutputMark] = {}
        if positions or deletes_group:
            committed = await self._groups.positions(group_id)
            outputs = loaded.log.claims.marks(change.connector, group_id) | outputs_of(committed)
            kept = outputs_of(committed).keys() - positions.keys()
            removes_all = all(position is None for position in positions.values())
            deletes_group = deletes_group or (removes_all and not kept)
            await self._check_positions(group_id, () if deletes_group else positions)
            topics = {each.topic for each in (*positions, *change.written)}
            topic_ids = {topic: await self._topic_id(topic) for topic in topics}
        if deletes_group:
            for place in change.written:
                first = OutputMark(SinkOutput(topic_ids[place.topic]), 0)
                outputs.setdefault(place, first)
            for place, mark in outputs.items():
                if not mark.is_reset:
                    reset = replace(mark, output=mark.output.after_reset(), is_reset=True)
                    transaction.draft.note_offset(
                        MarkRecord(change.connector, group_id, place, reset, self._clock.now_ms()),
                        refreshes=True,
                    )
        for offset in sources:
            records = loaded.topic.produced(change.connector, offset)
            transaction.add(records)
            if change.offsets_topic:
                transaction.add([replace(each, topic=change.offsets_topic) for each in records])
        for place, position in positions.items() if not deletes_group else ():
            known = outputs.get(place, OutputMark(SinkOutput(), 0)).output
            metadata = SinkMetadata(output=known.in_topic(topic_ids[place.topic]))
            if position is None:
                metadata = SinkMetadata(output=metadata.output.after_reset(), is_start=True)
            moved = GroupPosition(group_id, *place, position or 0, metadata.text)
            transaction.positions[group_id, place] = moved
            self._note_offset(transaction.draft, change.connector, moved, refreshes=True)
        await self._write(loaded, transaction)
        if deletes_group:
            await self._groups.delete(group_id)

    async def _topic_id(self, topic: str) -> str:
        state = await self._client.describe_topic(topic)
        return "" if state is None else state.topic_id

    async def _check_positions(self, group_id: str, places: Collection[TopicPartition]) -> None:
        """Reject positions of missing partitions, groups with members, which commit too, and
        groups that the client cannot commit to.
        """
        topics = sorted({each.topic for each in places})
        check = await self._groups.check([group_id], topics, fresh=True)
        live = check.faults(group_id, ())
        if live:
            raise FailedPreconditionError(Reason.NON_EMPTY_GROUP, "; ".join(live))
        faults = check.faults(group_id, places)
        faults += _group_faults(group_id) if places else ()
        if faults:
            raise InvalidArgumentError.listing([Violation("offsets", fault) for fault in faults])

    async def _commit_apart(
        self, loaded: _Loaded, tasks: Sequence[TaskOffsets], error: DroverError
    ) -> list[CommitResult]:
        """Bisect a transaction that the brokers rejected, so that only the invalid tasks fail."""
        if len(tasks) == 1:
            return [CommitResult(tasks[0].task, CommitOutcome.INVALID, error.message)]
        half = len(tasks) // 2
        return [
            *await self._commit(loaded, tasks[:half]),
            *await self._commit(loaded, tasks[half:]),
        ]

    def _decide(
        self, loaded: _Loaded, transaction: _Transaction, parsed: "_Parsed", check: SinkGroupCheck
    ) -> CommitResult:
        commit, draft = parsed.commit, transaction.draft
        task = commit.task
        stale = draft.stale_message(task, commit.claim)
        if stale is not None:
            return CommitResult(task, CommitOutcome.STALE_CLAIM, stale)
        faults = parsed.faults or check.faults(parsed.group_id, parsed.positions)
        if faults:
            return CommitResult(task, CommitOutcome.INVALID, "; ".join(faults))
        if commit.own_producer:
            draft.note_own_producer(task)
        if not draft.comes_late(task, commit.claim, commit.number):
            for offset in parsed.sources:
                transaction.add(loaded.topic.produced(task.connector, offset))
            for place, position in parsed.positions.items():
                transaction.positions[parsed.group_id, place] = position
                self._note_offset(draft, task.connector, position, refreshes=commit.refreshes_marks)
        return CommitResult(task, CommitOutcome.COMMITTED)

    def _note_offset(
        self, draft: Draft, connector: str, position: GroupPosition, *, refreshes: bool
    ) -> None:
        output = SinkMetadata.parsed(position.metadata).output
        if output.topic_id:
            place = TopicPartition(position.topic, position.partition)
            mark = OutputMark(output, position.offset)
            now_ms = self._clock.now_ms()
            record = MarkRecord(connector, position.group_id, place, mark, now_ms)
            draft.note_offset(record, refreshes=refreshes)

    async def _write(self, loaded: _Loaded, transaction: _Transaction) -> None:
        """Write the transaction unless it is empty; an unknown outcome loses the shard."""
        draft, records = transaction.draft, transaction.records
        positions = list(transaction.positions.values())
        if not (draft.records or records or positions):
            return
        try:
            places = await loaded.log.write(draft.records, list(records.values()), positions)
        except FailedPreconditionError as error:
            if error.reason is not Reason.STALE_WRITER_EPOCH:
                raise
            loaded.lost()
            raise _moved() from error
        except UnavailableError as error:
            if error.metadata.get("outcome") == "unknown":
                loaded.lost()  # the outcome is unknown, so the shard is loaded again
            raise
        shared = self._client.storage.topics.offset
        written = zip(records.values(), places, strict=True)
        loaded.topic.wrote(place for record, place in written if record.topic == shared)

    def _required(self) -> _Loaded:
        if self._loaded is None:
            raise _moved()
        return self._loaded


def parse_change(
    offsets: Sequence[CommittedOffset],
) -> tuple[list[CommittedOffset], dict[TopicPartition, int | None]]:
    """A change's source offsets and its positions; a position of None is to be removed.

    Raises:
        InvalidArgumentError: INVALID_REQUEST with every fault.
    """
    faults = list(validate(offsets))
    sources: list[CommittedOffset] = []
    positions: dict[TopicPartition, int | None] = {}
    for index, offset in enumerate(() if faults else offsets):
        try:
            if not is_sink_partition(json.loads(offset.partition_json)):
                sources.append(offset)
                continue
            place = parse_partition(offset.partition_json)
            positions[place] = (
                None if offset.offset_json is None else parse_position(offset.offset_json)
            )
        except SinkOffsetError as error:
            faults.append(Violation(f"offsets[{index}]", str(error)))
    if faults:
        raise InvalidArgumentError.listing(faults)
    return sources, positions


def outputs_of(positions: Sequence[CommittedOffset]) -> dict[TopicPartition, OutputMark]:
    """The outputs of a group's positions."""
    return {
        parse_partition(each.partition_json): OutputMark(
            SinkMetadata.parsed(each.metadata).output, parse_position(each.offset_json or "")
        )
        for each in positions
    }


def _is_of_one_task(error: DroverError) -> bool:
    """Whether the brokers rejected one task's part, not the whole transaction."""
    return error.reason in (Reason.STORAGE_MISCONFIGURED, Reason.NON_EMPTY_GROUP)


def _group_faults(group_id: str) -> list[str]:
    fault = group_id_fault(group_id)
    if fault is None:
        return []
    return [
        f"consumer group {group_id} cannot be used: {fault}. Set {CONSUMER_GROUP_SETTING} to "
        "another group, and copy the offsets to it with kafka-consumer-groups.sh while the sink is "
        "stopped"
    ]


def _moved() -> DroverError:
    return FailedPreconditionError(
        Reason.NOT_COORDINATOR,
        "this coordinator no longer serves the workers' group: call FindCoordinator",
    )


def page_of(
    offsets: Mapping[str, CommittedOffset], after: str
) -> tuple[list[CommittedOffset], str]:
    """A page of offsets by canonical partition, starting behind ``after``, and the next token."""
    page: list[CommittedOffset] = []
    page_bytes = 0
    for canonical in sorted(each for each in offsets if each > after):
        offset = offsets[canonical]
        page_bytes += size_bytes(offset)
        if page and page_bytes > pages.PAGE_BYTES_MAX:
            return page, page[-1].partition_json
        page.append(offset)
    return page, ""
