"""What the REST API needs from the rest of the gateway."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from drover.client import ConnectClient
from drover_gateway.identity.credentials import Caller
from drover_gateway.rest.cors import HeaderRule


class View(Protocol):
    """The connectors that a caller may see, in memory and up to date."""

    def names(self) -> Sequence[str]:
        """The connectors, sorted."""

    def status(self, name: str) -> bytes | None:
        """``drover.codec.rest.status_json`` of a connector; None if it is not in the view."""

    def info(self, name: str) -> bytes | None:
        """``drover.codec.rest.connector_json`` of a connector; None if it is not in the view."""

    def expanded(self, *, with_status: bool, with_info: bool) -> bytes:
        """All connectors by name as a JSON object: each with its ``info`` and its ``status``."""


class HealthState(StrEnum):
    """Whether the cluster answers requests."""

    HEALTHY = "healthy"
    #: The workers that answer are starting or stopping.
    STARTING = "starting"
    UNHEALTHY = "unhealthy"


@dataclass(frozen=True, slots=True)
class Health:
    """The state of the cluster; ``detail`` has the reason for another state than healthy."""

    state: HealthState
    detail: str = ""


class Backend(Protocol):
    """The workers, as a caller reaches them."""

    def caller(self, scope: Mapping[str, Any]) -> Caller:
        """The caller of a request with this ASGI scope.

        Raises:
            UnauthenticatedError: INVALID_CREDENTIALS: the header Authorization is malformed.
        """

    def client(self, caller: Caller) -> ConnectClient:
        """A client that sends the caller's credential and does not retry."""

    def view(self, caller: Caller) -> View | None:
        """The caller's view; None while there is none that is up to date."""

    def present_view(self, caller: Caller) -> View | None:
        """As ``view``, but it opens none."""

    async def health(self) -> Health:
        """The state of the cluster."""


@dataclass(frozen=True, slots=True)
class RestSettings:
    """Settings of the REST API.

    Attributes:
        version: The version of Kafka Connect that ``GET /`` reports.
        commit: Drover's version, which ``GET /`` reports as commit.
        topics: Whether the topics of connectors can be read and reset: ``on``, ``read`` or ``off``.
        admin: Whether there are resources below /admin.
        secrets: ``masked``, or ``admin`` to return secrets to callers with the role ADMIN.
        health_needs_credentials: Whether /health checks who calls.
        allow_origins: The origins of other web sites that may read answers; "*" for all.
        allow_methods: The methods that the answer to a preflight lists; empty for the usual ones.
        response_headers: The rules for headers of all responses.
    """

    version: str = "4.4.0"
    commit: str = ""
    topics: str = "on"
    admin: bool = True
    secrets: str = "masked"
    health_needs_credentials: bool = False
    allow_origins: tuple[str, ...] = ()
    allow_methods: tuple[str, ...] = ()
    response_headers: tuple[HeaderRule, ...] = ()
