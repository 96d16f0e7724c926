"""Reads of statuses, tasks, offsets and active topics of connectors."""

from collections.abc import AsyncIterator, Sequence

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client.coordinator import CoordinatorClient
from drover.client.status_store import StatusStoreClient
from drover.errors import DroverError
from drover.model.config import CONSUMER_GROUP_SETTING, setting_text
from drover.model.dead_letters import DEAD_LETTER_TOPIC
from drover.model.offsets import CommittedOffset
from drover.model.pages import PAGE_BYTES_MAX
from drover_worker.admin.call import AdminCall, Deadline
from drover_worker.admin.lags import Lags
from drover_worker.admin.paging import take_page, take_page_by_name
from drover_worker.admin.reads import Reads
from drover_worker.admin.task_activities import TaskActivities
from drover_worker.admin.views import ConnectorViews
from drover_worker.admin.watch_hub import WatchHub
from drover_worker.admin.watches import follow
from drover_worker.shell.engine_link import EngineLink
from drover_worker.shell.herder_loop import HerderLoop

#: A status is returned without a lag if the coordinator or the topics do not answer in this time.
_LAG_TIMEOUT_S = 2.0


class ConnectorStatuses:
    """Reads and watches statuses, and reads tasks, offsets and active topics."""

    def __init__(
        self,
        *,
        group_id: str,
        loop: HerderLoop,
        views: ConnectorViews,
        reads: Reads,
        hub: WatchHub,
        coordinator: CoordinatorClient,
        status_store: StatusStoreClient,
        engine: EngineLink,
        activities: TaskActivities,
    ) -> None:
        self._group_id = group_id
        self._view = loop.herder.context.view
        self._topics = loop.herder.topics
        self._views = views
        self._reads = reads
        self._hub = hub
        self._coordinator = coordinator
        self._status_store = status_store
        self._lags = Lags(engine)
        self._activities = activities

    async def get(
        self, request: pb.GetConnectorStatusRequest, call: AdminCall
    ) -> pb.GetConnectorStatusResponse:
        """Return the status of a connector and its tasks."""
        name = await self._reads.existing(request.name, call.deadline)
        status = self._views.status(name)
        await self._activities.add_to([status], call)
        if status.type == pb.CONNECTOR_TYPE_SINK and not status.HasField("lag"):
            lag = await self._committed_lag(name, call)
            if lag is not None:
                status.lag = lag
        return pb.GetConnectorStatusResponse(status=status)

    async def watch(
        self, request: pb.WatchStatusesRequest, call: AdminCall
    ) -> AsyncIterator[pb.WatchStatusesResponse]:
        """Stream all statuses, then their changes."""
        await self._reads.prepare(call.deadline)

        def show(name: str) -> pb.WatchStatusesResponse:
            if name in self._view.connectors:
                return pb.WatchStatusesResponse(status=self._views.status(name))
            return pb.WatchStatusesResponse(status=pb.ConnectorStatus(name=name), removed=True)

        def is_watched(name: str) -> bool:
            return request.name in ("", name) and call.may_see(name)

        with self._hub.watch_statuses() as changed:
            async for response in follow(changed, is_watched, self._view, self._reads, show):
                yield response or pb.WatchStatusesResponse(synced=True)

    async def tasks(self, request: pb.ListTasksRequest, call: AdminCall) -> pb.ListTasksResponse:
        """Return a page of a connector's tasks."""
        name = await self._reads.existing(request.name, call.deadline)
        tasks, token = take_page(
            self._views.tasks(name, show_undefined=call.may_change(name)),
            request.page_token,
            size_bytes=pb.TaskInfo.ByteSize,
        )
        return pb.ListTasksResponse(tasks=tasks, next_page_token=token)

    async def offsets(
        self, request: pb.GetConnectorOffsetsRequest, call: AdminCall
    ) -> pb.GetConnectorOffsetsResponse:
        """Return a page of a connector's committed offsets, with lags for a sink."""
        name = await self._reads.existing(request.name, call.deadline)
        config = self._view.config(name) or {}
        offsets = await self.committed(name, call.deadline.remaining_s())
        page, token = take_page(
            offsets,
            request.page_token,
            size_bytes=lambda o: len(o.partition_json) + len(o.offset_json or "") + 16,
        )
        return pb.GetConnectorOffsetsResponse(
            offsets=await self._lags.shown(
                page, call.deadline, dead_letter_topic=setting_text(config, DEAD_LETTER_TOPIC)
            ),
            next_page_token=token,
        )

    async def _committed_lag(self, name: str, call: AdminCall) -> int | None:
        """The sum of the lags of a sink's committed offsets; None if they are unknown."""
        timeout_s = min(_LAG_TIMEOUT_S, call.deadline.remaining_s() / 2)
        queue = setting_text(self._view.config(name) or {}, DEAD_LETTER_TOPIC)
        try:
            shown = await self._lags.shown(
                await self.committed(name, timeout_s),
                Deadline.after(timeout_s),
                dead_letter_topic=queue,
            )
        except DroverError:
            return None
        lags = [each.lag for each in shown if each.HasField("lag")]
        return sum(lags) if lags else None

    async def committed(self, name: str, timeout_s: float) -> Sequence[CommittedOffset]:
        """The committed offsets of a connector that exists."""
        config = self._view.config(name) or {}
        return await self._coordinator.fetch_offsets(
            group_id=self._group_id,
            connector=name,
            consumer_group=setting_text(config, CONSUMER_GROUP_SETTING),
            timeout_s=timeout_s,
        )

    async def topics(
        self, request: pb.GetConnectorTopicsRequest, call: AdminCall
    ) -> pb.GetConnectorTopicsResponse:
        """Return a connector's active topics."""
        name = await self._reads.existing(request.name, call.deadline)
        return pb.GetConnectorTopicsResponse(topics=self._topics.of(name))

    async def list_topics(
        self, request: pb.ListConnectorTopicsRequest, call: AdminCall
    ) -> pb.ListConnectorTopicsResponse:
        """Return a page of connectors with their active topics."""
        await self._reads.prepare(call.deadline)
        names = [name for name in sorted(self._view.connectors) if call.may_see(name)]
        page, token = take_page_by_name(names, request.page_token, request.page_size)
        response = pb.ListConnectorTopicsResponse(next_page_token=token)
        size_bytes = 0
        for name in page:
            shown = pb.ConnectorTopics(name=name, topics=self._topics.of(name))
            size_bytes += shown.ByteSize()
            if response.connectors and size_bytes > PAGE_BYTES_MAX:
                response.next_page_token = response.connectors[-1].name
                break
            response.connectors.append(shown)
        return response

    async def reset_topics(
        self, request: pb.ResetConnectorTopicsRequest, call: AdminCall
    ) -> pb.ResetConnectorTopicsResponse:
        """Remove a connector's active topics."""
        name = await self._reads.existing(request.name, call.deadline)
        await self._status_store.delete_topic_statuses(name, timeout_s=call.deadline.remaining_s())
        return pb.ResetConnectorTopicsResponse()
