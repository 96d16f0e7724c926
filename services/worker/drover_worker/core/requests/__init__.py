"""Requests of callers: what they ask (``messages``), and how each comes to its one answer."""

from drover_worker.core.requests.messages import (
    Accomplished,
    ConfigStored,
    CreateConnector,
    DeleteConnector,
    ForwardTo,
    PutConnectorConfig,
    Request,
    Response,
    RestartConnector,
    RestartPlanned,
    RestartTask,
    RollbackConnector,
    SetTargetState,
    SubmitTaskConfigs,
)

__all__ = [
    "Accomplished",
    "ConfigStored",
    "CreateConnector",
    "DeleteConnector",
    "ForwardTo",
    "PutConnectorConfig",
    "Request",
    "Response",
    "RestartConnector",
    "RestartPlanned",
    "RestartTask",
    "RollbackConnector",
    "SetTargetState",
    "SubmitTaskConfigs",
]
