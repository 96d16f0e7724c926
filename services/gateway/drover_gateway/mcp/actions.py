"""The writes: each is planned first, and applied with the plan's hash."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client import ConnectClient
from drover.config.config_def import UNDEFINED_GROUP
from drover.config.resolution import placeholder_providers
from drover.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    Reason,
    Violation,
)
from drover.model.secrets import sounds_secret
from drover_gateway.mcp.plans import PlanSeal, digest
from drover_gateway.mcp.results import (
    LISTS_MAX_BYTES,
    Applied,
    Plan,
    cut,
    fitting_texts,
    words,
)

ConnectorName = Annotated[
    str, Field(min_length=1, max_length=1_000, description="The connector's name.")
]
_SettingName = Annotated[str, Field(min_length=1, max_length=500)]
_SettingValue = Annotated[str, Field(max_length=64 * 1024)]
Config = Annotated[
    dict[_SettingName, _SettingValue],
    Field(
        max_length=1_000,
        description="All settings by name. Secrets as placeholders, such as "
        "${file:/run/secrets/db.properties:password}; never in clear.",
    ),
]
Conditions = Annotated[
    list[Annotated[str, Field(max_length=1_000)]],
    Field(
        max_length=20,
        description="Conditions that a record has to meet, all of them, such as value.id>=100 or "
        "headers.h=x.",
    ),
]

#: The arguments of each kind of action.
_ARGUMENTS: Mapping[str, frozenset[str]] = {
    "put": frozenset({"config"}),
    "patch": frozenset({"settings", "remove"}),
    "delete": frozenset(),
    "pause": frozenset(),
    "resume": frozenset(),
    "stop": frozenset(),
    "restart": frozenset({"include_tasks", "only_failed"}),
    "alter_offsets": frozenset({"offsets"}),
    "reset_offsets": frozenset(),
    "replay": frozenset({"partitions", "start_offset", "end_offset", "conditions", "force"}),
}


class OffsetChange(BaseModel):
    """A committed offset to write, in the form of ``connector_status``; null removes it."""

    model_config = ConfigDict(extra="forbid")

    partition: dict[str, Any]
    offset: dict[str, Any] | None


class Action(BaseModel):
    """One change of one connector. Only the arguments of its kind may be given."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal[
        "put",
        "patch",
        "delete",
        "pause",
        "resume",
        "stop",
        "restart",
        "alter_offsets",
        "reset_offsets",
        "replay",
    ] = Field(
        description="put: create, or replace the config. patch: change some settings. delete. "
        "pause, resume, stop: the target state. restart. alter_offsets, reset_offsets: of a "
        "stopped connector. replay: dead letters."
    )
    name: ConnectorName
    config: Config = Field(default_factory=dict)
    settings: Config = Field(default_factory=dict)
    remove: list[_SettingName] = Field(
        default_factory=list, max_length=1_000, description="For patch: settings to remove."
    )
    include_tasks: bool = Field(default=False, description="For restart: the tasks too.")
    only_failed: bool = Field(default=False, description="For restart: only what has failed.")
    offsets: list[OffsetChange] = Field(default_factory=list, max_length=1_000)
    partitions: list[int] = Field(
        default_factory=list, max_length=1_000, description="For replay: only these partitions."
    )
    start_offset: int = Field(default=0, ge=0, description="For replay: the first offset.")
    end_offset: int | None = Field(default=None, ge=1, description="For replay: exclusive.")
    conditions: Conditions = Field(default_factory=list)
    force: bool = Field(
        default=False, description="For replay: also if newer data would be overwritten."
    )

    @model_validator(mode="after")
    def _has_its_arguments(self) -> Self:
        own = {"kind", "name", *_ARGUMENTS[self.kind]}
        foreign = sorted(self.model_fields_set - own)
        if foreign:
            raise ValueError(f"{', '.join(foreign)}: no argument of {self.kind}")
        if self.kind == "put" and not self.config:
            raise ValueError("put needs config")
        if self.kind == "patch" and not (self.settings or self.remove):
            raise ValueError("patch needs settings or remove")
        if self.kind == "alter_offsets" and not self.offsets:
            raise ValueError("alter_offsets needs offsets")
        return self

    def arguments(self) -> dict[str, Any]:
        """The kind, the name and the arguments, for the plan's hash."""
        own = {"kind", "name", *_ARGUMENTS[self.kind]}
        return self.model_dump(mode="json", include=own)


@dataclass(frozen=True, slots=True)
class _Planned:
    """A plan, and the state that it was made from.

    Attributes:
        changes: What changes, without values.
        state: A digest of the state.
        details: The changed values, which come from configs and data.
        notes: What the user should know, in this server's words.
        worker_notes: The notes of the worker, which may have text of data.
        config_plan_hash: The worker's hash of the plan of a config.
    """

    changes: list[str]
    state: str
    details: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    worker_notes: list[str] = field(default_factory=list)
    config_plan_hash: str = ""


class Actions:
    """Plans and applies actions with the rights of a client."""

    def __init__(self, seal: PlanSeal) -> None:
        self._seal = seal

    async def plan(self, client: ConnectClient, caller: str, action: Action) -> Plan:
        """What an action would change, and its hash.

        Raises:
            DroverError: The action is refused.
        """
        planned = await self._planned(client, action)
        quarter = LISTS_MAX_BYTES // 4
        changes, more_changes = fitting_texts(planned.changes, max_bytes=quarter)
        details, more_details = fitting_texts(planned.details, max_bytes=2 * quarter)
        notes, more_notes = fitting_texts(planned.worker_notes, max_bytes=quarter)
        return Plan(
            action=action.kind,
            name=action.name,
            changes=changes,
            notes=planned.notes,
            untrusted_details=details,
            untrusted_notes=notes,
            omitted_count=more_changes + more_details + more_notes,
            plan_hash=self._seal.hash_of(caller, action.arguments(), planned.state),
        )

    async def apply(
        self, client: ConnectClient, caller: str, action: Action, plan_hash: str
    ) -> Applied:
        """Carry out an action that was planned by the same caller.

        Raises:
            FailedPreconditionError: PLAN_CHANGED: the hash belongs to another plan or is too
                old, or the state has changed.
            DroverError: The action is refused.
        """
        planned = await self._planned(client, action)
        if not self._seal.is_valid(plan_hash, caller, action.arguments(), planned.state):
            raise FailedPreconditionError(
                Reason.PLAN_CHANGED,
                "the plan's hash is not the one of this action now: the connector has changed, the "
                "plan is more than an hour old, or the hash was made for other arguments, by "
                "another caller or server. Nothing was written: plan again",
            )
        message = await self._carried_out(client, action, planned)
        return Applied(action=action.kind, name=action.name, message=cut(message, 1_000))

    async def _planned(self, client: ConnectClient, action: Action) -> _Planned:
        match action.kind:
            case "put":
                return await _planned_put(client, action)
            case "patch":
                return await _planned_patch(client, action)
            case "alter_offsets" | "reset_offsets":
                return await _planned_offsets(client, action)
            case "replay":
                return await _planned_replay(client, action)
            case _:
                return await _planned_state(client, action)

    @staticmethod
    async def _carried_out(client: ConnectClient, action: Action, planned: _Planned) -> str:
        name = action.name
        match action.kind:
            case "put":
                done = await client.put_connector_config(
                    name, action.config, plan_hash=planned.config_plan_hash
                )
                return "created" if done.created else "the config is written"
            case "patch":
                await client.patch_connector_config(
                    name, settings=action.settings, remove=action.remove
                )
                return "the config is written"
            case "delete":
                await client.delete_connector(name)
                return "deleted; its committed offsets stay"
            case "pause":
                await client.pause_connector(name)
            case "resume":
                await client.resume_connector(name)
            case "stop":
                await client.stop_connector(name)
            case "restart":
                await client.restart_connector(
                    name, include_tasks=action.include_tasks, only_failed=action.only_failed
                )
                return "the restart is requested"
            case "alter_offsets":
                return await client.alter_connector_offsets(name, _offsets(action))
            case "reset_offsets":
                return await client.reset_connector_offsets(name)
            case "replay":
                started = await client.replay_dead_letters(_replay(action, dry_run=False))
                return f"the replay of {_letters(started)} dead letters has started"
        return "the target state is written"


async def refuse_literal_secrets(client: ConnectClient, config: Mapping[str, str]) -> None:
    """Check that secrets are placeholders: an agent must not see or write them.

    Raises:
        InvalidArgumentError: INVALID_CONFIG: settings that are secrets have other values.
    """
    passwords: set[str] = set()
    declared: set[str] = set()
    if config.get("connector.class"):
        with suppress(NotFoundError):  # the call itself reports the missing class
            answer = await client.validate_config(config, skip_systems=True)
            keys = [each.key for each in answer.values if each.key.group != UNDEFINED_GROUP]
            declared = {each.name for each in keys}
            passwords = {each.name for each in keys if each.type == "PASSWORD"}
    found = [
        name
        for name, value in config.items()
        if value
        and not _is_placeholder(value)
        and (name in passwords or (name not in declared and sounds_secret(name)))
    ]
    if found:
        raise InvalidArgumentError.listing(
            [
                Violation(
                    f'config["{name}"]',
                    "is a secret: give a placeholder of a config provider, such as "
                    "${file:/run/secrets/x.properties:key}, and no value; to keep the present "
                    "value, leave the setting out of a patch",
                )
                for name in sorted(found)
            ],
            reason=Reason.INVALID_CONFIG,
        )


def _is_placeholder(value: str) -> bool:
    text = value.strip()
    return bool(placeholder_providers(text)) and text.startswith("${") and text.endswith("}")


async def _planned_put(client: ConnectClient, action: Action) -> _Planned:
    await refuse_literal_secrets(client, {"name": action.name, **action.config})
    found = await client.plan_connector_config(action.name, action.config)
    changes = ["creates the connector"] if found.created else []
    details = []
    for each in found.changes:
        before = each.before if each.HasField("before") else None
        after = each.after if each.HasField("after") else None
        changes.append(f"{'removes' if after is None else 'sets'} {each.name}")
        details.append(_difference(each.name, before, after))
    return _Planned(
        changes or ["nothing: the connector has this config"],
        digest("put", found.plan_hash),
        details,
        worker_notes=list(found.notes),
        config_plan_hash=found.plan_hash,
    )


async def _planned_patch(client: ConnectClient, action: Action) -> _Planned:
    present = await client.get_connector(action.name)
    class_name = present.config.get("connector.class", "")
    await refuse_literal_secrets(client, {"connector.class": class_name, **action.settings})
    changes = [f"sets {name}" for name in sorted(action.settings)]
    changes += [f"removes {name}" for name in action.remove]
    details = [
        _difference(name, present.config.get(name), value)
        for name, value in sorted(action.settings.items())
    ]
    details += [_difference(name, present.config.get(name), None) for name in action.remove]
    notes = ["the tasks restart with the new config"]
    return _Planned(changes, _state_of(present), details, notes)


def _difference(name: str, before: str | None, after: str | None) -> str:
    if after is None:
        return f"{name}: is not set" if before is None else f"{name}: removed, was {before}"
    return f"{name}: set to {after}" if before is None else f"{name}: {before} becomes {after}"


async def _planned_state(client: ConnectClient, action: Action) -> _Planned:
    present = await client.get_connector(action.name)
    now = _target(present)
    tasks = f"{len(present.task_indexes)} tasks"
    what = {
        "delete": f"deletes the connector with its {tasks}; committed offsets and topics stay",
        "pause": f"{now} becomes PAUSED: its {tasks} stay assigned and idle",
        "resume": f"{now} becomes STARTED",
        "stop": f"{now} becomes STOPPED: its {tasks} end; config and offsets stay",
        "restart": "restarts "
        + ("what has failed of " if action.only_failed else "")
        + (f"the connector and its {tasks}" if action.include_tasks else "the connector alone"),
    }[action.kind]
    return _Planned([what], _state_of(present))


async def _planned_offsets(client: ConnectClient, action: Action) -> _Planned:
    present = await client.get_connector(action.name)
    offsets = {
        each.partition_json: each.offset_json
        for each in await client.get_connector_offsets(action.name)
    }
    notes = [] if _target(present) == "STOPPED" else ["the connector has to be STOPPED first"]
    if action.kind == "reset_offsets":
        changes = [f"removes all {len(offsets)} committed offsets: it starts from the beginning"]
        details = [f"{partition}: removed, was {was}" for partition, was in offsets.items()]
    else:
        changes = [f"writes {len(action.offsets)} offsets; {len(offsets)} are committed now"]
        details = []
        for each in _offsets(action):
            was = offsets.get(each.partition_json, "not committed")
            then = each.offset_json if each.HasField("offset_json") else "removed"
            details.append(f"{each.partition_json}: {was} becomes {then}")
    return _Planned(changes, _state_of(present, sorted(offsets.items())), details, notes)


async def _planned_replay(client: ConnectClient, action: Action) -> _Planned:
    present = await client.get_connector(action.name)
    found = await client.replay_dead_letters(_replay(action, dry_run=True))
    ranges = [[each.partition, each.start_offset, each.end_offset] for each in found.ranges]
    shown = words([f"{partition}:{start}-{end}" for partition, start, end in ranges])
    changes = [f"replays {_letters(found)} dead letters of {found.topic} ({shown or 'none'})"]
    if found.skipped_count:
        changes.append(f"skips {found.skipped_count}, which stay open")
    state = _state_of(present, [found.topic, ranges])
    return _Planned(changes, state, worker_notes=list(found.notes))


def _state_of(present: pb.Connector, *more: Any) -> str:
    return digest(present.name, present.revision, _target(present), *more)


def _target(present: pb.Connector) -> str:
    return pb.TargetState.Name(present.target_state).removeprefix("TARGET_STATE_")


def _offsets(action: Action) -> list[pb.ConnectorOffset]:
    return [
        pb.ConnectorOffset(
            partition_json=_compact(each.partition),
            offset_json=None if each.offset is None else _compact(each.offset),
        )
        for each in action.offsets
    ]


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _replay(action: Action, *, dry_run: bool) -> pb.ReplayDeadLettersRequest:
    return pb.ReplayDeadLettersRequest(
        name=action.name,
        partitions=action.partitions,
        start_offset=action.start_offset,
        end_offset=action.end_offset,
        conditions=action.conditions,
        dry_run=dry_run,
        force=action.force,
    )


def _letters(found: pb.ReplayDeadLettersResponse) -> int:
    return sum(each.end_offset - each.start_offset for each in found.ranges)
