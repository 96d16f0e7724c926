"""Claims: the fencing token of a task. A later claim makes every earlier one stale."""

import sqlite3

from drover.errors import FailedPreconditionError, Reason
from drover.model.ids import TaskId, Term

#: Requests remembered for each task, so that a late retry of an old one fences nobody.
REMEMBERED_REQUESTS = 32


def grant(
    connection: sqlite3.Connection,
    task: TaskId,
    *,
    generation: int,
    owner: str,
    request_id: str,
    task_config_generation: int,
    now_ms: int,
) -> Term:
    """Give ``owner`` the task, with a sequence above every earlier one.

    Raises:
        FailedPreconditionError: STALE_TERM, a later generation holds the task, or the request was
            granted before and has been superseded since.
    """
    held = current(connection, task)
    granted = _granted(connection, task, request_id)
    if granted is not None:
        if granted == held:
            return granted
        raise _stale_term(task, held, f"claim {granted} of this request")
    if held is not None and generation < held.generation:
        raise _stale_term(task, held, f"generation {generation}")
    term = Term(generation, held.sequence + 1 if held is not None else 1)
    connection.execute(
        "INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            task.connector,
            task.task,
            term.generation,
            term.sequence,
            owner,
            task_config_generation,
            now_ms,
        ),
    )
    if request_id:
        _remember(connection, task, request_id, term)
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
    held = current(connection, task)
    if held == claim:
        return None
    if held is None:
        return f"claim {claim} of task {task} was never granted here: claim the task first"
    return f"claim {claim} of task {task} is stale, {held} counts now: claim the task again"


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


def _stale_term(task: TaskId, held: Term | None, what: str) -> FailedPreconditionError:
    return FailedPreconditionError(
        Reason.STALE_TERM,
        f"{what} cannot claim task {task}: claim {held} came later",
        metadata={"task": str(task), "currentClaim": str(held)},
    )
