"""Requests of callers: their types (``messages``), and how each gets its one response."""

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
