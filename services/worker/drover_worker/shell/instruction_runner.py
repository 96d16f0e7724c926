"""Runs the herder's instructions: each is a call whose outcome becomes an event."""

import asyncio
import random
import secrets
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Protocol

import structlog

from drover.client.config_store import ConfigStoreClient
from drover.client.coordinator import CoordinatorClient
from drover.client.status_store import StatusStoreClient
from drover.client.worker import WorkerClient
from drover.codec.coordinator import decode_offset
from drover.errors import (
    DeadlineExceededError,
    DroverError,
    FailedPreconditionError,
    InternalError,
    NotFoundError,
    Reason,
    UnavailableError,
)
from drover.model.command_lines import drover_command
from drover.model.dead_letters import DEAD_LETTER_TOPIC
from drover.model.group import LeavingMember, MemberAssignment
from drover.model.offsets import CommittedOffset, OffsetsChange, TopicPartition
from drover.model.sink_offsets import SinkOffsetError, parse_partition
from drover_worker.core import events, instructions
from drover_worker.core.instructions import HerderInstruction
from drover_worker.core.rebalance.protocol import PROTOCOL_TYPE
from drover_worker.settings import WorkerSettings
from drover_worker.shell.engine_link import EngineLink, Handler, engine_handlers
from drover_worker.shell.herder_loop import HerderLoop
from drover_worker.shell.status_writer import StatusWriter

#: Topic partitions that are listed in one message.
_NAMED_MAX = 20

#: How long reading the config log to its end may take; after that the worker leaves the group.
SYNC_TIMEOUT_S = 3.0
LEAVE_TIMEOUT_S = 2.0
#: Added to the rebalance timeout, so that the coordinator answers first.
_PARKED_MARGIN_S = 5.0
_WATCH_BACKOFF_S = (0.1, 0.5)

_log = structlog.get_logger("drover.worker")


class WorkerClients(Protocol):
    """Clients of the other workers."""

    def get(self, address: str) -> WorkerClient:
        """The client for the worker at host:port."""


class InstructionRunner:
    """Runs each instruction as an asyncio task; ``close`` cancels the running ones."""

    def __init__(
        self,
        *,
        settings: WorkerSettings,
        worker_id: str,
        loop: HerderLoop,
        coordinator: CoordinatorClient,
        config_store: ConfigStoreClient,
        workers: WorkerClients,
        engine: EngineLink,
        statuses: StatusWriter,
        status_store: StatusStoreClient,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        """``random_bytes`` makes the keys that sign calls between workers."""
        self._settings = settings
        self._worker_id = worker_id
        self._loop = loop
        self._coordinator = coordinator
        self._config_store = config_store
        self._workers = workers
        self._engine = engine
        self._statuses = statuses
        self._status_store = status_store
        self._random_bytes = random_bytes
        self._tasks: set[asyncio.Task[None]] = set()
        self._group_watch: asyncio.Task[None] | None = None
        self._handlers: Mapping[type, Handler] = {
            **engine_handlers(engine),
            instructions.JoinGroup: self._join_group,
            instructions.SyncGroup: self._sync_group,
            instructions.Heartbeat: self._heartbeat,
            instructions.LeaveGroup: self._leave_group,
            instructions.ReadConfigsToEnd: self._read_configs_to_end,
            instructions.ClaimWriter: self._claim_writer,
            instructions.WriteConnectorConfig: self._write_connector_config,
            instructions.RemoveConnector: self._remove_connector,
            instructions.WriteTaskConfigs: self._write_task_configs,
            instructions.WriteTargetState: self._write_target_state,
            instructions.WriteRestartRequest: self._write_restart_request,
            instructions.WriteSessionKey: self._write_session_key,
            instructions.ReadHistory: self._read_history,
            instructions.SubmitToLeader: self._submit_to_leader,
            instructions.PutTopicStatuses: self._put_topic_statuses,
            instructions.DeleteTopicStatuses: self._delete_topic_statuses,
            instructions.ClaimTask: self._claim_task,
            instructions.FetchOffsets: self._fetch_offsets,
            instructions.AlterOffsets: self._alter_offsets,
        }

    def run(self, instruction: HerderInstruction) -> None:
        """Run an instruction in the background."""
        match instruction:
            case instructions.WriteStatus(write):
                self._statuses.write(write)
            case instructions.WatchGroup(member_id):
                self._watch_group(member_id)
            # at once, so that no report of the stopping engine is passed on
            case instructions.StartEngine(engine):
                self._engine.start_engine(engine)
            case instructions.StopEngine(engine):
                self._engine.stop_engine(engine)
            case _:
                self._spawn(self._run_to_event(instruction), type(instruction).__name__)

    async def close(self) -> None:
        """Cancel all running instructions."""
        if self._group_watch is not None:
            self._group_watch.cancel()
            self._tasks.add(self._group_watch)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_to_event(self, instruction: HerderInstruction) -> None:
        kind = type(instruction).__name__
        try:
            event = await self._handlers[type(instruction)](instruction)
        except DroverError as error:
            event = _failure(instruction, error)
            if isinstance(event, events.TaskNotPrepared):
                _log.warning(
                    "a task could not be prepared", task=str(event.task), why=error.message
                )
        except Exception as defect:  # noqa: BLE001 - every instruction needs an outcome
            _log.error(
                "an instruction failed because of a defect", instruction=kind, exc_info=defect
            )
            event = _failure(
                instruction, InternalError(f"{kind} failed because of a defect: {defect}")
            )
        if event is not None:
            self._loop.post(event)

    # The group

    async def _join_group(self, call: instructions.JoinGroup) -> events.HerderEvent | None:
        settings = self._settings
        outcome = await self._coordinator.join(
            group_id=settings.group_id,
            member_id=call.member_id,
            client_id=self._worker_id,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.rebalance_timeout_ms,
            protocol_type=PROTOCOL_TYPE,
            protocols=call.protocols,
            reason=call.reason,
            timeout_s=self._parked_timeout_s(),
        )
        return events.JoinAnswered(call.cause_id, outcome)

    async def _sync_group(self, call: instructions.SyncGroup) -> events.HerderEvent | None:
        outcome = await self._coordinator.sync(
            group_id=self._settings.group_id,
            member_id=call.member_id,
            generation=call.generation,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=call.protocol_name,
            assignments=[MemberAssignment(m, data) for m, data in call.assignments.items()],
            timeout_s=self._parked_timeout_s(),
        )
        return events.SyncAnswered(call.cause_id, outcome)

    async def _heartbeat(self, call: instructions.Heartbeat) -> events.HerderEvent | None:
        rebalance = await self._coordinator.heartbeat(
            group_id=self._settings.group_id,
            member_id=call.member_id,
            generation=call.generation,
            timeout_s=self._settings.heartbeat_interval_ms / 1000,
        )
        return events.HeartbeatAnswered(call.cause_id, rebalance)

    async def _leave_group(self, call: instructions.LeaveGroup) -> events.HerderEvent | None:
        await self._coordinator.leave(
            group_id=self._settings.group_id,
            members=[LeavingMember(call.member_id, reason=call.reason)],
            timeout_s=LEAVE_TIMEOUT_S,
        )
        return events.LeaveAnswered(call.cause_id)

    def _watch_group(self, member_id: str) -> None:
        if self._group_watch is not None:
            self._group_watch.cancel()
            self._tasks.add(self._group_watch)
            self._group_watch.add_done_callback(self._tasks.discard)
            self._group_watch = None
        if member_id:
            self._group_watch = asyncio.create_task(
                self._follow_group(member_id), name="WatchGroup"
            )

    async def _follow_group(self, member_id: str) -> None:
        """Watch until cancelled; restarts a broken watch within the disconnect grace period."""
        while True:
            try:
                watch = self._coordinator.watch_group(
                    group_id=self._settings.group_id, member_id=member_id
                )
                async with aclosing(watch) as changes:
                    async for change in changes:
                        self._loop.post(
                            events.GroupPushed(member_id, change.generation, change.rejoin_needed)
                        )
            except NotFoundError:
                return  # no longer a member: the next heartbeat reports it
            except DroverError as error:
                _log.debug("the watch of the group is broken", why=error.message)
            except Exception as defect:  # noqa: BLE001 - without a watch the coordinator removes the member
                _log.error("the watch of the group failed because of a defect", exc_info=defect)
            await asyncio.sleep(random.uniform(*_WATCH_BACKOFF_S))

    def _parked_timeout_s(self) -> float:
        return self._settings.rebalance_timeout_ms / 1000 + _PARKED_MARGIN_S

    # The config log

    async def _read_configs_to_end(
        self, call: instructions.ReadConfigsToEnd
    ) -> events.HerderEvent | None:
        await self.read_configs_to_end(SYNC_TIMEOUT_S)
        return events.ReadToEnd(call.cause_id)

    async def read_configs_to_end(self, timeout_s: float) -> None:
        """Wait until the view has reached the current end of the log.


        Raises:
            DroverError: The end of the log is unknown, or the view did not reach it in time.
        """
        end_offset = await self._config_store.get_end_offset(timeout_s=timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                await self._loop.wait_for_config_offset(end_offset)
        except TimeoutError:
            raise DeadlineExceededError(
                Reason.DEADLINE_EXCEEDED,
                f"the config log was not read up to offset {end_offset} within {timeout_s:g} s",
            ) from None

    async def _write_session_key(
        self, call: instructions.WriteSessionKey
    ) -> events.HerderEvent | None:
        end_offset = await self._config_store.put_session_key(
            key=self._random_bytes(call.size_bytes),
            algorithm=call.algorithm,
            writer_epoch=call.writer_epoch,
            request_id=call.request_id,
        )
        return events.ConfigWritten(call.cause_id, end_offset)

    async def _claim_writer(self, call: instructions.ClaimWriter) -> events.HerderEvent | None:
        claim = await self._config_store.claim_writer(owner=self._worker_id, term=call.term)
        return events.WriterClaimed(call.cause_id, claim.writer_epoch, claim.end_offset)

    async def _write_connector_config(
        self, call: instructions.WriteConnectorConfig
    ) -> events.HerderEvent | None:
        written = await self._config_store.put_connector_config(
            name=call.name,
            config=call.config,
            writer_epoch=call.writer_epoch,
            initial_state=call.initial_state,
            expected_revision=call.expected_revision,
            author=call.author,
            request_id=call.request_id,
        )
        return events.ConfigWritten(call.cause_id, written.end_offset, written.revision)

    async def _remove_connector(
        self, call: instructions.RemoveConnector
    ) -> events.HerderEvent | None:
        end_offset = await self._config_store.delete_connector(
            name=call.name,
            writer_epoch=call.writer_epoch,
            author=call.author,
            request_id=call.request_id,
        )
        return events.ConfigWritten(call.cause_id, end_offset)

    async def _write_task_configs(
        self, call: instructions.WriteTaskConfigs
    ) -> events.HerderEvent | None:
        end_offset = await self._config_store.put_task_configs(
            connector=call.connector,
            task_configs=call.configs,
            writer_epoch=call.writer_epoch,
            request_id=call.request_id,
        )
        return events.ConfigWritten(call.cause_id, end_offset)

    async def _write_target_state(
        self, call: instructions.WriteTargetState
    ) -> events.HerderEvent | None:
        end_offset = await self._config_store.put_target_state(
            name=call.name,
            target_state=call.target_state,
            author=call.author,
            request_id=call.request_id,
        )
        return events.ConfigWritten(call.cause_id, end_offset)

    async def _write_restart_request(
        self, call: instructions.WriteRestartRequest
    ) -> events.HerderEvent | None:
        end_offset = await self._config_store.put_restart_request(
            name=call.name,
            only_failed=call.only_failed,
            include_tasks=call.include_tasks,
            writer_epoch=call.writer_epoch,
            author=call.author,
            request_id=call.request_id,
        )
        return events.ConfigWritten(call.cause_id, end_offset)

    async def _read_history(self, call: instructions.ReadHistory) -> events.HerderEvent | None:
        return events.HistoryRead(
            call.cause_id, await self._config_store.connector_history(call.name)
        )

    async def _submit_to_leader(
        self, call: instructions.SubmitToLeader
    ) -> events.HerderEvent | None:
        await self._workers.get(call.leader_url).submit_task_configs(
            connector=call.connector, task_configs=call.configs, request_id=call.request_id
        )
        return events.TaskConfigsSubmitted(call.cause_id)

    # Topics

    async def _put_topic_statuses(
        self, call: instructions.PutTopicStatuses
    ) -> events.HerderEvent | None:
        await self._status_store.put_topic_statuses(
            call.task.connector, call.topics, task=call.task.task
        )
        return events.TopicStatusesWritten(call.cause_id)

    async def _delete_topic_statuses(
        self, call: instructions.DeleteTopicStatuses
    ) -> events.HerderEvent | None:
        await self._status_store.delete_topic_statuses(call.connector)
        return events.TopicStatusesWritten(call.cause_id)

    # Tasks

    async def _claim_task(self, call: instructions.ClaimTask) -> events.HerderEvent | None:
        claim = await self._coordinator.claim_task(
            group_id=self._settings.group_id,
            member_id=call.member_id,
            generation=call.generation,
            task=call.task,
            task_config_generation=call.task_config_generation,
            request_id=call.request_id,
        )
        return events.TaskClaimed(call.task, call.run_id, claim)

    async def _fetch_offsets(self, call: instructions.FetchOffsets) -> events.HerderEvent | None:
        offsets = await self._coordinator.fetch_offsets(
            group_id=self._settings.group_id,
            connector=call.task.connector,
            without_positions=not call.reads_topics,
            consumer_group=call.consumer_group,
            with_marks=call.reads_topics,
        )
        return events.OffsetsFetched(call.task, call.run_id, offsets)

    async def _alter_offsets(self, call: instructions.AlterOffsets) -> events.HerderEvent | None:
        change, group_id = call.change, self._settings.group_id
        if change.offsets is None and not change.without_positions:
            change = await self._traced(call)
        changing = change.offsets
        if changing is None:
            present = await self._coordinator.fetch_offsets(
                group_id=group_id,
                connector=change.connector,
                without_positions=change.without_positions,
                consumer_group=change.consumer_group,
            )
            changing = [CommittedOffset(each.partition_json, None) for each in present]
        if change.offsets is None and change.without_positions:
            # a source's progress in its dead letters stays: a reset replays none of them
            queue = call.config.get(DEAD_LETTER_TOPIC, "").strip()
            kept = [each for each in changing if _is_in(each, queue)]
            if kept:
                changing = [each for each in changing if each not in kept]
                change = replace(change, offsets=changing)
        complete = await self._engine.alter_offsets(call.config, changing)
        await self._coordinator.change_offsets(
            group_id=group_id, member_id=call.member_id, change=change
        )
        adopted = (changing or ()) if change.adopts else ()
        return events.OffsetsAltered(call.cause_id, complete, adopted)

    async def _traced(self, call: instructions.AlterOffsets) -> OffsetsChange:
        """A change of all offsets of a sink, with what its output shows.

        Raises:
            FailedPreconditionError: OFFSETS_LOST or OFFSETS_REFUSED, the output shows nothing to
                adopt.
        """
        change = call.change
        present = await self._coordinator.fetch_offsets(
            group_id=self._settings.group_id,
            connector=change.connector,
            consumer_group=change.consumer_group,
            with_marks=True,
        )
        found = await self._engine.trace_offsets(call.config, present)
        traced = [decode_offset(each) for each in found.offsets]
        untraced = [TopicPartition(p.topic, p.partition) for p in found.untraced_partitions]
        if not change.adopts:
            written = [parse_partition(each.partition_json) for each in traced]
            return replace(change, written=written)
        if untraced or not traced:
            raise _nothing_to_adopt(change.connector, untraced)
        return replace(change, offsets=traced)


def _is_in(offset: CommittedOffset, topic: str) -> bool:
    """Whether the offset is a position in a topic."""
    try:
        return parse_partition(offset.partition_json).topic == topic
    except SinkOffsetError:
        return False


def _nothing_to_adopt(
    connector: str, untraced: Sequence[TopicPartition]
) -> FailedPreconditionError:
    if not untraced:
        text = (
            f"there is nothing to adopt: each topic partition of {connector} has a committed "
            "offset, or its output shows no records of it"
        )
        return FailedPreconditionError(Reason.OFFSETS_REFUSED, text)
    named = ", ".join(f"{each.topic}-{each.partition}" for each in untraced[:_NAMED_MAX])
    more = f" and {len(untraced) - _NAMED_MAX} more" if len(untraced) > _NAMED_MAX else ""
    command = drover_command("connector offsets", connector, options=["-f", "FILE"])
    text = (
        f"the output of {connector} does not show how far it was written from {named}{more}; "
        "nothing was changed. Find the next offsets to write, and commit them "
        f"({command}), or start as configured (--reset)"
    )
    return FailedPreconditionError(Reason.OFFSETS_LOST, text)


def _failure(instruction: HerderInstruction, error: DroverError) -> events.HerderEvent | None:
    """The event for an instruction that raised; None if another event reports the failure."""
    match instruction:
        case instructions.ClaimTask(task, run_id) | instructions.FetchOffsets(task, run_id):
            return events.TaskNotPrepared(task, run_id, error)
        case instructions.StartConnector(name, run_id):
            return (
                None if _engine_ended(error) else events.ConnectorFailed(name, run_id, str(error))
            )
        case instructions.StartTask(task, run_id) | instructions.SetTaskPaused(task, run_id):
            return None if _engine_ended(error) else events.TaskFailed(task, run_id, str(error))
        case instructions.GenerateTaskConfigs(name, run_id):
            return events.TaskConfigsNotGenerated(name, run_id, str(error))
        case instructions.StopConnector(name, run_id):
            return events.ConnectorStopped(name, run_id)
        case instructions.StopTask(task, run_id):
            return events.TaskStopped(task, run_id)
        case _:
            cause_id = getattr(instruction, "cause_id", "")
            return events.CallFailed(cause_id, error)


def _engine_ended(error: DroverError) -> bool:
    """Whether the engine ended: EngineLost reports that."""
    return isinstance(error, UnavailableError)
