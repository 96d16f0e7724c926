"""Pages of a connector's history, with secrets masked."""

from collections.abc import Callable, Mapping, Sequence

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.codec.connect import TARGET_STATES
from drover.model.config import (
    ConfigMap,
    ConfigVersion,
    ConnectorConfigRemoved,
    ConnectorEntry,
    DeadLettersChanged,
    HistoryEntry,
    RestartRequested,
    TargetStateChanged,
)
from drover.model.pages import PAGE_BYTES_MAX
from drover_worker.admin.config_difference import ConfigDifference
from drover_worker.admin.paging import number_of

#: Returns a config with its secrets masked.
Masked = Callable[[ConfigMap], Mapping[str, str]]


def class_names(entries: Sequence[HistoryEntry]) -> set[str]:
    """The values of connector.class in a history."""
    versions = [entry.change for entry in entries if isinstance(entry.change, ConfigVersion)]
    return {version.config.get("connector.class", "") for version in versions}


def history_page(
    entries: Sequence[HistoryEntry],
    page_token: str,
    *,
    current: ConnectorEntry | None,
    masked: Masked,
) -> pb.GetConnectorHistoryResponse:
    """A page of a history, newest first: at most 1 MiB, but at least one change.

    Args:
        entries: The whole history, oldest first.
        page_token: The revision of the last change on the previous page, which stays valid if the
            history changes; empty for the first page.
        current: The connector; None if it was deleted.
        masked: Masks secrets.

    Raises:
        InvalidArgumentError: INVALID_REQUEST, an invalid token.
    """
    before = number_of(page_token)
    response = pb.GetConnectorHistoryResponse()
    size_bytes = 0
    for place in range(len(entries) - 1, -1, -1):
        entry = entries[place]
        if page_token and _revision(entry) >= before:
            continue
        shown = _change_view(entry, _before(entries, place), current, masked)
        size_bytes += shown.ByteSize()
        if response.changes and size_bytes > PAGE_BYTES_MAX:
            response.next_page_token = str(response.changes[-1].revision)
            break
        response.changes.append(shown)
    return response


def _revision(entry: HistoryEntry) -> int:
    """The config log's offset after the entry, which is the revision of a config."""
    return entry.offset + 1


def _before(entries: Sequence[HistoryEntry], place: int) -> ConfigMap:
    """The config before a change; empty if there was none or the history lacks it."""
    for entry in reversed(entries[:place]):
        match entry.change:
            case ConfigVersion(_, config):
                return config
            case ConnectorConfigRemoved():
                break
    return {}


def _change_view(
    entry: HistoryEntry, before: ConfigMap, current: ConnectorEntry | None, masked: Masked
) -> pb.ConnectorChange:
    shown = pb.ConnectorChange(revision=_revision(entry), author=entry.author)
    if entry.time_ms > 0:
        shown.change_time.FromMilliseconds(entry.time_ms)
    match entry.change:
        case ConfigVersion(revision, config):
            change = ConfigDifference.between(before, config)
            since = ConfigDifference.between((current and current.config) or {}, config)
            shown.config_version.CopyFrom(
                pb.ConfigVersion(
                    config=masked(config),
                    added_keys=change.added,
                    removed_keys=change.removed,
                    changed_keys=change.changed,
                    current=current is not None and revision == current.config_revision,
                    differing_keys=sorted([*since.added, *since.removed, *since.changed]),
                )
            )
        case ConnectorConfigRemoved():
            shown.deletion.SetInParent()
        case TargetStateChanged(_, target_state):
            shown.target_state = TARGET_STATES.encode(target_state)
        case RestartRequested(_, only_failed, include_tasks):
            shown.restart.CopyFrom(
                pb.RestartDemand(include_tasks=include_tasks, only_failed=only_failed)
            )
        case DeadLettersChanged() as change:
            shown.dead_letters.CopyFrom(
                pb.DeadLetterChange(
                    topic=change.topic,
                    ranges=change.ranges,
                    discarded=change.discarded,
                    reason=change.reason,
                )
            )
    return shown
