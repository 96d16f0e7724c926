"""Turns a rollback into the write of an earlier config."""

from collections.abc import Sequence

from drover.errors import DroverError, NotFoundError, Reason
from drover.model.config import ConfigVersion, HistoryEntry
from drover_worker.core.config.checks import connector_not_found
from drover_worker.core.requests.messages import PutConnectorConfig, RollbackConnector

#: No config has this revision, so a write that expects it is rejected.
_NEVER_REVISION = 1 << 62


def rollback_to(
    request: RollbackConnector, history: Sequence[HistoryEntry]
) -> tuple[PutConnectorConfig, DroverError | None]:
    """The write of a rollback, and the caller's error if the store rejects its revision.

    If the history lacks the version, the first attempt of this request may have evicted it. The
    store recognises a retry by its request id, so the write is sent anyway, with a revision that
    the store rejects unless the request is a retry.
    """
    versions = [entry.change for entry in history if isinstance(entry.change, ConfigVersion)]
    for version in versions:
        if version.revision == request.revision:
            put = PutConnectorConfig(
                request.name, version.config, request.expected_revision, request.request_id
            )
            return put, None
    config = {"name": request.name}
    put = PutConnectorConfig(request.name, config, _NEVER_REVISION, request.request_id)
    return put, _not_found(request, [version.revision for version in versions])


def _not_found(request: RollbackConnector, revisions: Sequence[int]) -> DroverError:
    if not revisions:
        return connector_not_found(request.name)
    text = (
        f"the history of connector {request.name!r} has no config of revision {request.revision};"
        f" its revisions are {', '.join(map(str, revisions))}"
    )
    return NotFoundError(Reason.REVISION_NOT_FOUND, text)
