"""Requests that write a connector's config: create, put, roll back, delete."""

from drover.errors import AlreadyExistsError, Reason
from drover_worker.core.config.checks import config_error, sink_group_violations
from drover_worker.core.config.rollback import rollback_to
from drover_worker.core.context import Context
from drover_worker.core.events import ConfigValidated, HistoryRead
from drover_worker.core.instructions import (
    ReadHistory,
    RemoveConnector,
    ValidateConfig,
    WriteConnectorConfig,
)
from drover_worker.core.requests.messages import (
    Accomplished,
    ConfigStored,
    CreateConnector,
    DeleteConnector,
    PutConnectorConfig,
    RollbackConnector,
)
from drover_worker.core.requests.pending import Pending, PendingRequests, RequestStage


class ConfigRequests:
    """The leader validates a config in the engine and writes it; a rollback reads it first.

    ``store``, ``roll_back`` and ``delete`` make the next call of a request, or none while the
    request has to wait.
    """

    def __init__(self, context: Context, pending: PendingRequests) -> None:
        self._context = context
        self._pending = pending

    def store(self, pending: Pending, request: CreateConnector | PutConnectorConfig) -> None:
        """Validate the config, then write it."""
        if not self._pending.leads(pending):
            return
        if not pending.validated:
            self._pending.start_call(pending, RequestStage.VALIDATING)
            self._context.emit(ValidateConfig(pending.cause_id, request.config, pending.author))
            return
        if not self._pending.may_write(pending):
            return
        creates = isinstance(request, CreateConnector)
        created = request.name not in self._context.view.connectors
        pending.response = ConfigStored(0, creates or created)
        if creates:
            text = (
                f"connector {request.name!r} already exists: change its config (drover connector"
                " apply), or choose another name"
            )
            pending.refusal = AlreadyExistsError(Reason.CONNECTOR_ALREADY_EXISTS, text)
        self._pending.start_call(pending, RequestStage.WRITING)
        self._context.emit(
            WriteConnectorConfig(
                cause_id=pending.cause_id,
                name=request.name,
                config=request.config,
                initial_state=(
                    request.initial_state if isinstance(request, CreateConnector) else None
                ),
                expected_revision=(
                    request.expected_revision if isinstance(request, PutConnectorConfig) else 0
                ),
                writer_epoch=pending.epoch or 0,
                request_id=request.request_id,
                author=pending.author,
            )
        )

    def roll_back(self, pending: Pending, request: RollbackConnector) -> None:
        """Read the connector's history; ``history_read`` turns the request into a put."""
        if self._pending.leads(pending):
            self._pending.start_call(pending, RequestStage.READING_HISTORY)
            self._context.emit(ReadHistory(pending.cause_id, request.name))

    def delete(self, pending: Pending, request: DeleteConnector) -> None:
        """Remove the connector.

        The store decides about an unknown name: an earlier attempt may have removed the connector.
        """
        if self._pending.leads(pending) and self._pending.may_write(pending):
            pending.response = Accomplished()
            self._pending.start_call(pending, RequestStage.WRITING)
            self._context.emit(
                RemoveConnector(
                    cause_id=pending.cause_id,
                    name=request.name,
                    writer_epoch=pending.epoch or 0,
                    request_id=request.request_id,
                    author=pending.author,
                )
            )

    def history_read(self, event: HistoryRead) -> Pending | None:
        """Turn a rollback into a put; returns the request that can proceed, if any."""
        pending = self._pending.end_call(event.cause_id)
        if pending is None or not isinstance(pending.request, RollbackConnector):
            return None
        pending.request, pending.refusal = rollback_to(pending.request, event.entries)
        # a write that the store will reject needs no validation
        pending.validated = pending.refusal is not None
        pending.step = RequestStage.WAITING
        return pending

    def validated(
        self,
        pending: Pending,
        request: CreateConnector | PutConnectorConfig,
        event: ConfigValidated,
    ) -> None:
        """Write the config if the engine found it valid."""
        name, config = request.name, request.config
        violations = list(event.violations)
        if event.connector_type == "sink":
            violations += sink_group_violations(name, config, self._context.settings.group_id)
        if violations:
            self._pending.fail(pending, config_error(name, violations))
            return
        pending.validated = True
        pending.step = RequestStage.WAITING
        self.store(pending, request)
