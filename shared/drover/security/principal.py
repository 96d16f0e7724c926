"""Who calls, and what it may do."""

from dataclasses import dataclass
from enum import IntEnum
from fnmatch import fnmatchcase


class Role(IntEnum):
    """What a caller may do; each role includes those before it."""

    #: Reads.
    VIEWER = 1
    #: Also pauses, resumes, stops and restarts, and checks configs.
    OPERATOR = 2
    #: Also changes configs, offsets, groups and loggers.
    ADMIN = 3
    #: The services of the cluster among each other.
    INTERNAL = 4


@dataclass(frozen=True, slots=True)
class Grant:
    """A role, for all connectors or for those whose names match a pattern.

    Attributes:
        role: The role.
        connectors: Patterns of names with ``*`` and ``?``; empty for all connectors and for what
            is no connector's.
    """

    role: Role
    connectors: tuple[str, ...] = ()

    def covers(self, connector: str) -> bool:
        """Whether the grant is for this connector."""
        return not self.connectors or any(fnmatchcase(connector, p) for p in self.connectors)


#: What a caller may do where nothing is enforced, and whoever another worker vouches for.
UNRESTRICTED = (Grant(Role.ADMIN),)


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller.

    Attributes:
        name: For histories, logs and errors. Empty if unknown. Where no access file is enforced
            it is what the caller says, which nobody vouches for.
        grants: What it may do; they add up.
    """

    name: str
    grants: tuple[Grant, ...] = UNRESTRICTED

    def may(self, role: Role, connector: str | None = None) -> bool:
        """Whether the caller has a role for a connector; without one, for the whole cluster."""
        return any(
            grant.role >= role
            and (not grant.connectors if connector is None else grant.covers(connector))
            for grant in self.grants
        )

    def may_for_some(self, role: Role) -> bool:
        """Whether the caller has a role for any connector at all."""
        return any(grant.role >= role for grant in self.grants)
