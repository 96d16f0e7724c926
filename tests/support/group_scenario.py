"""The commands of group scenarios, and how what happens is written down.

settings initial-delay=0 grace=1000 max-size=2    (before anything else)
first-join a [session=10000] [rebalance=60000] [protocols=p1:x,p2:y] [patience=60001]
join a […]                  enter a […]           both joins of a newcomer
start a2@A […]              a static member's process starts: a first join under the instance id A
sync a [generation=1] [a=bytes b=bytes]           the leader's hands in assignments
heartbeat a [generation=1]  leave a b             claim a generation=1
heartbeat a@A, sync a@A, join a@A, leave a@A, leave @A    the same with an instance id
watch a    break-watch a    end-watch a           abandon a     (its parked call)
advance 3000                                      time passes, timers fire
fail-append                                       the next append is refused
restart                     unload                kill -9 and load; stop serving
describe                    log                   the group; its last record
"""

from collections.abc import Callable, Iterable
from typing import Any

from drover.errors import DroverError, Reason, UnavailableError
from drover.model.group import (
    GroupDescription,
    Joined,
    LeavingMember,
    MemberIdRequired,
    OfferedProtocol,
    RebalanceInProgress,
    RetryJoin,
    Synced,
)
from drover_coordinator.core.groups.events import Unloaded, WatchStarted
from drover_coordinator.core.groups.records import FloorRecord, LogValue, OffsetRecord
from drover_coordinator.core.groups.settings import GroupSettings
from tests.support.group_harness import DISK_FULL, GROUP, Call, GroupHarness
from tests.support.scenario import Command


class GroupScenario:
    """Runs commands against one coordinator; ``execute`` returns the trace of each."""

    def __init__(self) -> None:
        self._group = GroupHarness()
        self._open: list[tuple[str, Call]] = []
        self._record_count = 0
        self._watched_count = 0
        self._removed_count = 0

    def execute(self, command: Command) -> Iterable[str]:
        """Run one command."""
        commands: dict[str, Callable[[Command], list[str] | None]] = {
            "settings": self._settings,
            "first-join": lambda c: self._call(c, self._group.first_join(*c.words, **_joining(c))),
            "join": self._join,
            "start": self._start,
            "enter": lambda c: self._call(c, self._group.enter(*c.words, **_joining(c))),
            "sync": self._sync,
            "heartbeat": self._heartbeat,
            "leave": lambda c: self._call(
                c, self._group.leave(*(LeavingMember(*_ids(each)) for each in c.words))
            ),
            "claim": lambda c: self._call(
                c, self._group.check_member(c.words[0], c.number("generation", 0))
            ),
            "watch": lambda c: self._call(c, self._group.watch(*c.words)),
            "break-watch": lambda c: self._group.break_watch(*c.words),
            "end-watch": lambda c: self._group.end_watch(*c.words),
            "abandon": self._abandon,
            "advance": lambda c: self._group.advance(int(c.words[0])),
            "fail-append": self._fail_append,
            "restart": self._restart,
            "unload": self._unload,
            "describe": lambda _: [_describe(self._group.describe())],
            "log": lambda _: [_record(self._group.records[-1])],
        }
        said = commands[command.name](command) or []
        return [*said, *self._news()]

    def _settings(self, command: Command) -> None:
        default = GroupSettings()
        self._group = GroupHarness(
            GroupSettings(
                initial_rebalance_delay_ms=command.number(
                    "initial-delay", default.initial_rebalance_delay_ms
                ),
                disconnect_grace_ms=command.number("grace", default.disconnect_grace_ms),
                group_max_size=command.number("max-size", default.group_max_size),
            )
        )

    def _call(self, command: Command, call: Call) -> None:
        self._open.append((" ".join(command.words), call))

    def _join(self, command: Command) -> None:
        member_id, instance_id = _ids(command.words[0])
        call = self._group.join(member_id, instance_id=instance_id, **_joining(command))
        self._call(command, call)

    def _start(self, command: Command) -> None:
        new_id, instance_id = _ids(command.words[0])
        assert instance_id is not None
        self._call(command, self._group.join_static(new_id, instance_id, **_joining(command)))

    def _heartbeat(self, command: Command) -> None:
        member_id, instance_id = _ids(command.words[0])
        generation = _generation(command)
        self._call(command, self._group.heartbeat(member_id, generation, instance_id=instance_id))

    def _sync(self, command: Command) -> None:
        assignments = {
            key: value.encode() for key, value in command.options.items() if key != "generation"
        }
        member_id, instance_id = _ids(command.words[0])
        generation = _generation(command)
        call = self._group.sync(member_id, generation, assignments, instance_id=instance_id)
        self._call(command, call)

    def _abandon(self, command: Command) -> None:
        for name, call in self._open:
            if name == command.words[0] and call.waits:
                self._group.abandon(call)

    def _fail_append(self, command: Command) -> None:
        assert not command.words
        self._group.append_error = DISK_FULL

    def _restart(self, command: Command) -> list[str]:
        assert not command.words
        lost = [name for name, call in self._open if call.waits]
        self._open = [(name, call) for name, call in self._open if not call.waits]
        self._group.restart()
        return [f"calls lost: {' '.join(lost)}"] if lost else []

    def _unload(self, command: Command) -> None:
        assert not command.words
        self._group.handle(Unloaded(UnavailableError(Reason.DRAINING, "shutting down")))

    def _news(self) -> list[str]:
        """Changes since the last command: records, notifications, responses."""
        group = self._group
        news = [f"log < {_record(each)}" for each in group.records[self._record_count :]]
        self._record_count = len(group.records)
        for watched in group.watched[self._watched_count :]:
            rejoin = ", join again" if watched.rejoin_needed else ""
            news.append(f"watchers: {watched.state} at generation {watched.generation}{rejoin}")
        self._watched_count = len(group.watched)
        if removed := group.removed[self._removed_count :]:
            news.append(f"removed: {' '.join(removed)}")
        self._removed_count = len(group.removed)
        waiting = []
        for name, call in self._open:
            if call.waits:
                waiting.append((name, call))
            else:
                news.append(f"{name}: {_answer(call)}")
        self._open = waiting
        return news


def _joining(command: Command) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for key, name in (
        ("session", "session_ms"),
        ("rebalance", "rebalance_ms"),
        ("patience", "patience_ms"),
    ):
        if key in command.options:
            options[name] = int(command.options[key])
    if "protocols" in command.options:
        offers = (each.partition(":") for each in command.options["protocols"].split(","))
        options["protocols"] = tuple(
            OfferedProtocol(name, data.encode()) for name, _, data in offers
        )
    return options


def _ids(word: str) -> tuple[str, str | None]:
    """A member id and an instance id, written ``a@A``; either may be omitted."""
    member_id, _, instance_id = word.partition("@")
    return member_id, instance_id or None


def _name(member_id: str, instance_id: str | None) -> str:
    return member_id if instance_id is None else f"{member_id}@{instance_id}"


def _generation(command: Command) -> int | None:
    return int(command.options["generation"]) if "generation" in command.options else None


def _record(record: LogValue) -> str:
    if isinstance(record, FloorRecord):
        return f"new groups begin at generation {record.generation}"
    assert record.group_id == GROUP
    if isinstance(record, OffsetRecord):
        at, offset = record.partition, record.offset
        return f"{at.topic}-{at.partition} {'removed' if offset is None else offset.offset}"
    metadata = record.metadata
    if metadata is None:
        return "the group is removed"
    if not metadata.members:
        return f"generation {metadata.generation}, empty"
    members = " ".join(
        _name(each.member_id, each.instance_id)
        + (f"={each.assignment.decode()}" if metadata.assigned else "")
        for each in metadata.members
    )
    stage = "assigned" if metadata.assigned else "told"
    return (
        f"generation {metadata.generation} {stage}, protocol {metadata.protocol_name}, "
        f"leader {metadata.leader_id}, members {members}"
    )


def _describe(group: GroupDescription) -> str:
    names = (_name(each.member_id, each.instance_id) for each in group.members)
    members = " ".join(names) or "nobody"
    return f"{group.state} at generation {group.generation}, members: {members}"


def _answer(call: Call) -> str:
    if call.errors:
        return _error(call.errors[0])
    match call.response:
        case MemberIdRequired(member_id):
            return f"join with the id {member_id}"
        case RetryJoin(member_id):
            return f"join again as {member_id}, this took too long"
        case Joined() as joined if joined.members:
            offers = " ".join(
                f"{_name(m.member_id, m.instance_id)}:{m.metadata.decode()}" for m in joined.members
            )
            skip = ", assigns nothing" if joined.skip_assignment else ""
            leads = f"leads generation {joined.generation}{skip}"
            return f"{leads}, {joined.protocol_name} of {offers}"
        case Joined() as joined:
            return f"follows {joined.leader_id} in generation {joined.generation}"
        case Synced(assignment):
            return f"is assigned {assignment.decode() or 'nothing'}"
        case RebalanceInProgress() | True:
            return "a rebalance is under way, join again"
        case False:
            return "all is well"
        case None:
            return "is a member"
        case WatchStarted(watched):
            rejoin = ", join again" if watched.rejoin_needed else ""
            return f"watches, {watched.state} at generation {watched.generation}{rejoin}"
        case tuple(results):
            return ", ".join(
                f"{_name(each.member_id, each.instance_id)} {each.outcome}" for each in results
            )
    raise AssertionError(f"no words for {call.response}")


def _error(error: DroverError) -> str:
    return f"{error.code} {error.reason}"
