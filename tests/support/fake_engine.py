"""An engine without Spark: plugins that do nothing, in the test's process."""

import asyncio
import itertools
from collections.abc import Mapping, Sequence

from drover.api.common.v1.activity_pb2 import TaskActivity
from drover.api.common.v1.preview_pb2 import (
    Preview,
    PreviewedRecord,
    PreviewedRow,
    StepSchemas,
)
from drover.api.common.v1.topics_pb2 import RecordQuery
from drover.api.engine.v1 import engine_pb2 as pb
from drover.codec.common import encode_counts, encode_figures
from drover.codec.coordinator import decode_offset, encode_offset
from drover.connector.engine_settings import ENGINE_SETTINGS
from drover.connector.record_settings import with_defaults
from drover.connector.restart_settings import RESTART_SETTINGS
from drover.convert.json_converter import JsonConverter
from drover.convert.plain_converters import StringConverter
from drover.dataplane.embedded import EmbeddedPlane
from drover.errors import DroverError, Reason, UnavailableError
from drover.log.storage import EmbeddedStorage
from drover.model.dead_letters import (
    DEAD_LETTER_TOPIC,
    REPLAY,
    REPLAY_FORCE,
    REPLAY_ID,
    REPLAY_WHERE,
    ReplayRange,
    parse_ranges,
    ranges_text,
)
from drover.model.ids import TaskId
from drover.model.letter_states import offsets_of_ranges, ranges_of, within
from drover.model.offsets import CommittedOffset, TopicPartition
from drover.model.status import RecordCounts
from drover_worker.engine.plugins import answers
from drover_worker.engine.topics.letter_repairs import (
    LetterFormat,
    encoded_repairs,
    repair_letters,
)
from drover_worker.engine.topics.reads import describe_topic, list_topics, read_topic
from drover_worker.engine.topics.writes import produce_records
from drover_worker.settings import WorkerSettings
from drover_worker.shell.at_work import Suspects
from drover_worker.shell.engine_supervisor import EngineExit, ExitHandler, ReportHandler
from drover_worker.shell.engines import LimitsInForce

SOURCE = "tests.IdleSource"
SINK = "tests.IdleSink"
#: Importable, but not listed among the installed plugins.
UNLISTED = "tests.UnlistedSource"
#: Its only logger, of a connector's module.
LOGGER = pb.Logger(name="acme.connectors.idle", level="INFO")


class FakeEngine:
    """Starts, stops and fails runs on command; ``running_tasks`` maps each task to its run.

    Settings of its connectors: ``tasks`` is their number of task configs (default tasks.max),
    ``padding`` enlarges each by that many bytes, and ``fail.start`` makes tasks fail at their start
    with its value as trace.
    """

    def __init__(
        self, settings: WorkerSettings, on_report: ReportHandler, on_exit: ExitHandler
    ) -> None:
        self.settings = settings
        self._on_report = on_report
        self._on_exit = on_exit
        self.process_id: int | None = None
        self.stall = ""
        self.limits: LimitsInForce | None = LimitsInForce()
        self.running_connectors: dict[str, int] = {}
        self.running_tasks: dict[TaskId, int] = {}
        self.paused: dict[TaskId, bool] = {}
        self.started: dict[TaskId, pb.StartTask] = {}
        self.commit_results: dict[int, pb.CommitResult] = {}
        #: The levels set on the current engine, in order.
        self.logger_levels: list[tuple[str, str]] = []
        #: The arguments of calls to plugins.
        self.altered_offsets: list[list[CommittedOffset]] = []
        #: What the output of every sink shows.
        self.traced_offsets: list[CommittedOffset] = []
        self.untraced: list[TopicPartition] = []
        #: Classes missing from its list of plugins.
        self.lacking: set[str] = set()
        #: The versions of its classes, by class name; by default 1.
        self.versions: dict[str, str] = {}
        #: End offsets of topic partitions; None while unavailable.
        #: What failed to load.
        self.problems: list[pb.PluginProblem] = []
        self.end_offsets: dict[tuple[str, int], int] | None = {}
        self._configs: dict[str, Mapping[str, str]] = {}
        self._call_ids = itertools.count(1)
        self.start_count = 0

    async def start(self) -> None:
        self._come_up()

    def _come_up(self) -> None:
        self.start_count += 1
        self.process_id = self.start_count
        self.logger_levels = []
        started = pb.EngineReport(started=pb.EngineStarted())
        asyncio.get_running_loop().call_soon(self._on_report, started)
        ready = pb.EngineReady(spark_version="none", spark_master="none", process_id=1)
        asyncio.get_running_loop().call_soon(self._on_report, pb.EngineReport(ready=ready))

    def die(self, message: str = "killed by the test", at_work: Sequence[TaskId] = ()) -> None:
        """End the engine with all its runs; ``at_work`` may be the cause."""
        self.process_id = None
        self.running_connectors.clear()
        self.running_tasks.clear()
        self._on_exit(
            EngineExit(
                exit_code=137,
                message=message,
                stderr_tail="",
                lasting=False,
                requested=False,
                suspects=Suspects(tuple(at_work)),
            )
        )

    def come_back(self) -> None:
        """Restart after ``die``."""
        self._come_up()

    def _alter_offsets(self, command: pb.AlterOffsets) -> pb.EngineReport:
        """The plugin rejects partitions that contain "refuse"."""
        self.altered_offsets.append([decode_offset(each) for each in command.offsets])
        if any("refuse" in each.partition_json for each in command.offsets):
            return pb.EngineReport(failure=pb.Failure(message="the plugin refuses"))
        return pb.EngineReport(offsets_altered=pb.OffsetsAltered(complete=False))

    def _trace_offsets(self, command: pb.TraceOffsets) -> pb.EngineReport:
        offsets = [each for each in command.offsets if each.HasField("offset_json")]
        committed = {each.partition_json for each in offsets}
        traced = pb.TracedOffsets(
            offsets=[
                encode_offset(each)
                for each in self.traced_offsets
                if each.partition_json not in committed
            ],
            untraced_partitions=[
                pb.TopicPartition(topic=each.topic, partition=each.partition)
                for each in self.untraced
            ],
        )
        return pb.EngineReport(traced_offsets=traced)

    def _look_at_topics(self, command: pb.EngineCommand) -> pb.EngineReport:
        """As the real engine does."""
        storage = self.settings.storage()
        assert isinstance(storage, EmbeddedStorage)
        plane = EmbeddedPlane.open(storage.directory)
        try:
            match command.WhichOneof("command"):
                case "list_topics":
                    asked = command.list_topics
                    topics = list_topics(plane, asked.after, asked.count_max)
                    return pb.EngineReport(topics=topics)
                case "describe_topic":
                    topic = describe_topic(plane, command.describe_topic.topic)
                    return pb.EngineReport(topic=topic)
                case "produce_records":
                    produce = command.produce_records
                    written = produce_records(plane, produce, dict(produce.connector_config))
                    return pb.EngineReport(produced_records=written)
                case "check_dead_letters":
                    check = command.check_dead_letters
                    encoded_repairs(plane, _letter_format(check.config), check.repairs)
                    ranges = _selected(plane, check) if check.select_only else check.ranges
                    checked = pb.CheckedDeadLetters(ranges=ranges)
                    return pb.EngineReport(checked_dead_letters=checked)
                case "repair_dead_letters":
                    repair = command.repair_dead_letters
                    opened = offsets_of_ranges(parse_ranges(repair.open_ranges))
                    repaired = repair_letters(plane, _letter_format(repair.config), repair, opened)
                    return pb.EngineReport(repaired_dead_letters=repaired)
            wanted = command.read_topic
            records = read_topic(plane, wanted, dict(wanted.connector_config))
            return pb.EngineReport(topic_records=records)
        except DroverError as error:
            return answers.refused(0, error)
        finally:
            plane.store.close()

    async def close(self) -> None:
        self.process_id = None

    async def send(self, command: pb.EngineCommand) -> None:
        self.commit_results[command.call_id] = command.commit_result

    async def call(self, command: pb.EngineCommand, timeout_s: float) -> pb.EngineReport:
        await asyncio.sleep(0)
        if self.process_id is None:
            raise UnavailableError(Reason.ENGINE_UNAVAILABLE, "the engine is not running")
        match command.WhichOneof("command"):
            case "list_plugins":
                found = [each for each in _PLUGINS if each.class_name not in self.lacking]
                of_records = [
                    pb.RecordPlugin(
                        kind=kind,
                        class_name=name,
                        aliases=[name.rpartition(".")[2]],
                        version=self.versions.get(name, "1"),
                        config_keys=[_FIELD],
                    )
                    for kind, name in RECORD_PLUGINS
                    if name not in self.lacking
                ]
                plugins = pb.PluginList(
                    plugins=found, record_plugins=of_records, problems=self.problems
                )
                for each in plugins.plugins:
                    each.version = self.versions.get(each.class_name, "1")
                return pb.EngineReport(plugins=plugins)
            case "validate_config":
                config = dict(command.validate_config.config)
                if config.get("connector.class", "") in self.lacking:
                    return _no_plugin(config)
                return pb.EngineReport(validation=_validate(config))
            case "preview_connector":
                return _preview(command.preview_connector)
            case "check_dead_letters":
                return await asyncio.to_thread(self._look_at_topics, command)
            case "repair_dead_letters":
                return await asyncio.to_thread(self._look_at_topics, command)
            case "alter_offsets":
                return self._alter_offsets(command.alter_offsets)
            case "trace_offsets":
                return self._trace_offsets(command.trace_offsets)
            case "list_end_offsets":
                return self._list_end_offsets(command.list_end_offsets)
            case "list_topics" | "describe_topic" | "read_topic" | "produce_records":
                return await asyncio.to_thread(self._look_at_topics, command)
            case "start_connector":
                start = command.start_connector
                if self._plugin(start.config) is None:
                    return _no_plugin(start.config)
                self.running_connectors[start.connector] = start.run_id
                self._configs[start.connector] = dict(start.config)
            case "stop_connector":
                self.running_connectors.pop(command.stop_connector.connector, None)
            case "generate_task_configs":
                return self._generate(command.generate_task_configs)
            case "start_task":
                return self._start_task(command.start_task)
            case "stop_task":
                task = _task_id(command.stop_task.task.connector, command.stop_task.task.task)
                self.running_tasks.pop(task, None)
            case "set_paused":
                task = _task_id(command.set_paused.connector, command.set_paused.task)
                self.paused[task] = command.set_paused.paused
            case "list_loggers":
                return pb.EngineReport(loggers=pb.LoggerList(loggers=[LOGGER]))
            case "set_logger_levels":
                levels = command.set_logger_levels.levels
                self.logger_levels += [(each.name, each.level) for each in levels]
                return pb.EngineReport(loggers=pb.LoggerList(loggers=[LOGGER]))
        return pb.EngineReport(done=pb.Done())

    def _list_end_offsets(self, command: pb.ListEndOffsets) -> pb.EngineReport:
        if self.end_offsets is None:
            return pb.EngineReport(failure=pb.Failure(message="topics cannot be read"))
        found = pb.EndOffsetList()
        for each in command.partitions:
            if (each.topic, each.partition) in self.end_offsets:
                end_offset = self.end_offsets[each.topic, each.partition]
                found.entries.add(partition=each, end_offset=end_offset)
        return pb.EngineReport(end_offsets=found)

    def _plugin(self, config: Mapping[str, str]) -> pb.Plugin | None:
        return None if config.get("connector.class") in self.lacking else _plugin(config)

    def _generate(self, command: pb.GenerateTaskConfigs) -> pb.EngineReport:
        config = self._configs[command.connector]
        count = int(config.get("tasks", command.max_tasks))
        padding = {"padding": "x" * int(config["padding"])} if "padding" in config else {}
        made = pb.TaskConfigList(
            task_configs=[
                pb.TaskConfigList.TaskConfig(config={"part": str(index), **padding})
                for index in range(count)
            ]
        )
        return pb.EngineReport(task_configs=made)

    def _start_task(self, start: pb.StartTask) -> pb.EngineReport:
        if self._plugin(start.connector_config) is None:
            return _no_plugin(start.connector_config)
        trace = start.connector_config.get("fail.start")
        if trace:
            return pb.EngineReport(failure=pb.Failure(message="start() raised", trace=trace))
        task = _task_id(start.task.connector, start.task.task)
        assert task not in self.running_tasks, f"{task} runs twice in one engine"
        self.running_tasks[task] = start.run_id
        self.started[task] = start
        self.paused[task] = start.paused
        return pb.EngineReport(done=pb.Done())

    def find_own_cluster(self, cluster_id: str) -> None:
        """Report the id of the Kafka cluster with Drover's topics."""
        found = pb.OwnClusterFound(cluster_id=cluster_id)
        self._on_report(pb.EngineReport(own_cluster_found=found))

    # Reports of plugins

    def fail_task(self, task: TaskId, trace: str) -> None:
        report = pb.TaskFailed(run_id=self.running_tasks[task], trace=trace)
        report.task.connector, report.task.task = task.connector, task.task
        self._on_report(pb.EngineReport(task_failed=report))

    def use_topics(self, task: TaskId, *topics: str) -> None:
        """Report that records of topics were moved."""
        self._progress(task, pb.TaskProgress.Entry(topics=topics))

    def count(self, task: TaskId, counts: RecordCounts, **figures: int) -> None:
        """Report a task's record counts, and its connector's figures."""
        self._progress(
            task,
            pb.TaskProgress.Entry(counts=encode_counts(counts), figures=encode_figures(figures)),
        )

    def act(self, task: TaskId, activity: TaskActivity, read_count: int = 0) -> None:
        """Report what a task does, and how many records it has read."""
        counts = RecordCounts(read_count=read_count)
        entry = pb.TaskProgress.Entry(activity=activity, counts=encode_counts(counts))
        self._progress(task, entry)

    def _progress(self, task: TaskId, entry: pb.TaskProgress.Entry) -> None:
        entry.run_id = self.running_tasks[task]
        entry.task.connector, entry.task.task = task.connector, task.task
        self._on_report(pb.EngineReport(task_progress=pb.TaskProgress(entries=[entry])))

    def commit(self, task: TaskId, partition_json: str, offset_json: str) -> int:
        """Request a commit; returns the call id of its result."""
        call_id = next(self._call_ids)
        report = pb.EngineReport(call_id=call_id)
        report.commit_offsets.task.connector = task.connector
        report.commit_offsets.task.task = task.task
        report.commit_offsets.claim.CopyFrom(self.started[task].claim)
        report.commit_offsets.offsets.add(partition_json=partition_json, offset_json=offset_json)
        self._on_report(report)
        return call_id


def _task_id(connector: str, task: int) -> TaskId:
    return TaskId(connector, task)


_KEYS = [
    pb.ConfigKey(name="name", type="STRING", required=True),
    pb.ConfigKey(name="connector.class", type="STRING", required=True),
    pb.ConfigKey(name="tasks.max", type="INT", default_value="1"),
    pb.ConfigKey(name="tasks", type="INT"),
    pb.ConfigKey(name="padding", type="INT"),
    pb.ConfigKey(name="fail.start", type="STRING"),
    *(pb.ConfigKey(name=each.name) for each in (*RESTART_SETTINGS, *ENGINE_SETTINGS)),
    pb.ConfigKey(name="topic", type="STRING"),
    pb.ConfigKey(name="topics", type="LIST"),
    pb.ConfigKey(name="value.converter", type="CLASS"),
    pb.ConfigKey(name=DEAD_LETTER_TOPIC, type="STRING"),
    pb.ConfigKey(name=REPLAY, type="STRING"),
    pb.ConfigKey(name=REPLAY_WHERE, type="STRING"),
    pb.ConfigKey(name=REPLAY_ID, type="STRING"),
    pb.ConfigKey(name=REPLAY_FORCE, type="BOOLEAN"),
    pb.ConfigKey(name="db.login", type="PASSWORD"),
    pb.ConfigKey(name="db.token", type="PASSWORD"),
]
for _key in _KEYS:
    _key.type, _key.importance = _key.type or "STRING", "MEDIUM"
_FIELD = pb.ConfigKey(name="field", type="STRING", importance="HIGH")
#: Kinds and classes.
RECORD_PLUGINS = [
    ("converter", "tests.Converter"),
    ("transforms", "tests.Transform"),
    ("predicates", "tests.Predicate"),
]
_PLUGINS = [
    pb.Plugin(class_name=SOURCE, aliases=["IdleSource"], type="source", config_keys=_KEYS),
    pb.Plugin(
        class_name=SINK,
        aliases=["IdleSink"],
        type="sink",
        config_keys=_KEYS,
        guarantee_embedded="exactly once",
        guarantee_kafka="at least once",
    ),
]
_UNLISTED = pb.Plugin(class_name=UNLISTED, type="source", config_keys=_KEYS)


def _plugin(config: Mapping[str, str]) -> pb.Plugin | None:
    found = {name: p for p in [*_PLUGINS, _UNLISTED] for name in (p.class_name, *p.aliases)}
    return found.get(config.get("connector.class", ""))


def _no_plugin(config: Mapping[str, str]) -> pb.EngineReport:
    message = f"no connector class {config.get('connector.class', '')!r} is installed"
    return pb.EngineReport(failure=pb.Failure(message=message, plugin_not_found=True))


def _letter_format(config: Mapping[str, str]) -> LetterFormat:
    """Keys are text, and values JSON with schemas."""
    text, json = with_defaults(StringConverter, is_key=True), with_defaults(JsonConverter)
    return LetterFormat(config[DEAD_LETTER_TOPIC], text, json)


def _preview(command: pb.PreviewConnector) -> pb.EngineReport:
    """As many rows as are asked for; the topic says of what size and schema, or that there are
    none.
    """
    topic = command.config.get(REPLAY if command.dead_letters else "topic", "")
    if topic == "refused":
        return pb.EngineReport(failure=pb.Failure(message="reading has effects"))
    if command.repairs:
        rows = [
            PreviewedRow(place="repaired", records=[PreviewedRecord(value=each.value)])
            for each in command.repairs
        ]
        return pb.EngineReport(preview=Preview(steps=["read"], rows=rows))
    text = "x" * (16 * 1024 if topic == "large" else 1)
    rows = [
        PreviewedRow(place=f"{command.config['name']}:{n}", records=[PreviewedRecord(value=text)])
        for n in range(command.row_count)
    ]
    schemas = [StepSchemas(step="read", values=[f"struct<{topic}: string>"])]
    return pb.EngineReport(preview=Preview(steps=["read"], rows=rows, schemas=schemas))


def _selected(plane: EmbeddedPlane, check: pb.CheckDeadLetters) -> str:
    """The ranges of the dead letters that meet the conditions."""
    query = RecordQuery(topic=check.config[DEAD_LETTER_TOPIC], conditions=check.conditions)
    found = read_topic(plane, pb.ReadTopic(query=query, record_count_max=1_000), {}).records
    matching = [(each.partition, each.offset, each.offset + 1) for each in found]
    wanted = offsets_of_ranges(parse_ranges(check.ranges))
    chosen = within(wanted, offsets_of_ranges([ReplayRange(*each) for each in matching]))
    return ranges_text(ranges_of(chosen))


def _validate(config: dict[str, str]) -> pb.ConfigValidation:
    plugin = _plugin(config)
    values = []
    for key in _KEYS:
        value = pb.ConfigValue(key=key, visible=True)
        if key.name in config:
            value.value = config[key.name]
        if key.name == "connector.class" and plugin is None:
            value.errors.append("no such plugin is installed")
        number = config.get("tasks.max", "1")
        if key.name == "tasks.max" and not (number.isdecimal() and int(number) > 0):
            value.errors.append("must be a number above 0")
        values.append(value)
    known = {key.name for key in _KEYS}
    values += [
        pb.ConfigValue(
            key=pb.ConfigKey(name=key_name, type="STRING", importance="LOW", group="Unknown"),
            errors=["is not a known setting"],
        )
        for key_name in config
        if key_name not in known
    ]
    return pb.ConfigValidation(
        values=values,
        connector_type=plugin.type if plugin else "",
        components=[f"connector.class {config.get('connector.class')} 1"],
    )
