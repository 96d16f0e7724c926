"""Requests that change a stopped connector's committed offsets (KIP-875)."""

from dataclasses import replace

from drover.errors import DroverError, FailedPreconditionError, InvalidArgumentError, Reason
from drover.model.claims import TaskSet
from drover.model.command_lines import drover_command
from drover.model.config import (
    CONSUMER_GROUP_SETTING,
    OFFSETS_TOPIC_SETTING,
    TargetState,
    setting_text,
)
from drover.model.offsets import OffsetsChange
from drover_worker.core.config.offset_checks import as_sink_offsets
from drover_worker.core.context import Context
from drover_worker.core.events import ConfigValidated
from drover_worker.core.instructions import AlterOffsets as AlterOffsetsInstruction
from drover_worker.core.instructions import ValidateConfig
from drover_worker.core.requests.messages import AlterOffsets
from drover_worker.core.requests.pending import Pending, PendingRequests, RequestStage


class OffsetRequests:
    """The leader gets the connector's type from the engine, then changes the offsets.

    Tasks may still run on a worker that is out of contact. The coordinator revokes their claims
    with the change, and rejects the change if tasks of a later set were claimed before it.
    """

    def __init__(self, context: Context, pending: PendingRequests) -> None:
        self._context = context
        self._pending = pending

    def alter(self, pending: Pending, request: AlterOffsets) -> None:
        """Make the next call of the request, or none while it has to wait."""
        name = request.name
        if not self._pending.leads(pending) or not self._pending.known(pending, name):
            return
        config = self._context.view.config(name) or {}
        fault = self._not_stopped(name)
        if fault is not None:
            self._pending.fail(pending, fault)
        elif not request.connector_type:
            self._pending.start_call(pending, RequestStage.VALIDATING)
            self._context.emit(ValidateConfig(pending.cause_id, config, use_systems=False))
        else:
            self._pending.start_call(pending, RequestStage.ALTERING_OFFSETS)
            entry = self._context.view.connectors[name]
            is_source = request.connector_type == "source"
            change = OffsetsChange(
                connector=name,
                task_set=TaskSet(self._context.generation, entry.task_config_generation),
                offsets=request.offsets,
                consumer_group=setting_text(config, CONSUMER_GROUP_SETTING),
                without_positions=is_source,
                offsets_topic=setting_text(config, OFFSETS_TOPIC_SETTING) if is_source else "",
                adopts=request.adopts,
            )
            self._context.emit(
                AlterOffsetsInstruction(pending.cause_id, self._context.member_id, config, change)
            )

    def validated(self, pending: Pending, request: AlterOffsets, event: ConfigValidated) -> None:
        """Change the offsets, now that the engine has returned the connector's type.

        Violations of the config do not matter here.
        """
        if not event.connector_type:
            why = event.violations[0].description if event.violations else "its class is unknown"
            text = f"the offsets of connector {request.name!r} cannot be changed: {why}"
            self._pending.fail(pending, FailedPreconditionError(Reason.OFFSETS_REFUSED, text))
            return
        if request.adopts and event.connector_type != "sink":
            text = f"connector {request.name!r} is a source: only a sink's output can be adopted"
            self._pending.fail(pending, FailedPreconditionError(Reason.OFFSETS_REFUSED, text))
            return
        offsets = request.offsets
        if event.connector_type == "sink" and offsets is not None:
            offsets, violations = as_sink_offsets(offsets)
            if violations:
                self._pending.fail(pending, InvalidArgumentError.listing(violations))
                return
        pending.request = replace(request, offsets=offsets, connector_type=event.connector_type)
        pending.step = RequestStage.WAITING
        self.alter(pending, pending.request)

    def _not_stopped(self, name: str) -> DroverError | None:
        view = self._context.view
        state, task_count = view.connectors[name].target_state, len(view.tasks(name))
        if state is TargetState.STOPPED and not task_count:
            return None
        text = (
            f"connector {name!r} is not stopped ({state}, tasks: {task_count}): stop it "
            f"({drover_command('connector stop', name)}), change its offsets, then resume it"
        )
        return FailedPreconditionError(Reason.CONNECTOR_NOT_STOPPED, text)
