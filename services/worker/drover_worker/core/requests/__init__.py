"""Requests of callers: their types (``messages``), and how each gets its one response."""

from drover_worker.core.requests.messages import (
    Accomplished,
    AlterOffsets,
    ConfigStored,
    CreateConnector,
    DeleteConnector,
    ForwardTo,
    OffsetsChanged,
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
    "AlterOffsets",
    "ConfigStored",
    "CreateConnector",
    "DeleteConnector",
    "ForwardTo",
    "OffsetsChanged",
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
