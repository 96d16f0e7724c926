"""Which config a rollback writes."""

from collections.abc import Sequence

from drover.errors import DroverError, NotFoundError, Reason
from drover.model.config import ConfigVersion, HistoryEntry
from drover_worker.core.config.checks import connector_not_found
from drover_worker.core.requests.messages import PutConnectorConfig, RollbackConnector

#: No config has it: a write that expects this revision is refused.
_NEVER_REVISION = 1 << 62


def rollback_to(
    request: RollbackConnector, history: Sequence[HistoryEntry]
) -> tuple[PutConnectorConfig, DroverError | None]:
    """What to write, and what the caller is told if the config store refuses its revision.

    A config that the history does not have may have been pushed out by this very request when it
    came for the first time. The store knows, so it is asked to write what it can only refuse.
    """
    versions = [entry.change for entry in history if isinstance(entry.change, ConfigVersion)]
    for version in versions:
        if version.revision == request.revision:
            put = PutConnectorConfig(request.name, version.config, None, request.request_id)
            return put, None
    config = {"name": request.name}
    put = PutConnectorConfig(request.name, config, _NEVER_REVISION, request.request_id)
    return put, _not_found(request, [version.revision for version in versions])


def _not_found(request: RollbackConnector, revisions: Sequence[int]) -> DroverError:
    if not revisions:
        return connector_not_found(request.name)
    text = (
        f"the history of connector {request.name!r} has no config of revision {request.revision};"
        f" it has {', '.join(map(str, revisions))}"
    )
    return NotFoundError(Reason.REVISION_NOT_FOUND, text)
