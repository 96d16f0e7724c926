"""Replays dead letters of a connector, discards them, and lists what became of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from drover.api.common.v1.repairs_pb2 import DeadLetterRepair
from drover.api.common.v1.topics_pb2 import TopicDescription
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.api.engine.v1 import engine_pb2
from drover.client.calls import new_request_id
from drover.client.config_store import ConfigStoreClient
from drover.client.coordinator import CoordinatorClient
from drover.codec.common import invalid_field
from drover.codec.dead_letters import encode_repairs
from drover.errors import (
    AbortedError,
    FailedPreconditionError,
    InvalidArgumentError,
    Reason,
    Violation,
)
from drover.model.config import (
    CONSUMER_GROUP_SETTING,
    ConfigMap,
    DeadLettersChanged,
    TargetState,
    setting_text,
)
from drover.model.dead_letters import (
    CONNECTOR_HEADER,
    DEAD_LETTER_TOPIC,
    REPLAY,
    REPLAY_FORCE,
    REPLAY_ID,
    REPLAY_WHERE,
    ReplayRange,
    condition_of_connector,
    parse_ranges,
    ranges_text,
)
from drover.model.letter_states import (
    CurrentReplay,
    LetterStates,
    Offsets,
    OffsetSet,
    ReplayProgress,
    count_of,
    decode_states,
    encode_states,
    joined,
    offsets_of_ranges,
    ranges_of,
    replay_progress,
    states_in,
    with_states,
    within,
    without,
)
from drover_worker.admin.call import AdminCall
from drover_worker.admin.config_checks import checked_name
from drover_worker.admin.connector_changes import ConnectorChanges
from drover_worker.admin.letter_repairs import (
    foreign_repairs,
    places_of,
    repair_faults,
    repaired_text,
    replay_of_repaired,
)
from drover_worker.admin.letter_selection import Selection, selection_faults
from drover_worker.admin.plugins import PREVIEW_ROWS, PREVIEW_ROWS_MAX, bounded
from drover_worker.admin.reads import Reads
from drover_worker.core.config.checks import config_error
from drover_worker.shell.engine_link import EngineLink

_REASON_MAX_CHARS = 1_000
_REPLAY_ID_CHARS = 8


@dataclass(frozen=True, slots=True)
class _Queue:
    """A connector's dead letter queue, and the states of its dead letters.

    ``revision`` identifies the stored states of all of the connector's queues.
    """

    name: str
    config: ConfigMap
    topic: TopicDescription
    all_states: Sequence[LetterStates]
    revision: int
    states: LetterStates
    progress: Mapping[int, ReplayProgress]

    @property
    def is_replaying(self) -> bool:
        """Whether the config has the last replay; otherwise it was removed from the config."""
        current = self.states.current
        return current is not None and self.config.get(REPLAY_ID, "").startswith(current.id)

    @property
    def open(self) -> dict[int, OffsetSet]:
        """The dead letters that no replay has, and that were not discarded."""
        bounds = self.topic.partitions
        all_letters = {
            each.partition: OffsetSet.of([(each.start_offset, each.end_offset)]) for each in bounds
        }
        return without(all_letters, self.states.of(self.progress).closed)

    def selected(self, request: Selection) -> dict[int, OffsetSet]:
        """The offsets that a request names, whatever their states are."""
        ends = {each.partition: each.end_offset for each in self.topic.partitions}
        missing = [each for each in request.partitions if each not in ends]
        if missing:
            text = f"must be partitions of {self.topic.name}, 0 to {max(ends)}, not {missing[0]}"
            raise invalid_field("partitions", text)
        if request.letters:
            return self._named(request)
        found = {}
        for partition, topic_end in ends.items():
            if request.partitions and partition not in request.partitions:
                continue
            end = (
                min(topic_end, request.end_offset) if request.HasField("end_offset") else topic_end
            )
            found[partition] = OffsetSet.of([(request.start_offset, end)])
        return found

    def _named(self, request: Selection) -> dict[int, OffsetSet]:
        """The dead letters that a request names one by one."""
        bounds = {
            each.partition: range(each.start_offset, each.end_offset)
            for each in self.topic.partitions
        }
        faults = [
            Violation(
                f"letters[{index}]",
                f"must be a dead letter of {self.topic.name}, not {each.partition}:{each.offset}",
            )
            for index, each in enumerate(request.letters)
            if each.offset not in bounds.get(each.partition, ())
        ]
        if faults:
            raise InvalidArgumentError.listing(faults)
        found: dict[int, list[tuple[int, int]]] = {}
        for each in request.letters:
            found.setdefault(each.partition, []).append((each.offset, each.offset + 1))
        return {partition: OffsetSet.of(each) for partition, each in found.items()}


class DeadLetters:
    """Replays dead letters by writing their ranges into the connector's config.

    The config store keeps what became of each dead letter.
    """

    def __init__(
        self,
        *,
        group_id: str,
        engine: EngineLink,
        reads: Reads,
        changes: ConnectorChanges,
        coordinator: CoordinatorClient,
        config_store: ConfigStoreClient,
    ) -> None:
        self._group_id = group_id
        self._engine = engine
        self._reads = reads
        self._changes = changes
        self._coordinator = coordinator
        self._config_store = config_store

    async def replay(
        self, request: pb.ReplayDeadLettersRequest, call: AdminCall
    ) -> pb.ReplayDeadLettersResponse:
        """Replay dead letters, or preview the replay.

        Connectors may share a queue. A caller who may not change the connector gets only the
        dead letters whose header names the connector.
        """
        faults = [*selection_faults(request), *repair_faults(request)]
        if not 0 <= request.row_count <= PREVIEW_ROWS_MAX:
            faults.append(Violation("row_count", f"must be 0 to {PREVIEW_ROWS_MAX}"))
        if faults:
            raise InvalidArgumentError.listing(faults)
        if request.repairs:
            await self._check_repairs(request, call)
        request_id = request.request_id or new_request_id()
        if not request.repairs or request.dry_run:
            return await self._replay(request, request_id, call)
        repaired, before = await self._repair(request, request_id, call)
        if not repaired.letters:
            return before
        response = await self._replay(repaired, request_id, call)
        response.notes.extend(before.notes)
        response.skipped_letters.extend(before.skipped_letters)
        response.skipped_count += before.skipped_count
        return response

    async def _check_repairs(self, request: pb.ReplayDeadLettersRequest, call: AdminCall) -> None:
        """Refuse repairs of dead letters that the caller may not select: the faults of a repair
        show the schema of its dead letter.
        """
        queue = await self._queue(request.name, call)
        conditions = _conditions(request, queue, call, lambda _note: None)
        if not conditions:
            return
        wanted = within(queue.selected(request), places_of(request.repairs))
        checked = await self._check(queue, wanted, conditions, selects_only=True)
        own = offsets_of_ranges(parse_ranges(checked.ranges))
        if faults := foreign_repairs(request, own):
            raise InvalidArgumentError.listing(faults)

    async def _repair(
        self, request: pb.ReplayDeadLettersRequest, request_id: str, call: AdminCall
    ) -> tuple[pb.ReplayDeadLettersRequest, pb.ReplayDeadLettersResponse]:
        """Write repaired dead letters, and discard their originals. Returns the request for the
        replay, and a response with the dead letters that are skipped.
        """
        wanted_repairs = places_of(request.repairs)
        while True:
            queue = await self._queue(request.name, call)
            response = pb.ReplayDeadLettersResponse(topic=queue.topic.name)
            selected = queue.selected(request)
            current, left = queue.states.current, queue.states.left(queue.progress)
            if current is not None and left and current.is_forced != request.force:
                raise _in_progress(queue, left)
            chosen: Offsets = {}
            wanted = within(within(queue.open, selected), wanted_repairs)
            if wanted:
                conditions = _conditions(request, queue, call, lambda _note: None)
                checked = await self._check(
                    queue,
                    wanted,
                    conditions,
                    skips_newer=not request.force,
                    repairs=request.repairs,
                )
                chosen = offsets_of_ranges(parse_ranges(checked.ranges))
                _add_skipped(response, checked)
            command = engine_pb2.RepairDeadLetters(
                config=queue.config,
                repairs=request.repairs,
                author=call.principal.name,
                request_id=request_id,
                open_ranges=ranges_text(ranges_of(chosen)),
            )
            report = await self._engine.ask(engine_pb2.EngineCommand(repair_dead_letters=command))
            places = report.repaired_dead_letters.places
            originals = within(queue.open, places_of(places))
            if originals:
                none = OffsetSet()
                states = queue.states.with_repairs(
                    (each.partition, each.offset, each.repaired_offset)
                    for each in places
                    if each.offset in originals.get(each.partition, none)
                )
                change = DeadLettersChanged(
                    queue.name,
                    queue.topic.name,
                    ranges_text(ranges_of(originals)),
                    discarded=True,
                    reason=repaired_text(places),
                )
                if not await self._put(queue, states, change, f"{request_id}-repair", call):
                    continue
            unused = count_of(without(wanted_repairs, places_of(places))) - response.skipped_count
            if unused > 0:
                response.notes.append(f"{unused} repaired dead letters are not open: not replayed")
            return replay_of_repaired(request, places), response

    async def _replay(
        self, request: pb.ReplayDeadLettersRequest, request_id: str, call: AdminCall
    ) -> pb.ReplayDeadLettersResponse:
        while True:
            queue = await self._queue(request.name, call)
            response = pb.ReplayDeadLettersResponse(topic=queue.topic.name)
            conditions = _conditions(request, queue, call, response.notes.append)
            wanted = within(queue.open, queue.selected(request))
            chosen: Offsets = {}
            if wanted:
                checked = await self._check(
                    queue,
                    wanted,
                    conditions,
                    skips_newer=not request.force,
                    repairs=request.repairs,
                )
                chosen = offsets_of_ranges(parse_ranges(checked.ranges))
                _add_skipped(response, checked)
            states, added = _with_replay(queue, request, chosen, _replay_id(request_id))
            going_on = within(states.left(queue.progress), queue.selected(request))
            response.ranges.extend(_shown(ranges_of(going_on)))
            if not added and not going_on:
                if not response.skipped_count:
                    response.notes.append("no open dead letter is selected")
                return response
            if request.dry_run:
                await self._preview(queue.config, conditions, request, response, call)
                return response
            if added:
                change = DeadLettersChanged(
                    queue.name, queue.topic.name, ranges_text(ranges_of(added)), discarded=False
                )
                if not await self._put(queue, states, change, request_id, call):
                    continue
            await self._configure(queue, states, conditions, request_id, call)
            entry = self._reads.view.connectors.get(queue.name)
            if entry is not None and entry.target_state is not TargetState.STARTED:
                response.notes.append(
                    f"the connector is {entry.target_state.value}: resume it to replay the dead "
                    "letters"
                )
            left_out = count_of(without(chosen, added))
            if left_out:
                response.notes.append(
                    f"{left_out} dead letters could not be added to the replay in progress: repeat "
                    "the command when it is complete"
                )
            return response

    async def discard(
        self, request: pb.DiscardDeadLettersRequest, call: AdminCall
    ) -> pb.DiscardDeadLettersResponse:
        """Discard open dead letters."""
        faults = selection_faults(request)
        reason = request.reason.strip()
        if not reason or len(reason) > _REASON_MAX_CHARS or not reason.isprintable():
            text = f"must have 1 to {_REASON_MAX_CHARS} printable characters"
            faults.append(Violation("reason", text))
        if faults:
            raise InvalidArgumentError.listing(faults)
        request_id = request.request_id or new_request_id()
        while True:
            queue = await self._queue(request.name, call)
            response = pb.DiscardDeadLettersResponse(topic=queue.topic.name)
            conditions = _conditions(request, queue, call, response.notes.append)
            selected = queue.selected(request)
            left = queue.states.left(queue.progress)
            # what a replay has left that was removed from the config is open
            unasked = queue.open if queue.is_replaying else joined(queue.open, left)
            wanted = within(unasked, selected)
            chosen: Offsets = wanted
            if wanted and conditions:
                checked = await self._check(queue, wanted, conditions, selects_only=True)
                chosen = offsets_of_ranges(parse_ranges(checked.ranges))
                response.notes.extend(checked.notes)
            busy = count_of(within(left, selected))
            if busy and queue.is_replaying:
                response.notes.append(
                    f"{busy} dead letters are being replayed, and stay as they are"
                )
            response.ranges.extend(_shown(ranges_of(chosen)))
            if not chosen:
                response.notes.append("no open dead letter is selected")
            if request.dry_run or not chosen:
                return response
            states = replace(queue.states, discarded=joined(queue.states.discarded, chosen))
            if states.current is not None:
                offsets = without(states.current.offsets, chosen)
                states = replace(states, current=replace(states.current, offsets=offsets))
            change = DeadLettersChanged(
                queue.name,
                queue.topic.name,
                ranges_text(ranges_of(chosen)),
                discarded=True,
                reason=reason,
            )
            if await self._put(queue, states, change, request_id, call):
                return response

    async def states(
        self, request: pb.GetDeadLetterStatesRequest, call: AdminCall
    ) -> pb.GetDeadLetterStatesResponse:
        """Return which dead letters were replayed or discarded."""
        queue = await self._queue(request.name, call)
        now = queue.states.of(queue.progress)
        return pb.GetDeadLetterStatesResponse(
            topic=queue.topic.name,
            replayed_ranges=_shown(ranges_of(now.replayed)),
            discarded_ranges=_shown(ranges_of(now.discarded)),
            replaying_ranges=_shown(ranges_of(now.replaying if queue.is_replaying else {})),
            repairs=encode_repairs(now.repaired),
        )

    async def _queue(self, request_name: str, call: AdminCall) -> _Queue:
        name = await self._reads.existing(checked_name(request_name), call.deadline)
        config = dict(self._reads.view.connectors[name].config or {})
        topic = config.get(DEAD_LETTER_TOPIC, "").strip()
        if not topic:
            raise invalid_field("name", f"{name!r} has no dead letter queue ({DEAD_LETTER_TOPIC})")
        described = await self._engine.describe_topic(topic)
        # the states first: a replay that ends in between is then still in progress
        text, revision = await self._config_store.get_dead_letter_states(
            name, timeout_s=call.deadline.remaining_s()
        )
        offsets = await self._coordinator.fetch_offsets(
            group_id=self._group_id,
            connector=name,
            consumer_group=setting_text(config, CONSUMER_GROUP_SETTING),
            with_marks=True,
            timeout_s=call.deadline.remaining_s(),
        )
        all_states = decode_states(text)
        return _Queue(
            name=name,
            config=config,
            topic=described,
            all_states=all_states,
            revision=revision,
            states=states_in(all_states, topic, described.id),
            progress=replay_progress(offsets, topic, described.id),
        )

    async def _check(
        self,
        queue: _Queue,
        wanted: Offsets,
        conditions: Sequence[str],
        *,
        skips_newer: bool = False,
        selects_only: bool = False,
        repairs: Iterable[DeadLetterRepair] = (),
    ) -> engine_pb2.CheckedDeadLetters:
        """Select from the ``wanted`` dead letters."""
        now = queue.states.of(queue.progress)
        command = engine_pb2.CheckDeadLetters(
            config=queue.config,
            ranges=ranges_text(ranges_of(wanted)),
            conditions=conditions,
            skip_newer=skips_newer,
            replayed_ranges=ranges_text(ranges_of(now.replayed)),
            select_only=selects_only,
            repairs=repairs,
        )
        report = await self._engine.ask(engine_pb2.EngineCommand(check_dead_letters=command))
        return report.checked_dead_letters

    async def _put(
        self,
        queue: _Queue,
        states: LetterStates,
        change: DeadLettersChanged,
        request_id: str,
        call: AdminCall,
    ) -> bool:
        """Store the states; False if others were stored since they were read."""
        try:
            await self._config_store.put_dead_letter_states(
                change,
                encode_states(with_states(queue.all_states, states)),
                expected_revision=queue.revision,
                author=call.principal.name,
                request_id=request_id,
                timeout_s=call.deadline.remaining_s(),
            )
        except AbortedError as error:
            if error.reason is not Reason.REVISION_MISMATCH or not call.deadline.remaining_s():
                raise
            return False
        return True

    async def _configure(
        self,
        queue: _Queue,
        states: LetterStates,
        conditions: Sequence[str],
        request_id: str,
        call: AdminCall,
    ) -> None:
        """Write the current replay into the config, unless it is there."""
        assert states.current is not None
        settings = {
            REPLAY: ranges_text(ranges_of(states.current.offsets)),
            REPLAY_ID: f"{states.current.id}:{states.topic_id}".removesuffix(":"),
        }
        if queue.is_replaying and queue.states.left(queue.progress):
            # the dead letters of both requests meet only the conditions of both
            present = queue.config.get(REPLAY_WHERE, "").splitlines()
            conditions = [each for each in conditions if each in present]
        if conditions:
            settings[REPLAY_WHERE] = "\n".join(conditions)
        if states.current.is_forced:
            settings[REPLAY_FORCE] = "true"
        remove = [each for each in (REPLAY_WHERE, REPLAY_FORCE) if each not in settings]
        changed = {**queue.config, **settings}
        for each in remove:
            changed.pop(each, None)
        if changed == queue.config:
            return
        patch = pb.PatchConnectorConfigRequest(
            name=queue.name, set=settings, remove=remove, request_id=request_id
        )
        await self._changes.patch(patch, call)

    async def _preview(
        self,
        present: ConfigMap,
        conditions: Sequence[str],
        request: pb.ReplayDeadLettersRequest,
        response: pb.ReplayDeadLettersResponse,
        call: AdminCall,
    ) -> None:
        ranges = [
            ReplayRange(each.partition, each.start_offset, each.end_offset)
            for each in response.ranges
        ]
        config = {**present, REPLAY: ranges_text(ranges), REPLAY_WHERE: "\n".join(conditions)}
        config.pop(REPLAY_ID, None)
        if not conditions:
            del config[REPLAY_WHERE]
        faults = await self._engine.find_faults(config, call.principal.name)
        if faults:
            raise config_error(config["name"], faults)
        wanted = engine_pb2.PreviewConnector(
            config=config,
            row_count=request.row_count or PREVIEW_ROWS,
            dead_letters=True,
            repairs=request.repairs,
        )
        preview = await self._engine.preview(wanted)
        response.preview.CopyFrom(bounded(preview))


def _with_replay(
    queue: _Queue, request: pb.ReplayDeadLettersRequest, chosen: Offsets, replay_id: str
) -> tuple[LetterStates, Offsets]:
    """The states after a request to replay the ``chosen`` dead letters, and what was added.

    Raises:
        FailedPreconditionError: REPLAY_IN_PROGRESS, nothing can be added to it.
    """
    current = queue.states.current
    left = queue.states.left(queue.progress)
    if current is None or not left:
        if not chosen:
            return queue.states, {}
        settled = queue.states.settled(queue.progress)
        begun = CurrentReplay(replay_id, chosen, is_forced=request.force)
        return replace(settled, current=begun), chosen
    # a running task may be at any dead letter of the replay: only those behind its end can be added
    ends = {partition: each.ranges[-1][1] for partition, each in current.offsets.items() if each}
    passed = {partition: OffsetSet.of([(0, end)]) for partition, end in ends.items()}
    found = without(chosen, passed) if current.is_forced == request.force else {}
    if chosen and not found:
        raise _in_progress(queue, left)
    offsets = joined(current.offsets, found)
    return replace(queue.states, current=replace(current, offsets=offsets)), found


def _in_progress(queue: _Queue, left: Offsets) -> FailedPreconditionError:
    return FailedPreconditionError(
        Reason.REPLAY_IN_PROGRESS,
        f"a replay of {queue.name} is in progress, with {count_of(left)} dead letters left: "
        "repeat the command when it is complete",
    )


def _replay_id(request_id: str) -> str:
    """The same for a repeated request."""
    return sha256(request_id.encode()).hexdigest()[:_REPLAY_ID_CHARS]


def _conditions(
    request: Selection, queue: _Queue, call: AdminCall, note: Callable[[str], None]
) -> list[str]:
    """The conditions of a request, for what the caller may select."""
    conditions = list(request.conditions)
    if not call.may_change(queue.name):
        conditions.append(condition_of_connector(queue.name))
        note(
            f"only dead letters whose header {CONNECTOR_HEADER} names the connector"
            " (errors.deadletterqueue.context.headers.enable): others need the role admin"
        )
    return conditions


def _add_skipped(
    response: pb.ReplayDeadLettersResponse, checked: engine_pb2.CheckedDeadLetters
) -> None:
    response.skipped_count = checked.skipped_count
    response.notes.extend(checked.notes)
    for each in checked.skipped_letters:
        reason = pb.SKIP_REASON_NEWER if each.newer else pb.SKIP_REASON_UNDETERMINED
        response.skipped_letters.add(
            partition=each.partition, offset=each.offset, reason=reason, message=each.message
        )


def _shown(ranges: Iterable[ReplayRange]) -> list[pb.ReplayDeadLettersResponse.Range]:
    return [
        pb.ReplayDeadLettersResponse.Range(
            partition=each.partition, start_offset=each.start_offset, end_offset=each.end_offset
        )
        for each in ranges
    ]
