"""Claims of tasks and committed offsets: the interface of a store, and code that stores share.

The group machine checks membership; the store decides claims and commits.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from drover.errors import FailedPreconditionError, InvalidArgumentError, Reason, Violation
from drover.model.claims import ClaimRequest
from drover.model.ids import Term
from drover.model.offset_json import canonical_json
from drover.model.offsets import CommitResult, CommittedOffset, OffsetsChange, TaskOffsets
from drover_coordinator.shared_writes import SharedWrites

WAITING_MAX = 1_000
#: Claims are small, and all tasks of a cluster may start at once.
CLAIMS_WAITING_MAX = 20_000


class OffsetStore(Protocol):
    """Storage of claims and committed offsets. At most 1,000 calls and 20,000 claims wait.

    Every call raises UnavailableError STORAGE_UNAVAILABLE if the store is unreachable or busy for
    too long, and ResourceExhaustedError QUEUE_FULL if too many calls wait. A call that is cancelled
    while it waits has no effect.
    """

    async def claim(self, request: ClaimRequest) -> Term:
        """Make the owner the only committer of the task; durable when it returns.

        Raises:
            FailedPreconditionError: STALE_TERM.
        """

    async def commit(self, tasks: Sequence[TaskOffsets]) -> list[CommitResult]:
        """Commit offsets of tasks; a result for each, in order, durable when it returns.

        A task's offsets are committed together or not at all. A late duplicate (see
        ``TaskOffsets.number``) writes nothing.
        """

    async def change(self, change: OffsetsChange) -> None:
        """Write or remove offsets of a connector without tasks, and revoke its claims.

        Durable when it returns; idempotent. On Kafka a removed position is set to 0 if the group
        keeps other positions.

        Raises:
            InvalidArgumentError: INVALID_REQUEST, invalid offsets, or positions of partitions that
                do not exist.
            FailedPreconditionError: STALE_TERM, a later set of task configs was claimed;
                NON_EMPTY_GROUP, the sink's consumer group has members.
        """

    async def fetch(
        self,
        connector: str,
        page_token: str,
        *,
        without_positions: bool = False,
        consumer_group: str = "",
        with_marks: bool = False,
    ) -> tuple[list[CommittedOffset], str]:
        """A page of a connector's offsets, and the token of the next page; empty on the last.

        The page includes every commit that completed before the call. A token is the last partition
        of the previous page. ``without_positions`` leaves out positions of Kafka consumer groups;
        ``consumer_group`` is the group to read, by default the one named after the connector.
        ``with_marks`` adds the marks of sink partitions without an offset, as offsets of None.

        Raises:
            InvalidArgumentError: INVALID_REQUEST, an invalid token.
        """

    async def close(self) -> None:
        """Finish the calls in progress and close the store."""


class OffsetQueue:
    """Queues of claims and commits; waiting requests share the next write.

    Args:
        write_claims: Grants or rejects each request.
        write_commits: Commits the offsets of tasks and returns a result for each.
    """

    def __init__(
        self,
        write_claims: Callable[
            [Sequence[ClaimRequest]], Awaitable[Sequence[Term | FailedPreconditionError]]
        ],
        write_commits: Callable[[Sequence[TaskOffsets]], Awaitable[Sequence[CommitResult]]],
    ) -> None:
        self._write = write_commits
        self._claims = SharedWrites(
            write_claims, size=lambda _: 1, waiting_max=CLAIMS_WAITING_MAX, name="claims"
        )
        self._commits = SharedWrites(
            self._write_commits, size=_item_count, waiting_max=WAITING_MAX, name="offset commits"
        )

    async def claim(self, request: ClaimRequest) -> Term:
        """See ``OffsetStore``."""
        answer = await self._claims.submit(request)
        if isinstance(answer, FailedPreconditionError):
            raise answer
        return answer

    async def commit(self, tasks: Sequence[TaskOffsets]) -> list[CommitResult]:
        """See ``OffsetStore``."""
        return await self._commits.submit(tasks)

    async def close(self) -> None:
        """Wait until everything is written."""
        await self._claims.close()
        await self._commits.close()

    async def _write_commits(
        self, commits: Sequence[Sequence[TaskOffsets]]
    ) -> Sequence[list[CommitResult]]:
        results = iter(await self._write([each for commit in commits for each in commit]))
        return [[next(results) for _ in commit] for commit in commits]


def canonical_token(page_token: str) -> str:
    """The canonical partition after which a page starts; empty for the first page.

    Raises:
        InvalidArgumentError: INVALID_REQUEST, an invalid token.
    """
    if not page_token:
        return ""
    try:
        return canonical_json(page_token)
    except ValueError as error:
        raise InvalidArgumentError(
            Reason.INVALID_REQUEST,
            "page_token: must be empty or a next_page_token of FetchOffsets",
            violations=(Violation("page_token", "must be a next_page_token of FetchOffsets"),),
        ) from error


def _item_count(tasks: Sequence[TaskOffsets]) -> int:
    return sum(1 + len(each.offsets) for each in tasks)
