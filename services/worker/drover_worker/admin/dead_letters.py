"""Replays dead letters of a connector."""

from collections.abc import Mapping

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client.coordinator import CoordinatorClient
from drover.codec.common import invalid_field
from drover.errors import InvalidArgumentError, Violation
from drover.model.config import CONSUMER_GROUP_SETTING, ConfigMap, TargetState, setting_text
from drover.model.dead_letters import (
    CONNECTOR_HEADER,
    DEAD_LETTER_TOPIC,
    REPLAY,
    REPLAY_WHERE,
    ReplayRange,
    condition_of_connector,
    ranges_text,
)
from drover.model.sink_offsets import parse_sink_offset
from drover_worker.admin.call import AdminCall
from drover_worker.admin.config_checks import checked_name
from drover_worker.admin.connector_changes import ConnectorChanges
from drover_worker.admin.plugins import PREVIEW_ROWS, PREVIEW_ROWS_MAX, bounded
from drover_worker.admin.reads import Reads
from drover_worker.core.config.checks import config_error
from drover_worker.shell.engine_link import EngineLink

_CONDITIONS_MAX = 20


class DeadLetters:
    """Replays dead letters by writing their ranges into the connector's config."""

    def __init__(
        self,
        *,
        group_id: str,
        engine: EngineLink,
        reads: Reads,
        changes: ConnectorChanges,
        coordinator: CoordinatorClient,
    ) -> None:
        self._group_id = group_id
        self._engine = engine
        self._reads = reads
        self._changes = changes
        self._coordinator = coordinator

    async def replay(
        self, request: pb.ReplayDeadLettersRequest, call: AdminCall
    ) -> pb.ReplayDeadLettersResponse:
        """Replay dead letters, or preview the replay.

        Connectors may share a queue. A caller who may not change the connector gets only the
        dead letters whose header names the connector.
        """
        faults = _faults(request)
        if faults:
            raise InvalidArgumentError.listing(faults)
        name = await self._reads.existing(checked_name(request.name), call.deadline)
        entry = self._reads.view.connectors[name]
        config = dict(entry.config or {})
        topic = config.get(DEAD_LETTER_TOPIC, "").strip()
        if not topic:
            raise invalid_field("name", f"{name!r} has no dead letter queue ({DEAD_LETTER_TOPIC})")
        response = pb.ReplayDeadLettersResponse(topic=topic)
        for each in await self._ranges(request, name, config, topic, call):
            response.ranges.add(
                partition=each.partition,
                start_offset=each.start_offset,
                end_offset=each.end_offset,
            )
        if not response.ranges:
            response.notes.append("all dead letters have been replayed already")
            return response
        settings = {REPLAY: ranges_text([_range(each) for each in response.ranges])}
        conditions = list(request.conditions)
        if not call.may_change(name):
            conditions.append(condition_of_connector(name))
            response.notes.append(
                f"only dead letters whose header {CONNECTOR_HEADER} names the connector"
                " (errors.deadletterqueue.context.headers.enable): others need the role admin"
            )
        if conditions:
            settings[REPLAY_WHERE] = "\n".join(conditions)
        else:
            config.pop(REPLAY_WHERE, None)
        if request.dry_run:
            await self._preview({**config, **settings}, request.row_count, response, call)
            return response
        patch = pb.PatchConnectorConfigRequest(
            name=name,
            set=settings,
            remove=[] if conditions else [REPLAY_WHERE],
            request_id=request.request_id,
        )
        await self._changes.patch(patch, call)
        if entry.target_state is not TargetState.STARTED:
            response.notes.append(
                f"the connector is {entry.target_state.value}: resume it to replay the dead letters"
            )
        return response

    async def _preview(
        self,
        config: ConfigMap,
        row_count: int,
        response: pb.ReplayDeadLettersResponse,
        call: AdminCall,
    ) -> None:
        faults = await self._engine.find_faults(config, call.principal.name)
        if faults:
            raise config_error(config["name"], faults)
        preview = await self._engine.preview(config, row_count or PREVIEW_ROWS, dead_letters=True)
        response.preview.CopyFrom(bounded(preview))

    async def _ranges(
        self,
        request: pb.ReplayDeadLettersRequest,
        name: str,
        config: ConfigMap,
        topic: str,
        call: AdminCall,
    ) -> list[ReplayRange]:
        """The requested ranges of the topic, without dead letters that were replayed already."""
        described = await self._engine.describe_topic(topic)
        replayed = await self._replayed(name, config, topic, call)
        existing = {each.partition for each in described.partitions}
        missing = [each for each in request.partitions if each not in existing]
        if missing:
            text = f"must be partitions of {topic}, 0 to {max(existing)}, not {missing[0]}"
            raise invalid_field("partitions", text)
        ranges = []
        for each in described.partitions:
            if request.partitions and each.partition not in request.partitions:
                continue
            start = max(each.start_offset, request.start_offset, replayed.get(each.partition, 0))
            end = each.end_offset
            if request.HasField("end_offset"):
                end = min(end, request.end_offset)
            if start < end:
                ranges.append(ReplayRange(each.partition, start, end))
        return ranges

    async def _replayed(
        self, name: str, config: ConfigMap, topic: str, call: AdminCall
    ) -> Mapping[int, int]:
        """The offset after the last replayed dead letter of each partition."""
        offsets = await self._coordinator.fetch_offsets(
            group_id=self._group_id,
            connector=name,
            consumer_group=setting_text(config, CONSUMER_GROUP_SETTING),
            timeout_s=call.deadline.remaining_s(),
        )
        parsed = [place for each in offsets if (place := parse_sink_offset(each)) is not None]
        return {at.partition: offset for at, offset in parsed if at.topic == topic}


def _range(shown: pb.ReplayDeadLettersResponse.Range) -> ReplayRange:
    return ReplayRange(shown.partition, shown.start_offset, shown.end_offset)


def _faults(request: pb.ReplayDeadLettersRequest) -> list[Violation]:
    faults = []
    if request.start_offset < 0:
        faults.append(Violation("start_offset", "must not be negative"))
    if request.HasField("end_offset") and request.end_offset <= request.start_offset:
        faults.append(Violation("end_offset", "must be above start_offset"))
    if not 0 <= request.row_count <= PREVIEW_ROWS_MAX:
        faults.append(Violation("row_count", f"must be 0 to {PREVIEW_ROWS_MAX}"))
    if len(request.conditions) > _CONDITIONS_MAX:
        faults.append(Violation("conditions", f"must have at most {_CONDITIONS_MAX}"))
    if any(len(each.splitlines()) != 1 for each in request.conditions):
        faults.append(Violation("conditions", "must each be one line"))
    return faults
