"""Claims in the embedded store; the rules are in ``drover.model.claims``."""

import sqlite3

from drover.errors import FailedPreconditionError, Reason
from drover.model import claims as rules
from drover.model.claims import ClaimRequest, TaskClaim, TaskSet
from drover.model.ids import TaskId, Term


def grant(connection: sqlite3.Connection, request: ClaimRequest, now_ms: int) -> Term:
    """Give the owner a claim on the task, with a sequence above every earlier one.

    A different set of task configs makes all claims of the connector stale, because a task number
    may stand for other work in the new set. A refused request writes nothing, so other requests may
    share the transaction.

    Raises:
        FailedPreconditionError: STALE_TERM, a later generation holds the task, a later set of task
            configs was claimed, or the request was granted before and superseded.
    """
    task = request.task
    _enter_set(connection, request, now_ms)
    held = _held(connection, task)
    claim = rules.next_claim(request, held, _granted(connection, task, request.request_id))
    if claim is held:
        return claim.term
    _write(connection, task, claim, now_ms)
    if request.request_id:
        _remember(connection, task, request.request_id, claim.term)
    return claim.term


def fence(
    connection: sqlite3.Connection, connector: str, task_set: TaskSet, what: str, now_ms: int
) -> None:
    """Make all claims of a connector stale, before ``what`` is done under a set of task configs.

    Raises:
        FailedPreconditionError: STALE_TERM, a claim of a later set exists. Nothing was written.
    """
    rows = connection.execute(
        "SELECT task, generation, sequence, owner, task_config_generation FROM claims"
        " WHERE connector = ?",
        (connector,),
    ).fetchall()
    for _, generation, _, _, number in rows:
        rules.check_set(what, task_set, TaskSet(generation, number))
    for task, generation, sequence, *others in rows:
        moved = rules.moved_on(TaskClaim(Term(generation, sequence), *others), task_set)
        _write(connection, TaskId(connector, task), moved, now_ms)
    connection.execute("DELETE FROM claim_requests WHERE connector = ?", (connector,))


def current(connection: sqlite3.Connection, task: TaskId) -> Term | None:
    """The current claim, or None if the task was never claimed."""
    held = _held(connection, task)
    return held.term if held is not None else None


def stale_message(connection: sqlite3.Connection, task: TaskId, claim: Term) -> str | None:
    """None if ``claim`` is the current one, else the reason why it is stale."""
    return rules.stale_message(task, claim, _held(connection, task))


def check(connection: sqlite3.Connection, task: TaskId, claim: Term) -> None:
    """Reject a stale claim.

    Raises:
        FailedPreconditionError: STALE_CLAIM.
    """
    message = stale_message(connection, task, claim)
    if message is not None:
        raise FailedPreconditionError(
            Reason.STALE_CLAIM, message, metadata={"task": str(task), "claim": str(claim)}
        )


def comes_late(connection: sqlite3.Connection, task: TaskId, claim: Term, number: int) -> bool:
    """Whether a commit under the current claim has the number of an earlier commit or a lower one.

    Stores the number if not.
    """
    if not number:
        return False
    row = connection.execute(
        "SELECT generation, sequence, number FROM last_commits WHERE connector = ? AND task = ?",
        (task.connector, task.task),
    ).fetchone()
    last = (Term(*row[:2]), int(row[2])) if row else None
    if rules.comes_late(claim, number, last):
        return True
    connection.execute(
        "INSERT OR REPLACE INTO last_commits VALUES (?, ?, ?, ?, ?)",
        (task.connector, task.task, claim.generation, claim.sequence, number),
    )
    return False


def _enter_set(connection: sqlite3.Connection, request: ClaimRequest, now_ms: int) -> None:
    """Make the claim's set of task configs the current one, or reject an older one."""
    row = connection.execute(
        "SELECT task_config_generation FROM claims WHERE connector = ? LIMIT 1",
        (request.task.connector,),
    ).fetchone()
    if rules.begins_set(request, row[0] if row else None):
        what = f"task {request.task} cannot be claimed"
        fence(connection, request.task.connector, request.task_set, what, now_ms)


def _held(connection: sqlite3.Connection, task: TaskId) -> TaskClaim | None:
    row = connection.execute(
        "SELECT generation, sequence, owner, task_config_generation FROM claims"
        " WHERE connector = ? AND task = ?",
        (task.connector, task.task),
    ).fetchone()
    return TaskClaim(Term(*row[:2]), *row[2:]) if row else None


def _write(connection: sqlite3.Connection, task: TaskId, claim: TaskClaim, now_ms: int) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            *(task.connector, task.task),
            *(claim.term.generation, claim.term.sequence),
            *(claim.owner, claim.task_config_generation, now_ms),
        ),
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
        (task.connector, task.task, rules.forgotten_sequence(term)),
    )
