"""Principals and their roles."""

from dataclasses import dataclass
from enum import IntEnum
from fnmatch import fnmatchcase

#: The maximum length of a principal's name.
PRINCIPAL_MAX_CHARS = 128


class Role(IntEnum):
    """The rights of a caller; each role includes the roles before it."""

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
    """A role for the whole cluster, or for connectors with matching names.

    Attributes:
        role: The role.
        connectors: Name patterns with ``*`` and ``?``; empty for the whole cluster.
    """

    role: Role
    connectors: tuple[str, ...] = ()

    def covers(self, connector: str) -> bool:
        """Whether the grant applies to this connector."""
        return not self.connectors or any(fnmatchcase(connector, p) for p in self.connectors)


#: The grants of a caller without an access file, and of a call that another worker has authorized.
UNRESTRICTED = (Grant(Role.ADMIN),)


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller.

    Attributes:
        name: The caller's name in histories, logs and errors; empty if unknown. Without an access
            file it is the unverified name from the call's metadata, or the caller's address.
        grants: The caller's grants; a call is allowed if one of them allows it.
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
        """Whether the caller has a role for at least one connector."""
        return any(grant.role >= role for grant in self.grants)
