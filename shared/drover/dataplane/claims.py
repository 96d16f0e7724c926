"""Claims: the fencing token of a task. A later claim makes every earlier one stale.

So does a claim of any task of the connector under another set of task configs, which may have given
a file or a topic partition to another task.
"""

import sqlite3
from dataclasses import dataclass

from drover.errors import FailedPreconditionError, Reason
from drover.model.ids import TaskId, Term

#: Requests remembered for each task, so that a late retry of an old one fences nobody.
REMEMBERED_REQUESTS = 32
#: The owner of a claim that fell with its set of task configs.
_NOBODY = ""


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """A wish to be the one committer of ``task``; see ``EmbeddedStore.claim_task``."""

    task: TaskId
    generation: int
    owner: str
    request_id: str
    task_config_generation: int = -1


def grant(connection: sqlite3.Connection, request: ClaimRequest, now_ms: int) -> Term:
    """Give the owner the task, with a sequence above every earlier one.

    Another set of task configs than that of the connector's claims makes all of them stale: what
    one task worked on may be another's in the new set. A request that is refused has written
    nothing, so that others may go on in the same transaction.

    Raises:
        FailedPreconditionError: STALE_TERM, a later generation holds the task, a later set of task
            configs was claimed, or the request was granted before and has been superseded since.
    """
    task, generation = request.task, request.generation
    _enter_set(connection, task, generation, request.task_config_generation, now_ms)
    held = current(connection, task)
    granted = _granted(connection, task, request.request_id)
    if granted is not None:
        if granted == held:
            return granted
        raise _stale_term(task, f"claim {granted} of this request", f"claim {held}")
    if held is not None and generation < held.generation:
        raise _stale_term(task, f"generation {generation}", f"claim {held}")
    term = Term(generation, held.sequence + 1 if held is not None else 1)
    connection.execute(
        "INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            task.connector,
            task.task,
            term.generation,
            term.sequence,
            request.owner,
            request.task_config_generation,
            now_ms,
        ),
    )
    if request.request_id:
        _remember(connection, task, request.request_id, term)
    return term


def current(connection: sqlite3.Connection, task: TaskId) -> Term | None:
    """The claim that counts, or None when the task was never claimed."""
    row = connection.execute(
        "SELECT generation, sequence FROM claims WHERE connector = ? AND task = ?",
        (task.connector, task.task),
    ).fetchone()
    return Term(*row) if row else None


def stale_message(connection: sqlite3.Connection, task: TaskId, claim: Term) -> str | None:
    """None when ``claim`` is the one that counts, else what is wrong with it."""
    row = connection.execute(
        "SELECT generation, sequence, owner FROM claims WHERE connector = ? AND task = ?",
        (task.connector, task.task),
    ).fetchone()
    if row is None:
        return f"claim {claim} of task {task} was never granted here: claim the task first"
    held, owner = Term(*row[:2]), row[2]
    if held == claim:
        return None
    if owner == _NOBODY:
        why = "the connector's tasks are claimed with other task configs"
    else:
        why = f"{held} counts"
    return f"claim {claim} of task {task} is stale, {why} now: claim the task again"


def check(connection: sqlite3.Connection, task: TaskId, claim: Term) -> None:
    """Refuse a stale claim.

    Raises:
        FailedPreconditionError: STALE_CLAIM.
    """
    message = stale_message(connection, task, claim)
    if message is not None:
        raise FailedPreconditionError(
            Reason.STALE_CLAIM, message, metadata={"task": str(task), "claim": str(claim)}
        )


def comes_late(connection: sqlite3.Connection, task: TaskId, claim: Term, number: int) -> bool:
    """Whether a commit under ``claim``, which counts, comes after one of its number or a later one.

    A coordinator that was stopped in the middle of a call goes on with it when others have taken
    its place: the copy must not set back what they have written. Notes the number if it does not.
    """
    if not number:
        return False
    row = connection.execute(
        "SELECT generation, sequence, number FROM last_commits WHERE connector = ? AND task = ?",
        (task.connector, task.task),
    ).fetchone()
    if row is not None and Term(*row[:2]) == claim and number <= row[2]:
        return True
    connection.execute(
        "INSERT OR REPLACE INTO last_commits VALUES (?, ?, ?, ?, ?)",
        (task.connector, task.task, claim.generation, claim.sequence, number),
    )
    return False


def _enter_set(
    connection: sqlite3.Connection,
    task: TaskId,
    generation: int,
    task_config_generation: int,
    now_ms: int,
) -> None:
    """Make the claim's set of task configs the one that counts, or refuse an older one.

    All claims of a connector are of the same set. Those of the set before move on to a term that
    nobody was given. Numbers of sets are compared within one generation only: they may begin again
    with another config log.
    """
    row = connection.execute(
        "SELECT task_config_generation FROM claims WHERE connector = ? LIMIT 1", (task.connector,)
    ).fetchone()
    if row is None or row[0] == task_config_generation:
        return
    (latest,) = connection.execute(
        "SELECT max(generation) FROM claims WHERE connector = ?", (task.connector,)
    ).fetchone()
    if (generation, task_config_generation) < (latest, row[0]):
        raise _stale_term(
            task,
            f"generation {generation} with task configs {task_config_generation}",
            f"a claim of generation {latest} with task configs {row[0]}",
        )
    connection.execute(
        "UPDATE claims SET generation = ?, sequence = sequence + 1, owner = ?,"
        " task_config_generation = ?, claimed_ms = ? WHERE connector = ?",
        (generation, _NOBODY, task_config_generation, now_ms, task.connector),
    )
    # a repeated request gets another claim, as the one it was given is stale
    connection.execute("DELETE FROM claim_requests WHERE connector = ?", (task.connector,))


def _granted(connection: sqlite3.Connection, task: TaskId, request_id: str) -> Term | None:
    row = connection.execute(
        "SELECT generation, sequence FROM claim_requests"
        " WHERE connector = ? AND task = ? AND request_id = ?",
        (task.connector, task.task, request_id),
    ).fetchone()
    return Term(*row) if row else None


def _remember(connection: sqlite3.Connection, task: TaskId, request_id: str, term: Term) -> None:
    connection.execute(
        "INSERT INTO claim_requests VALUES (?, ?, ?, ?, ?)",
        (task.connector, task.task, request_id, term.generation, term.sequence),
    )
    connection.execute(
        "DELETE FROM claim_requests WHERE connector = ? AND task = ? AND sequence <= ?",
        (task.connector, task.task, term.sequence - REMEMBERED_REQUESTS),
    )


def _stale_term(task: TaskId, what: str, later: str) -> FailedPreconditionError:
    return FailedPreconditionError(
        Reason.STALE_TERM,
        f"{what} cannot claim task {task}: {later} came later",
        metadata={"task": str(task)},
    )
