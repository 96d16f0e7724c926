"""What the REST API uses of the gateway."""

from collections.abc import Mapping
from typing import Any

from drover import __version__
from drover.client import ConnectClient
from drover.rpc.settings import split_addresses
from drover_gateway.identity.credentials import Caller, caller_of
from drover_gateway.rest.cors import parse_header_rules
from drover_gateway.rest.ports import Health, RestSettings
from drover_gateway.settings import GatewaySettings
from drover_gateway.views import View, Views
from drover_gateway.workers import Workers

#: As in Kafka Connect.
_HEALTH_TIMEOUT_S = 10.0


class GatewayBackend:
    """The workers, as a caller reaches them."""

    def __init__(self, workers: Workers, views: Views) -> None:
        self._workers = workers
        self._views = views

    def caller(self, scope: Mapping[str, Any]) -> Caller:
        """The caller of a request.

        Raises:
            UnauthenticatedError: INVALID_CREDENTIALS: the Authorization header is malformed.
        """
        client = scope.get("client")
        return caller_of(scope["headers"], client[0] if client else "")

    def client(self, caller: Caller) -> ConnectClient:
        """A client that sends the caller's credential and does not retry."""
        return self._workers.client(caller)

    def view(self, caller: Caller) -> View | None:
        """The caller's view; None while there is none that is up to date."""
        return self._views.find(caller)

    def present_view(self, caller: Caller) -> View | None:
        """As ``view``, but it opens none."""
        return self._views.present(caller)

    async def health(self) -> Health:
        """The state of the cluster."""
        return await self._workers.health(timeout_s=_HEALTH_TIMEOUT_S)


def rest_settings(settings: GatewaySettings) -> RestSettings:
    """The settings of the REST API."""
    return RestSettings(
        version=settings.gateway_kafka_connect_version,
        commit=__version__,
        topics=settings.gateway_topics,
        admin=settings.gateway_admin == "on" and not settings.gateway_admin_listen,
        secrets=settings.gateway_secrets,
        health_needs_credentials=settings.gateway_health == "authenticated",
        allow_origins=tuple(split_addresses(settings.gateway_allow_origins)),
        allow_methods=tuple(split_addresses(settings.gateway_allow_methods)),
        response_headers=parse_header_rules(settings.gateway_response_headers),
    )
