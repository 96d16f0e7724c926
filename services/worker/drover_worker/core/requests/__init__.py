"""Requests of callers: what they ask (``messages``), and how each comes to its one answer."""

from drover_worker.core.requests.messages import (
    Accomplished,
    CarryTo,
    ConfigStored,
    CreateConnector,
    DeleteConnector,
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
    "CarryTo",
    "ConfigStored",
    "CreateConnector",
    "DeleteConnector",
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
