"""Creates the use cases of one worker."""

from dataclasses import dataclass

from drover.client.config_store import ConfigStoreClient
from drover.client.coordinator import CoordinatorClient
from drover.client.status_store import StatusStoreClient
from drover.config.plugin_modules import module_names
from drover.rpc.audit_trail import AuditTrail
from drover_worker.admin.audit_events import AuditEvents
from drover_worker.admin.cluster import ClusterInfo
from drover_worker.admin.cluster_plugins import ClusterPlugins
from drover_worker.admin.connector_changes import ConnectorChanges
from drover_worker.admin.connectors import ConnectorReads
from drover_worker.admin.dead_letters import DeadLetters
from drover_worker.admin.every_worker import EveryWorker
from drover_worker.admin.figures import Figures, OwnRows
from drover_worker.admin.forwarding import RequestForwarder, WorkerClients
from drover_worker.admin.logger_levels import LoggerLevels
from drover_worker.admin.offset_search import OffsetSearch
from drover_worker.admin.plans import ConnectorPlans
from drover_worker.admin.plugin_reload import PluginReload, ReplaceEngine
from drover_worker.admin.plugins import Plugins
from drover_worker.admin.reads import Reads, ReadToEnd
from drover_worker.admin.rebalances import Rebalances
from drover_worker.admin.statuses import ConnectorStatuses
from drover_worker.admin.task_activities import OwnTasks, TaskActivities
from drover_worker.admin.topic_writes import TopicWrites
from drover_worker.admin.topics import Topics
from drover_worker.admin.views import ConnectorViews
from drover_worker.admin.watch_hub import WatchHub
from drover_worker.admin.worker_drains import WorkerDrains
from drover_worker.settings import WorkerSettings
from drover_worker.shell.engine_link import EngineLink
from drover_worker.shell.herder_loop import HerderLoop
from drover_worker.shell.loggers import Loggers
from drover_worker.shell.worker_processes import WorkerProcesses


@dataclass(frozen=True, slots=True)
class Backends:
    """The parts of the worker and the clients that the use cases need."""

    settings: WorkerSettings
    worker_id: str
    loop: HerderLoop
    workers: WorkerClients
    engine: EngineLink
    coordinator: CoordinatorClient
    config_store: ConfigStoreClient
    status_store: StatusStoreClient
    loggers: Loggers
    read_to_end: ReadToEnd
    present_tasks: OwnTasks
    figure_rows: OwnRows
    processes: WorkerProcesses
    audit: AuditTrail
    replace_engine: ReplaceEngine


class Admin:
    """All use cases, by area."""

    def __init__(self, backends: Backends) -> None:
        loop, engine = backends.loop, backends.engine
        views = ConnectorViews(
            loop.herder.context, engine.plugins, backends.settings.config_providers.keys()
        )
        reads = Reads(loop, engine, views, backends.read_to_end)
        forwarder = RequestForwarder(loop, backends.workers)
        hub = WatchHub()
        loop.observe(hub.observe)
        self.activities = TaskActivities(
            worker_id=backends.worker_id, forwarder=forwarder, own=backends.present_tasks
        )
        self.figures = Figures(
            worker_id=backends.worker_id,
            forwarder=forwarder,
            own=backends.figure_rows,
            reads=reads,
            views=views,
        )
        self.cluster = ClusterInfo(
            settings=backends.settings,
            worker_id=backends.worker_id,
            loop=loop,
            engine=engine,
            forwarder=forwarder,
            workers=backends.workers,
            processes=backends.processes,
        )
        self.connectors = ConnectorReads(
            view=loop.herder.context.view,
            views=views,
            reads=reads,
            hub=hub,
            engine=engine,
            config_store=backends.config_store,
            returns_secrets=backends.settings.gateway_secrets == "admin",
            activities=self.activities,
        )
        every_worker = EveryWorker(backends.worker_id, loop, forwarder)
        self.rebalances = Rebalances(backends.worker_id, loop, every_worker)
        self.audit_events = AuditEvents(backends.worker_id, backends.audit, every_worker)
        plugins = ClusterPlugins(
            worker_id=backends.worker_id, loop=loop, engine=engine, every_worker=every_worker
        )
        engine.attach_cluster(plugins.faults)
        group_id = backends.settings.group_id
        self.plans = ConnectorPlans(engine, reads, views, group_id=group_id)
        self.changes = ConnectorChanges(
            forwarder, reads, views, engine.find_faults, self.plans, group_id=group_id
        )
        self.dead_letters = DeadLetters(
            group_id=group_id,
            engine=engine,
            reads=reads,
            changes=self.changes,
            coordinator=backends.coordinator,
            config_store=backends.config_store,
        )
        self.statuses = ConnectorStatuses(
            group_id=backends.settings.group_id,
            loop=loop,
            views=views,
            reads=reads,
            hub=hub,
            coordinator=backends.coordinator,
            status_store=backends.status_store,
            engine=engine,
            activities=self.activities,
        )
        self.drains = WorkerDrains(forwarder)
        self.plugins = Plugins(engine, plugins, reads, group_id=group_id)
        self.topics = Topics(engine, reads)
        self.offset_search = OffsetSearch(reads, views, self.statuses, self.topics)
        self.topic_writes = TopicWrites(engine, reads)
        self.plugin_reload = PluginReload(
            worker_id=backends.worker_id,
            loop=loop,
            plugins=engine.plugins,
            forwarder=forwarder,
            replace_engine=backends.replace_engine,
            plugin_modules=module_names(backends.settings.plugin_modules),
            java_changes=backends.settings.java_changes,
            java_classes=backends.settings.java_classes,
        )
        self.loggers = LoggerLevels(backends.loggers, backends.config_store, every_worker)
