"""Runs a herder's instructions, as ``instruction_runner.py`` of the worker does."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from drover.errors import (
    DeadlineExceededError,
    DroverError,
    InvalidArgumentError,
    Reason,
    UnavailableError,
)
from drover.model.group import (
    Joined,
    LeavingMember,
    MemberAssignment,
    Synced,
)
from drover.model.ids import TaskId
from drover_config_store.core.events import (
    DeleteConnector,
    PutConnectorConfig,
    PutRestartRequest,
    PutSessionKey,
    PutTargetState,
    PutTaskConfigs,
    WriteAnswer,
)
from drover_coordinator.core.groups.events import Heartbeat, JoinGroup, LeaveGroup, SyncGroup
from drover_worker.core import events, instructions, requests
from drover_worker.core.instructions import HerderInstruction
from drover_worker.core.rebalance.protocol import PROTOCOL_TYPE, decode_assignment
from simulation.coordinator import ClaimTask, FetchOffsets
from simulation.stores import ClaimWriter, GetEndOffset
from simulation.world import BrokenRuleError

if TYPE_CHECKING:
    from simulation.worker import Worker

SYNC_TIMEOUT_MS = 1_200
LEAVE_TIMEOUT_MS = 800
PARKED_MARGIN_MS = 1_500
REBALANCE_TIMEOUT_MS = 6_000
CONFIG_STORE = "config-store"


def carry_out(worker: "Worker", instruction: HerderInstruction) -> None:
    """Execute an instruction; its completion is posted as an event."""
    _HANDLERS[type(instruction)](worker, instruction)


def _done(
    worker: "Worker",
    instruction: HerderInstruction,
    to_event: Callable[[Any], events.HerderEvent],
    result: object,
) -> None:
    if isinstance(result, DroverError):
        event = _failure(instruction, result)
        if event is not None:
            worker.post(event)
    else:
        worker.post(to_event(result))


def _failure(instruction: HerderInstruction, error: DroverError) -> events.HerderEvent | None:
    """The event that reports a failed instruction to the herder."""
    engine_ended = isinstance(error, UnavailableError)
    match instruction:
        case instructions.ClaimTask(task, run_id) | instructions.FetchOffsets(task, run_id):
            return events.TaskNotPrepared(task, run_id, error)
        case instructions.StartConnector(name, run_id):
            return None if engine_ended else events.ConnectorFailed(name, run_id, str(error))
        case instructions.StartTask(task, run_id) | instructions.SetTaskPaused(task, run_id):
            return None if engine_ended else events.TaskFailed(task, run_id, str(error))
        case instructions.GenerateTaskConfigs(name, run_id):
            return events.TaskConfigsNotGenerated(name, run_id, str(error))
        case instructions.StopConnector(name, run_id):
            return events.ConnectorStopped(name, run_id)
        case instructions.StopTask(task, run_id):
            return events.TaskStopped(task, run_id)
        case _:
            return events.CallFailed(getattr(instruction, "cause_id", ""), error)


# --- the group ---------------------------------------------------------------------------------


def _join(worker: "Worker", call: instructions.JoinGroup) -> None:
    event = JoinGroup(
        call_id="",
        group_id=worker.group_id,
        member_id=call.member_id,
        new_member_id="",
        client_id=worker.name,
        client_host=worker.name,
        session_timeout_ms=worker.network.mix.session_timeout_ms,
        rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
        protocol_type=PROTOCOL_TYPE,
        protocols=tuple(call.protocols),
        parked_until_ms=0,
    )

    def joined(outcome: Any) -> events.HerderEvent:
        if isinstance(outcome, Joined):
            worker.rules.generation_seen(worker, "join", worker.group_id, outcome.generation)
        return events.JoinAnswered(call.cause_id, outcome)

    worker.call_group(
        event,
        partial(_done, worker, call, joined),
        timeout_ms=REBALANCE_TIMEOUT_MS + PARKED_MARGIN_MS,
        retry=bool(call.member_id),
    )


def _sync(worker: "Worker", call: instructions.SyncGroup) -> None:
    event = SyncGroup(
        call_id="",
        group_id=worker.group_id,
        member_id=call.member_id,
        generation=call.generation,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=call.protocol_name,
        assignments=tuple(MemberAssignment(m, data) for m, data in call.assignments.items()),
    )

    def synced(outcome: Any) -> events.HerderEvent:
        if isinstance(outcome, Synced):
            with suppress(InvalidArgumentError):
                assignment = decode_assignment(outcome.assignment)
                worker.assigned_offsets[call.generation] = assignment.config_offset
        return events.SyncAnswered(call.cause_id, outcome)

    worker.call_group(
        event,
        partial(_done, worker, call, synced),
        timeout_ms=REBALANCE_TIMEOUT_MS + PARKED_MARGIN_MS,
    )


def _heartbeat(worker: "Worker", call: instructions.Heartbeat) -> None:
    worker.call_group(
        Heartbeat("", worker.group_id, call.member_id, call.generation),
        partial(_done, worker, call, partial(events.HeartbeatAnswered, call.cause_id)),
        timeout_ms=worker.network.mix.session_timeout_ms // 3,
    )


def _leave(worker: "Worker", call: instructions.LeaveGroup) -> None:
    leaving = (LeavingMember(call.member_id, reason=call.reason),)
    worker.call_group(
        LeaveGroup("", worker.group_id, leaving),
        partial(_done, worker, call, lambda results: events.LeaveAnswered(call.cause_id)),
        timeout_ms=LEAVE_TIMEOUT_MS,
    )


def _watch_group(worker: "Worker", call: instructions.WatchGroup) -> None:
    worker.watch_group(call.member_id)


# --- the config log ----------------------------------------------------------------------------


def _read_configs_to_end(worker: "Worker", call: instructions.ReadConfigsToEnd) -> None:
    done = partial(_done, worker, call, lambda nothing: events.ReadToEnd(call.cause_id))

    def ends_at(end_offset: object) -> None:
        if isinstance(end_offset, DroverError):
            done(end_offset)
            return
        assert isinstance(end_offset, int)
        view = worker.herder.context.view
        if view.loaded and view.offset >= end_offset:
            done(None)
            return
        waiter = (end_offset, done)
        worker.offset_waiters.append(waiter)

        def too_late() -> None:
            if waiter in worker.offset_waiters:
                worker.offset_waiters.remove(waiter)
                done(DeadlineExceededError(Reason.DEADLINE_EXCEEDED, "not read to the end"))

        worker.after(SYNC_TIMEOUT_MS, too_late)

    worker.call(CONFIG_STORE, GetEndOffset(), ends_at, timeout_ms=SYNC_TIMEOUT_MS)


def _claim_writer(worker: "Worker", call: instructions.ClaimWriter) -> None:
    worker.call(
        CONFIG_STORE,
        ClaimWriter(worker.name, call.term),
        partial(_done, worker, call, lambda c: events.WriterClaimed(call.cause_id, *c)),
    )


_Write = (
    instructions.WriteConnectorConfig
    | instructions.WriteSessionKey
    | instructions.RemoveConnector
    | instructions.WriteTaskConfigs
    | instructions.WriteTargetState
    | instructions.WriteRestartRequest
)


def _write(worker: "Worker", call: _Write) -> None:
    def written(answer: WriteAnswer) -> events.HerderEvent:
        return events.ConfigWritten(call.cause_id, answer.end_offset, answer.revision)

    worker.call(CONFIG_STORE, _config_request(call), partial(_done, worker, call, written))


def _config_request(call: _Write) -> object:
    match call:
        case instructions.WriteConnectorConfig():
            return PutConnectorConfig(
                call_id="",
                request_id=call.request_id,
                writer_epoch=call.writer_epoch,
                name=call.name,
                config=call.config,
                initial_state=call.initial_state,
                expected_revision=call.expected_revision,
            )
        case instructions.WriteSessionKey():
            return PutSessionKey(
                call_id="",
                request_id=call.request_id,
                writer_epoch=call.writer_epoch,
                key=call.request_id.encode().ljust(call.size_bytes)[-call.size_bytes :],
                algorithm=call.algorithm,
            )
        case instructions.RemoveConnector():
            return DeleteConnector(
                call_id="",
                request_id=call.request_id,
                writer_epoch=call.writer_epoch,
                name=call.name,
            )
        case instructions.WriteTaskConfigs():
            return PutTaskConfigs(
                call_id="",
                request_id=call.request_id,
                writer_epoch=call.writer_epoch,
                connector=call.connector,
                task_configs=tuple(
                    (TaskId(call.connector, index), config)
                    for index, config in enumerate(call.configs)
                ),
            )
        case instructions.WriteTargetState():
            return PutTargetState(
                call_id="",
                request_id=call.request_id,
                name=call.name,
                target_state=call.target_state,
            )
        case instructions.WriteRestartRequest():
            return PutRestartRequest(
                call_id="",
                request_id=call.request_id,
                writer_epoch=call.writer_epoch,
                name=call.name,
                only_failed=call.only_failed,
                include_tasks=call.include_tasks,
            )


def _submit_to_leader(worker: "Worker", call: instructions.SubmitToLeader) -> None:
    worker.call_worker(
        call.leader_url,
        requests.SubmitTaskConfigs(call.connector, call.configs, call.request_id),
        partial(_done, worker, call, lambda done: events.TaskConfigsSubmitted(call.cause_id)),
    )


# --- tasks -------------------------------------------------------------------------------------


def _claim_task(worker: "Worker", call: instructions.ClaimTask) -> None:
    offset = worker.herder.context.view.offset
    assigned_offset = worker.assigned_offsets.get(call.generation, 0)
    if offset < assigned_offset:
        raise BrokenRuleError(
            "no work before the config log is read as far as the leader had",
            f"{worker.name} starts {call.task} at offset {offset}, assigned at {assigned_offset}",
            worker.name,
            call.task,
        )
    request = ClaimTask(
        worker.group_id,
        call.member_id,
        call.generation,
        call.task,
        call.task_config_generation,
        call.request_id,
    )
    worker.call_group(
        request,
        partial(_done, worker, call, partial(events.TaskClaimed, call.task, call.run_id)),
    )


def _fetch_offsets(worker: "Worker", call: instructions.FetchOffsets) -> None:
    worker.call_group(
        FetchOffsets(worker.group_id, call.task.connector),
        partial(_done, worker, call, partial(events.OffsetsFetched, call.task, call.run_id)),
    )


# --- the engine --------------------------------------------------------------------------------


def _command(worker: "Worker", command: Any) -> None:
    worker.engine.command(command, partial(_done, worker, command, lambda event: event))


_HANDLERS: dict[type, Callable[["Worker", Any], None]] = {
    instructions.JoinGroup: _join,
    instructions.SyncGroup: _sync,
    instructions.Heartbeat: _heartbeat,
    instructions.LeaveGroup: _leave,
    instructions.WatchGroup: _watch_group,
    instructions.ReadConfigsToEnd: _read_configs_to_end,
    instructions.ClaimWriter: _claim_writer,
    instructions.WriteConnectorConfig: _write,
    instructions.RemoveConnector: _write,
    instructions.WriteTaskConfigs: _write,
    instructions.WriteTargetState: _write,
    instructions.WriteRestartRequest: _write,
    instructions.WriteSessionKey: _write,
    instructions.SubmitToLeader: _submit_to_leader,
    instructions.WriteStatus: lambda worker, call: worker.statuses.write(call.write),
    instructions.ClaimTask: _claim_task,
    instructions.FetchOffsets: _fetch_offsets,
    instructions.ValidateConfig: _command,
    instructions.StartConnector: _command,
    instructions.StopConnector: _command,
    instructions.GenerateTaskConfigs: _command,
    instructions.StartTask: _command,
    instructions.SetTaskPaused: _command,
    instructions.StopTask: _command,
}
