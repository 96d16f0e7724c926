"""The state of a coordinator that runs in this process, where its API does not show it."""

from typing import Any

import pytest

from drover.runtime.runtime import Runtime
from drover_coordinator.core.groups.group import Group
from drover_coordinator.core.groups.machine import GroupsMachine
from drover_coordinator.core.groups.member import Member
from tests.support.group_members import GROUP


class Inside:
    """The runtimes and machines of coordinators that are made from now on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runtimes: list[Runtime[Any]] = []
        init = Runtime.__init__

        def noting(runtime: Runtime[Any], *args: Any, **options: Any) -> None:
            init(runtime, *args, **options)
            if isinstance(runtime._machine, GroupsMachine):
                self.runtimes.append(runtime)

        monkeypatch.setattr(Runtime, "__init__", noting)

    def runtime_of(self, group_id: str = GROUP) -> Runtime[Any]:
        """The runtime of the group's shard."""
        return next(each for each in self.runtimes if group_id in _groups(each))

    def member(self, member_id: str, group_id: str = GROUP) -> Member | None:
        """A member of the group, or None."""
        group = _groups(self.runtime_of(group_id))[group_id]
        group.validate()
        return group.members.get(member_id)

    def watch_count(self, member_id: str) -> int:
        """How many watches a member has open."""
        member = self.member(member_id)
        return len(member.watches) if member else 0

    def watcher_count(self) -> int:
        """How many watches all runtimes have open."""
        return sum(len(runtime._watchers) for runtime in self.runtimes)


def _groups(runtime: Runtime[Any]) -> dict[str, Group]:
    machine: Any = runtime._machine
    groups: dict[str, Group] = machine._groups
    return groups
