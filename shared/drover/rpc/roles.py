"""The role that each RPC requires, in one table; a test compares it with the proto contract."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum, auto
from typing import Any

from drover.errors import PermissionDeniedError, Reason
from drover.security.principal import PRINCIPAL_MAX_CHARS, Principal, Role


class Scope(StrEnum):
    """The scope in which the caller must have the role."""

    #: The whole cluster: a role granted for some connectors only is not enough.
    CLUSTER = auto()
    #: At least one connector. The response contains only connectors that the caller may see.
    ANY = auto()
    #: The connector in the request's ``name``, or in the ``name`` of its config. As ANY if the
    #: request names no connector and the call only reads.
    CONNECTOR = auto()


class Effect(StrEnum):
    """What a call does, for the audit log."""

    #: Reads what has no secrets or records, or is an operation that services repeat all the time.
    PLAIN = auto()
    #: Reads records or secrets, or runs connectors' code; belongs in the audit log.
    READS = auto()
    #: Changes something; belongs in the audit log.
    CHANGES = auto()


@dataclass(frozen=True, slots=True)
class Access:
    """The rights that a call requires.

    Attributes:
        role: The minimum role.
        scope: The scope of the role.
        effect: What the call does.
    """

    role: Role
    scope: Scope = Scope.CLUSTER
    effect: Effect = Effect.PLAIN

    @property
    def audited(self) -> bool:
        """Whether each call belongs in the audit log; a rejected call always does."""
        return self.effect is not Effect.PLAIN

    def allows(self, principal: Principal, request: Any) -> bool:
        """Whether a caller may make this call with this request."""
        return self.allows_for(principal, connector_of(request))

    def allows_for(self, principal: Principal, connector: str) -> bool:
        """Whether a caller may make this call for a connector; empty if the call names none."""
        if self.scope is Scope.CLUSTER:
            return principal.may(self.role)
        if self.scope is Scope.ANY or (not connector and self.effect is not Effect.CHANGES):
            return principal.may_for_some(self.role)
        return principal.may(self.role, connector)


def connector_of(request: Any) -> str:
    """The connector that a request names; empty if it names none."""
    name = str(getattr(request, "name", ""))
    if not name and isinstance(config := getattr(request, "config", None), Mapping):
        name = str(config.get("name", "")).strip()
    return name


_INTERNAL = Access(Role.INTERNAL)
_INTERNAL_READ = Access(Role.INTERNAL, effect=Effect.READS)
_INTERNAL_CHANGE = Access(Role.INTERNAL, effect=Effect.CHANGES)
_READ = Access(Role.VIEWER)
_READ_ANY = Access(Role.VIEWER, Scope.ANY)
_READ_CONNECTOR = Access(Role.VIEWER, Scope.CONNECTOR)
_READ_AUDIT = Access(Role.ADMIN)
_SEARCH = Access(Role.OPERATOR, Scope.CONNECTOR)
_TRY = Access(Role.OPERATOR, Scope.CONNECTOR, Effect.READS)
_OPERATE = Access(Role.OPERATOR, Scope.CONNECTOR, effect=Effect.CHANGES)
_ADMINISTER = Access(Role.ADMIN, Scope.CONNECTOR, effect=Effect.CHANGES)
_READ_SECRETS = Access(Role.ADMIN, Scope.CONNECTOR, Effect.READS)
_READ_RECORDS = Access(Role.OPERATOR, effect=Effect.READS)
_OPERATE_CLUSTER = Access(Role.OPERATOR, effect=Effect.CHANGES)
_ADMINISTER_CLUSTER = Access(Role.ADMIN, effect=Effect.CHANGES)

#: By service and RPC. A preview reads real records with the cluster's credentials, as a running
#: connector does; so a preview or a plan requires the same role as creating a connector. Topics
#: belong to no connector, so reading their records requires the operator role for the cluster.
ACCESS: dict[str, dict[str, Access]] = {
    "drover.api.connect.v1.ConnectService": {
        "GetClusterInfo": _READ_ANY,
        "GetCaller": _READ_ANY,
        "ListConnectors": _READ_ANY,
        "WatchConnectors": _READ_ANY,
        "ListPlugins": _READ_ANY,
        "GetPlugin": _READ_ANY,
        "ListLoggers": _READ_ANY,
        "ListRebalances": _READ_ANY,
        "ListConnectorTopics": _READ_ANY,
        "ListAuditEvents": _READ_AUDIT,
        "ListTopics": _READ,
        "DescribeTopic": _READ,
        "WatchTopic": _READ_RECORDS,
        "GetTopicRecordCount": _READ_RECORDS,
        "GetConnector": _READ_CONNECTOR,
        "GetConnectorSecrets": _READ_SECRETS,
        "GetConnectorHistory": _READ_CONNECTOR,
        "GetConnectorStatus": _READ_CONNECTOR,
        "GetConnectorFigures": _READ_CONNECTOR,
        "ListTasks": _READ_CONNECTOR,
        "WatchStatuses": _READ_CONNECTOR,
        "GetConnectorOffsets": _READ_CONNECTOR,
        "GetConnectorTopics": _READ_CONNECTOR,
        "FindConnectorOffsets": _SEARCH,
        "ValidateConfig": _TRY,
        "PauseConnector": _OPERATE,
        "ResumeConnector": _OPERATE,
        "StopConnector": _OPERATE,
        "RestartConnector": _OPERATE,
        "RestartTask": _OPERATE,
        "ResetConnectorTopics": _OPERATE,
        "ReplayDeadLetters": _OPERATE,
        "DiscardDeadLetters": _OPERATE,
        "GetDeadLetterStates": _READ_CONNECTOR,
        "DrainWorker": _OPERATE_CLUSTER,
        "ResumeWorker": _OPERATE_CLUSTER,
        "ReloadPlugins": _OPERATE_CLUSTER,
        "PreviewConnector": _ADMINISTER,
        "PlanConnectorConfig": _ADMINISTER,
        "CreateConnector": _ADMINISTER,
        "PutConnectorConfig": _ADMINISTER,
        "PatchConnectorConfig": _ADMINISTER,
        "RollbackConnector": _ADMINISTER,
        "DeleteConnector": _ADMINISTER,
        "AlterConnectorOffsets": _ADMINISTER,
        "ResetConnectorOffsets": _ADMINISTER,
        "SetLoggerLevel": _ADMINISTER_CLUSTER,
        "ProduceRecords": _ADMINISTER_CLUSTER,
    },
    "drover.api.coordinator.v1.CoordinatorService": {
        "FindCoordinator": _READ,
        "DescribeGroup": _READ,
        "ListGroups": _READ,
        "FetchGroupOffsets": _READ,
        "DeleteGroup": _ADMINISTER_CLUSTER,
        "DeleteGroupOffsets": _ADMINISTER_CLUSTER,
        "JoinGroup": _INTERNAL,
        "SyncGroup": _INTERNAL,
        "Heartbeat": _INTERNAL,
        "LeaveGroup": _INTERNAL,
        "WatchGroup": _INTERNAL,
        "ClaimTask": _INTERNAL,
        "CommitOffsets": _INTERNAL,
        "FetchOffsets": _INTERNAL,
        "AlterOffsets": _INTERNAL_CHANGE,
        "DeleteOffsets": _INTERNAL_CHANGE,
        "CommitGroupOffsets": _INTERNAL,
    },
    "drover.api.config_store.v1.ConfigStoreService": {
        "GetSnapshot": _INTERNAL_READ,
        "WatchConfigs": _INTERNAL_READ,
        "GetEndOffset": _INTERNAL,
        "ClaimWriter": _INTERNAL_CHANGE,
        "PutConnectorConfig": _INTERNAL_CHANGE,
        "DeleteConnector": _INTERNAL_CHANGE,
        "PutTaskConfigs": _INTERNAL_CHANGE,
        "PutTargetState": _INTERNAL_CHANGE,
        "PutRestartRequest": _INTERNAL_CHANGE,
        "PutTaskCount": _INTERNAL_CHANGE,
        "PutSessionKey": _INTERNAL_CHANGE,
        "PutLoggerLevel": _INTERNAL_CHANGE,
        "PutDeadLetterStates": _INTERNAL_CHANGE,
        "GetDeadLetterStates": _INTERNAL_READ,
        "GetConnectorHistory": _INTERNAL_READ,
    },
    "drover.api.status_store.v1.StatusStoreService": {
        "PutStatuses": _INTERNAL,
        "GetSnapshot": _INTERNAL,
        "WatchStatuses": _INTERNAL,
        "PutTopicStatuses": _INTERNAL,
        "DeleteTopicStatuses": _INTERNAL_CHANGE,
        "Flush": _INTERNAL,
    },
    "drover.api.worker.v1.WorkerService": {
        "Forward": _INTERNAL,
        "SubmitTaskConfigs": _INTERNAL,
    },
}


def access_of(method: str) -> Access:
    """The rights that a method requires, by its gRPC name ``/package.Service/Rpc``.

    A method that is not in the table requires the internal role.
    """
    service, _, rpc = method.removeprefix("/").rpartition("/")
    return ACCESS.get(service, {}).get(rpc, _INTERNAL)


def missing_role(method: str, principal: Principal, connector: str) -> PermissionDeniedError:
    """The error for a call that ``access_of(method)`` does not allow.

    Args:
        method: The method, as for ``access_of``.
        principal: The caller.
        connector: The connector that the request names; empty if it names none.
    """
    access = access_of(method)
    scope = {
        Scope.CLUSTER: " for the whole cluster",
        Scope.ANY: "",
        Scope.CONNECTOR: f" for connector {connector[:PRINCIPAL_MAX_CHARS]!r}" if connector else "",
    }[access.scope]
    role = access.role.name.lower()
    rpc = method.rpartition("/")[2]
    return PermissionDeniedError(
        Reason.MISSING_ROLE,
        f"{rpc} needs the role {role}{scope}, which {principal.name!r} does not have: ask an"
        " administrator to grant it in the access file",
        metadata={"role": role, "principal": principal.name},
    )
