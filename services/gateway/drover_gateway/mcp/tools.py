"""The tools. Each has the rights of its caller; none takes a path or a URL."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import ToolManager
from mcp.types import ToolAnnotations
from pydantic import Field

from drover.api.common.v1 import failures_pb2
from drover.api.common.v1.preview_pb2 import PreviewedRow
from drover.api.common.v1.topics_pb2 import RecordQuery, TopicRecord
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client import ConnectClient
from drover.errors import InvalidArgumentError, Reason
from drover.model.dead_letters import DEAD_LETTER_TOPIC
from drover_gateway.mcp import results
from drover_gateway.mcp.actions import (
    Action,
    Actions,
    Conditions,
    Config,
    ConnectorName,
    refuse_literal_secrets,
)
from drover_gateway.mcp.plans import PlanSeal
from drover_gateway.mcp.results import cut, fitting

PAGE_SIZE = 100
_RECORDS_MAX = 20
#: Dead letters whose causes an explanation counts.
_LETTERS_COUNTED = 100
_CAUSE_HEADER = "__connect.errors.exception.class.name"
_RECENT_CHANGES = 5
_RECORD_PART_BYTES = 2 * 1024

NamePart = Annotated[
    str, Field(max_length=250, description="Only names that contain this text; empty for all.")
]
TopicName = Annotated[str, Field(min_length=1, max_length=249, description="The topic's name.")]
LastCount = Annotated[
    int, Field(ge=1, le=_RECORDS_MAX, description="How many of the last records.")
]
_READ = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True)
_WRITE = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True)


@dataclass(frozen=True, slots=True)
class CallerAccess:
    """The rights of a caller.

    Attributes:
        client: Calls workers with the caller's credential.
        identity: Identifies the caller, for the hashes of plans.
    """

    client: ConnectClient
    identity: str


#: Finds the rights of the caller of a request.
FindAccess = Callable[[Context[Any, Any]], CallerAccess]


class Tools:
    """The tools of one server.

    Args:
        access: Finds the rights of a caller.
        seal: Seals plans.
    """

    def __init__(self, access: FindAccess, seal: PlanSeal) -> None:
        self._access = access
        self._actions = Actions(seal)

    def manager(self, *, with_writes: bool) -> ToolManager:
        """The tools as the protocol lists them; ``apply`` only ``with_writes``."""
        manager = ToolManager()
        for read in (
            self.list_connectors,
            self.get_connector,
            self.connector_status,
            self.connector_history,
            self.explain_failure,
            self.list_plugins,
            self.describe_plugin,
            self.validate_config,
            self.preview,
            self.plan,
            self.list_topics,
            self.read_topic,
            self.list_dead_letters,
            self.cluster_info,
        ):
            manager.add_tool(read, annotations=_READ)
        if with_writes:
            manager.add_tool(self.apply, annotations=_WRITE)
        return manager

    async def list_connectors(
        self,
        ctx: Context[Any, Any],
        state: Annotated[
            Literal["", "RUNNING", "FAILED", "PAUSED", "STOPPED", "RESTARTING", "UNASSIGNED"],
            Field(description="Only connectors that have, or whose task has, this state."),
        ] = "",
        type: Annotated[
            Literal["", "source", "sink"], Field(description="Only sources, or only sinks.")
        ] = "",
        name_contains: NamePart = "",
        page: Annotated[int, Field(ge=1, le=100_000)] = 1,
    ) -> results.ConnectorList:
        """List connectors with their states and the states of their tasks, by name."""
        client = self._access(ctx).client
        entries = await client.list_connectors(include_status=True)
        found = [
            each
            for each in map(_line, entries)
            if name_contains in each.name
            and type in ("", each.type)
            and (not state or state == each.state or state in each.task_states)
        ]
        start = (page - 1) * PAGE_SIZE
        shown, _ = fitting(found[start : start + PAGE_SIZE])
        more = start + len(shown) < len(found)
        return results.ConnectorList(
            connectors=shown, total_count=len(found), next_page=page + 1 if more else None
        )

    async def get_connector(
        self, ctx: Context[Any, Any], name: ConnectorName
    ) -> results.ConnectorDetails:
        """Show a connector's config. Secrets are masked; a mask cannot be written back."""
        found = await self._access(ctx).client.get_connector(name)
        settings, omitted = fitting(
            results.Setting(name=cut(key, 500), untrusted_value=cut(value))
            for key, value in sorted(found.config.items())
        )
        return results.ConnectorDetails(
            name=found.name,
            type=_type(found.type),
            target_state=pb.TargetState.Name(found.target_state).removeprefix("TARGET_STATE_"),
            revision=found.revision,
            task_indexes=list(found.task_indexes)[:1_000],
            config=settings,
            omitted_count=omitted,
        )

    async def connector_status(self, ctx: Context[Any, Any], name: ConnectorName) -> results.Status:
        """Show the states of a connector and its tasks, with traces, counts, offsets and lag."""
        client = self._access(ctx).client
        status = await client.get_connector_status(name)
        offsets = await client.get_connector_offsets(name)
        instances, omitted = fitting(_instances(status), max_bytes=results.LISTS_MAX_BYTES // 2)
        shown, omitted_offsets = fitting(
            map(_offset, offsets), max_bytes=results.LISTS_MAX_BYTES // 2
        )
        return results.Status(
            name=status.name,
            type=_type(status.type),
            instances=instances,
            offsets=shown,
            omitted_count=omitted + omitted_offsets,
        )

    async def connector_history(
        self, ctx: Context[Any, Any], name: ConnectorName
    ) -> results.History:
        """Show who changed a connector, when and what, newest first."""
        found = await self._access(ctx).client.get_connector_history(name)
        changes, omitted = fitting(map(_change, found))
        return results.History(name=name, changes=changes, omitted_count=omitted)

    async def explain_failure(
        self, ctx: Context[Any, Any], name: ConnectorName
    ) -> results.Explanation:
        """Collect what is known about a failure: states, the last failures, causes of dead letters,
        and the last changes of the config.
        """
        client = self._access(ctx).client
        status = await client.get_connector_status(name)
        connector = await client.get_connector(name)
        history = await client.get_connector_history(name)
        topic = connector.config.get(DEAD_LETTER_TOPIC, "")
        letters = await _records(client, topic, [], _LETTERS_COUNTED, name) if topic else []
        failures = sorted(_failures(status), key=lambda each: each.time, reverse=True)
        quarter = results.LISTS_MAX_BYTES // 4
        instances, omitted = fitting(_instances(status), max_bytes=2 * quarter)
        shown, more = fitting(failures, max_bytes=quarter)
        counted = Counter(map(_cause, letters)).most_common(10)
        return results.Explanation(
            name=name,
            summary=list(_summary(status, failures, topic, letters)),
            instances=instances,
            failures=shown,
            dead_letter_causes=[
                results.CauseCount(untrusted_cause=cut(cause, 300), count=count)
                for cause, count in counted
            ],
            recent_changes=[_change(each) for each in history[:_RECENT_CHANGES]],
            omitted_count=omitted + more,
        )

    async def list_plugins(
        self,
        ctx: Context[Any, Any],
        kind: Annotated[
            Literal["", "source", "sink", "converter", "transform", "predicate"],
            Field(description="Only this kind; empty for all."),
        ] = "",
    ) -> results.PluginList:
        """List the installed connectors, converters, transforms and predicates."""
        found = await self._access(ctx).client.list_plugins()
        lines = [*map(_plugin, found.plugins), *map(_record_plugin, found.record_plugins)]
        shown, omitted = fitting(each for each in lines if kind in ("", each.kind))
        return results.PluginList(plugins=shown, omitted_count=omitted)

    async def describe_plugin(
        self,
        ctx: Context[Any, Any],
        class_name: Annotated[
            str,
            Field(min_length=1, max_length=500, description="A connector's class, or its alias."),
        ],
    ) -> results.PluginDetails:
        """Show a connector class with its settings."""
        found = await self._access(ctx).client.get_plugin(class_name)
        settings, omitted = fitting(
            results.SettingDefinition(
                name=each.name,
                type=each.type,
                required=each.required,
                default=cut(each.default_value, 300) if each.HasField("default_value") else None,
                documentation=cut(each.documentation, 500),
                valid_values=[cut(value, 100) for value in each.valid_values[:20]],
            )
            for each in found.config_keys
        )
        plugin = found.plugin
        return results.PluginDetails(
            class_name=plugin.class_name,
            aliases=list(plugin.aliases)[:20],
            kind=_type(plugin.type),
            version=plugin.version,
            description=cut(plugin.description, 1_000),
            settings=settings,
            omitted_count=omitted,
        )

    async def validate_config(self, ctx: Context[Any, Any], config: Config) -> results.ConfigCheck:
        """Validate a config, with its connector.class, without creating anything."""
        client = self._access(ctx).client
        await refuse_literal_secrets(client, config)
        found = await client.validate_config(config)
        third = results.LISTS_MAX_BYTES // 3
        faults, omitted = fitting(map(_fault, found.violations), max_bytes=third)
        warnings, more_warnings = fitting(map(_fault, found.warnings), max_bytes=third)
        skipped, more_skipped = fitting(
            (
                results.Fault(setting=each.setting, untrusted_text=cut(each.reason, 1_000))
                for each in found.skipped_checks
            ),
            max_bytes=third,
        )
        return results.ConfigCheck(
            error_count=found.error_count,
            faults=faults,
            warnings=warnings,
            not_checked=skipped,
            omitted_count=omitted + more_warnings + more_skipped,
        )

    async def preview(
        self,
        ctx: Context[Any, Any],
        config: Config,
        rows: Annotated[int, Field(ge=1, le=_RECORDS_MAX)] = 5,
    ) -> results.Preview:
        """Show a few records as read and after each step of a config; writes nothing. Needs the
        role ADMIN.
        """
        client = self._access(ctx).client
        await refuse_literal_secrets(client, config)
        found = await client.preview_connector(config, row_count=rows)
        shown, omitted = fitting(map(_previewed, found.rows))
        return results.Preview(
            steps=list(found.steps)[:100],
            rows=shown,
            untrusted_notes=[cut(each, 500) for each in found.notes[:20]],
            omitted_count=omitted,
        )

    async def plan(self, ctx: Context[Any, Any], action: Action) -> results.Plan:
        """Show what an action would change, and the hash with which ``apply`` does exactly this.
        Writes nothing. Show the changes to the user before they are applied.
        """
        access = self._access(ctx)
        return await self._actions.plan(access.client, access.identity, action)

    async def apply(
        self,
        ctx: Context[Any, Any],
        action: Action,
        plan_hash: Annotated[
            str, Field(min_length=1, max_length=200, description="From plan, of this action.")
        ],
    ) -> results.Applied:
        """Carry out an action that ``plan`` has shown; refused if anything has changed since."""
        access = self._access(ctx)
        return await self._actions.apply(access.client, access.identity, action, plan_hash)

    async def list_topics(
        self, ctx: Context[Any, Any], name_contains: NamePart = ""
    ) -> results.TopicList:
        """List the topics that connectors may use."""
        found = await self._access(ctx).client.list_topics()
        shown, omitted = fitting(
            results.TopicLine(name=each.name, partition_count=each.partition_count)
            for each in found
            if name_contains in each.name
        )
        return results.TopicList(topics=shown, omitted_count=omitted)

    async def read_topic(
        self,
        ctx: Context[Any, Any],
        topic: TopicName,
        conditions: Conditions = [],  # noqa: B006 - a default of the protocol, never changed
        last: LastCount = 5,
    ) -> results.RecordList:
        """Read the last records of a topic that meet the conditions. Needs the role OPERATOR."""
        found = await _records(self._access(ctx).client, topic, conditions, last)
        return _record_list(topic, found)

    async def list_dead_letters(
        self,
        ctx: Context[Any, Any],
        name: ConnectorName,
        cause: Annotated[
            str,
            Field(
                max_length=500,
                description="A regular expression (RE2) for the whole class of the exception.",
            ),
        ] = "",
        last: LastCount = 5,
    ) -> results.RecordList:
        """List the last dead letters of a connector; their causes are in their headers."""
        client = self._access(ctx).client
        connector = await client.get_connector(name)
        topic = connector.config.get(DEAD_LETTER_TOPIC, "")
        if not topic:
            raise InvalidArgumentError(
                Reason.INVALID_REQUEST,
                f"{name} has no dead letter queue: {DEAD_LETTER_TOPIC} is not set",
            )
        conditions = [f"headers.{_CAUSE_HEADER}~{cause}"] if cause else []
        return _record_list(topic, await _records(client, topic, conditions, last, name))

    async def cluster_info(self, ctx: Context[Any, Any]) -> results.ClusterDetails:
        """Show the workers of the cluster, their health and how much work they have."""
        found = await self._access(ctx).client.get_cluster_info()
        workers, omitted = fitting(
            results.WorkerLine(
                worker_id=each.worker_id,
                leader=each.leader,
                state=pb.WorkerState.Name(each.state).removeprefix("WORKER_STATE_"),
                health=pb.WorkerHealth.Name(each.health).removeprefix("WORKER_HEALTH_"),
                connector_count=len(each.connectors),
                task_count=len(each.tasks),
            )
            for each in found.workers
        )
        return results.ClusterDetails(
            version=found.version,
            group_id=found.group_id,
            generation=found.generation,
            stage=found.stage,
            workers=workers,
            omitted_count=omitted,
        )


async def _records(
    client: ConnectClient, topic: str, conditions: Sequence[str], last: int, connector: str = ""
) -> list[TopicRecord]:
    request = pb.WatchTopicRequest(
        query=RecordQuery(topic=topic, conditions=conditions),
        connector=connector,
        last_count=last,
    )
    found: list[TopicRecord] = []
    async with aclosing(client.watch_topic(request)) as stream:
        async for response in stream:
            found += response.records
            if len(found) >= last:
                break
    return found[:last]


def _record_list(topic: str, found: Iterable[TopicRecord]) -> results.RecordList:
    records, omitted = fitting(map(_record, found))
    return results.RecordList(topic=topic, records=records, omitted_count=omitted)


def _record(each: TopicRecord) -> results.Record:
    time = each.record_time.ToJsonString() if each.HasField("record_time") else ""
    return results.Record(
        partition=each.partition,
        offset=each.offset,
        time=time,
        untrusted_key=cut(each.key) if each.HasField("key") else None,
        untrusted_value=cut(each.value) if each.HasField("value") else None,
        untrusted_headers=[
            cut(f"{header.key}: {header.value}", 500) for header in each.headers[:40]
        ],
        untrusted_error=cut(each.error, 1_000),
    )


def _line(entry: pb.ListConnectorsResponse.Entry) -> results.ConnectorLine:
    status = entry.status
    states = Counter(_state(each.state) for each in status.tasks)
    return results.ConnectorLine(
        name=entry.name,
        type=_type(status.type),
        state=_state(status.connector.state),
        task_states=dict(states),
    )


def _instances(status: pb.ConnectorStatus) -> Iterator[results.InstanceState]:
    yield _instance("connector", status.connector)
    # failed tasks first: later ones may be omitted
    ordered = sorted(status.tasks, key=lambda each: each.state != pb.RUN_STATE_FAILED)
    for each in ordered:
        yield _instance(f"task {each.task}", each)


def _instance(what: str, each: pb.ConnectorState | pb.TaskState) -> results.InstanceState:
    counts = each.counts if isinstance(each, pb.TaskState) and each.HasField("counts") else None
    return results.InstanceState(
        what=what,
        state=_state(each.state),
        worker_id=each.worker_id,
        records_read=counts.read_count if counts else None,
        records_written=counts.written_count if counts else None,
        failure_count=each.failures.failure_count,
        no_restart_reason=cut(each.failures.no_restart_reason, 300),
        untrusted_trace=cut(each.trace),
    )


def _failures(status: pb.ConnectorStatus) -> Iterator[results.FailureLine]:
    named: list[tuple[str, pb.ConnectorState | pb.TaskState]] = [("connector", status.connector)]
    named += [(f"task {each.task}", each) for each in status.tasks]
    for what, instance in named:
        for each in instance.failures.failures:
            cause = failures_pb2.FailureCause.Name(each.cause)
            yield results.FailureLine(
                what=what,
                time=each.fail_time.ToJsonString(),
                cause=cause.removeprefix("FAILURE_CAUSE_"),
                worker_id=each.worker_id,
                untrusted_message=cut(each.message, 300),
            )


def _summary(
    status: pb.ConnectorStatus,
    failures: Sequence[results.FailureLine],
    topic: str,
    letters: Sequence[TopicRecord],
) -> Iterator[str]:
    states = Counter(_state(each.state) for each in status.tasks)
    shown = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    yield f"the connector is {_state(status.connector.state)}; tasks: {shown or 'none'}"
    if failures:
        yield f"the last of the recorded failures was at {failures[0].time} ({failures[0].cause})"
    else:
        yield "no failure is recorded since the config was written or restarted by a user"
    if topic:
        yield f"{len(letters)} of the last dead letters in {topic} were read"
    else:
        yield "it has no dead letter queue"


def _cause(letter: TopicRecord) -> str:
    return next((each.value for each in letter.headers if each.key == _CAUSE_HEADER), "unknown")


def _offset(each: pb.ConnectorOffset) -> results.Offset:
    return results.Offset(
        untrusted_partition=cut(each.partition_json, 1_000),
        untrusted_offset=cut(each.offset_json, 1_000),
        lag=each.lag if each.HasField("end_offset") else None,
    )


def _change(each: pb.ConnectorChange) -> results.Change:
    return results.Change(
        revision=each.revision,
        time=each.change_time.ToJsonString() if each.HasField("change_time") else "",
        author=cut(each.author, 200),
        what=cut(_what(each), 1_000),
    )


def _what(each: pb.ConnectorChange) -> str:
    match each.WhichOneof("change"):
        case "config_version":
            version = each.config_version
            parts = [
                f"{verb} {results.words(list(keys))}"
                for verb, keys in (
                    ("added", version.added_keys),
                    ("changed", version.changed_keys),
                    ("removed", version.removed_keys),
                )
                if keys
            ]
            return f"config: {'; '.join(parts) or 'unchanged'}"
        case "deletion":
            return "deleted"
        case "target_state":
            state = pb.TargetState.Name(each.target_state).removeprefix("TARGET_STATE_")
            return f"target state {state}"
        case "restart":
            return "restart requested"
        case "dead_letters":
            verb = "discarded" if each.dead_letters.discarded else "replayed"
            return f"dead letters {verb}: {each.dead_letters.ranges}"
    return "unknown"


def _plugin(each: pb.Plugin) -> results.PluginLine:
    return results.PluginLine(
        class_name=each.class_name,
        kind=_type(each.type),
        version=each.version,
        description=cut(each.description, 300),
    )


def _record_plugin(each: pb.RecordPlugin) -> results.PluginLine:
    return results.PluginLine(
        class_name=each.class_name,
        kind=each.kind.removesuffix("s"),
        version=each.version,
        description="",
    )


def _fault(each: pb.ConfigViolation) -> results.Fault:
    return results.Fault(setting=cut(each.field, 500), untrusted_text=cut(each.description, 1_000))


def _previewed(row: PreviewedRow) -> results.PreviewRow:
    return results.PreviewRow(
        untrusted_place=cut(row.place, 500),
        untrusted_records=[
            cut(
                f"topic {each.topic}, key {each.key if each.HasField('key') else 'null'}, value "
                f"{each.value if each.HasField('value') else 'null'}",
                _RECORD_PART_BYTES,
            )
            for each in row.records
        ],
        failed_step=row.failed_step,
        untrusted_error=cut(row.error, 1_000),
        dropped_by=row.dropped_by,
    )


def _state(state: "pb.RunState.ValueType") -> str:
    return pb.RunState.Name(state).removeprefix("RUN_STATE_")


def _type(kind: "pb.ConnectorType.ValueType") -> str:
    name = pb.ConnectorType.Name(kind).removeprefix("CONNECTOR_TYPE_").lower()
    return "unknown" if name == "unspecified" else name
