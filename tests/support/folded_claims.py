"""Claims and offsets as the coordinator keeps them on Kafka, on a compacted in-memory log."""

from collections.abc import Sequence

from drover.errors import FailedPreconditionError
from drover.model.claims import ClaimRequest
from drover.model.ids import TaskId, Term
from drover.model.offset_json import canonical_json, validate
from drover.model.offsets import (
    CommitOutcome,
    CommitResult,
    CommittedOffset,
    OffsetsChange,
    TaskOffsets,
)
from drover_coordinator.backends.kafka.control_records import (
    OwnerRecord,
    decode_claims_record,
    encode_claims_record,
)
from drover_coordinator.backends.kafka.offsets import page_of, parse_change
from drover_coordinator.core.claims.task_claims import ClaimsRecord, TaskClaims, grant_or_reject
from drover_coordinator.offset_store import canonical_token


class FoldedStore:
    """Has the API of ``EmbeddedStore``; every call uses only the state that a new owner would
    load.
    """

    def __init__(self) -> None:
        #: the last value of each key, in the order of writing
        self._log: dict[bytes, bytes] = {}
        self._offsets: dict[tuple[str, str], CommittedOffset] = {}

    def claim_task(
        self,
        task: TaskId,
        *,
        generation: int,
        owner: str,
        request_id: str,
        task_config_generation: int = -1,
    ) -> Term:
        request = ClaimRequest(task, generation, owner, request_id, task_config_generation)
        [answer] = self.claim_tasks([request])
        if isinstance(answer, FailedPreconditionError):
            raise answer
        return answer

    def claim_tasks(self, requests: Sequence[ClaimRequest]) -> list[Term | FailedPreconditionError]:
        draft = self.claims().draft()
        answers = grant_or_reject(draft, requests)
        self._append(draft.records)
        return answers

    def current_claim(self, task: TaskId) -> Term | None:
        return self.claims().current(task)

    def commit_offsets(self, commits: Sequence[TaskOffsets]) -> list[CommitResult]:
        draft = self.claims().draft()
        results = []
        for commit in commits:
            stale = draft.stale_message(commit.task, commit.claim)
            if stale is not None:
                results.append(CommitResult(commit.task, CommitOutcome.STALE_CLAIM, stale))
                continue
            if faults := validate(commit.offsets):
                message = "; ".join(each.field for each in faults)
                results.append(CommitResult(commit.task, CommitOutcome.INVALID, message))
                continue
            if not draft.comes_late(commit.task, commit.claim, commit.number):
                for offset in commit.offsets:
                    key = (commit.task.connector, canonical_json(offset.partition_json))
                    self._offsets[key] = offset
            results.append(CommitResult(commit.task, CommitOutcome.COMMITTED))
        self._append(draft.records)
        return results

    def change_offsets(self, change: OffsetsChange) -> None:
        draft = self.claims().draft()
        draft.fence(change.connector, change.task_set, "the offsets cannot be changed")
        changing = change.offsets
        if changing is None:
            present = self.offsets_of(change.connector).values()
            changing = [CommittedOffset(each.partition_json, None) for each in present]
        sources, _ = parse_change(changing)
        for offset in sources:
            self._offsets[change.connector, canonical_json(offset.partition_json)] = offset
        self._append(draft.records)

    def offsets_of(self, connector: str) -> dict[str, CommittedOffset]:
        """The connector's offsets, by canonical partition."""
        return {
            canonical: offset
            for (of, canonical), offset in self._offsets.items()
            if of == connector and offset.offset_json is not None
        }

    def close(self) -> None:
        pass

    def claims(self) -> TaskClaims:
        """The claims read from the log."""
        claims = TaskClaims()
        for key, value in self._log.items():
            record = decode_claims_record(key, value)
            assert record is not None
            assert not isinstance(record, OwnerRecord)
            claims.replay(record)
        return claims

    def _append(self, records: Sequence[ClaimsRecord]) -> None:
        for record in records:
            key, value = encode_claims_record(record)
            self._log.pop(key, None)
            if value is not None:
                self._log[key] = value


class FoldedOffsets:
    """An ``OffsetStore`` on the log."""

    def __init__(self) -> None:
        self._store = FoldedStore()

    async def claim(self, request: ClaimRequest) -> Term:
        [answer] = self._store.claim_tasks([request])
        if isinstance(answer, FailedPreconditionError):
            raise answer
        return answer

    async def commit(self, tasks: Sequence[TaskOffsets]) -> list[CommitResult]:
        return self._store.commit_offsets(tasks)

    async def change(self, change: OffsetsChange) -> None:
        self._store.change_offsets(change)

    async def fetch(
        self,
        connector: str,
        page_token: str,
        *,
        without_positions: bool = False,
        consumer_group: str = "",
        with_marks: bool = False,
    ) -> tuple[list[CommittedOffset], str]:
        return page_of(self._store.offsets_of(connector), canonical_token(page_token))

    async def close(self) -> None:
        pass
