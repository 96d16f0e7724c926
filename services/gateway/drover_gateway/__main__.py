"""Runs the gateway: ``python -m drover_gateway``."""

import asyncio
import gc
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from drover.codec.rest import connector_json, status_json
from drover.metrics import table
from drover.metrics.endpoint import Metrics, serving_metrics
from drover.rpc.service import run_service
from drover.rpc.settings import split_addresses
from drover_gateway.app import (
    GatewayApplication,
    for_browsers,
    only_below,
    with_api,
    with_api_below,
)
from drover_gateway.backend import GatewayBackend, rest_settings
from drover_gateway.console.application import ROOT, STREAM_PATH, ConsoleApplication
from drover_gateway.console.frame import HOME
from drover_gateway.console.sessions import Sessions
from drover_gateway.rest.application import RestApplication
from drover_gateway.server import Application, HttpServer
from drover_gateway.settings import GatewaySettings
from drover_gateway.views import Views
from drover_gateway.workers import Workers

if TYPE_CHECKING:
    from drover_gateway.identity.oidc import Oidc

SERVICE = "gateway"
#: The time for requests in progress after the stop signal.
_DRAIN_S = 10.0
#: How long connections to the workers are tried, and for how much of it the port stays closed.
_WARM_UP_S, _WARM_UP_FIRST_S = 5.0, 0.5

_log = structlog.get_logger("drover.gateway")


async def serve(settings: GatewaySettings, stopping: asyncio.Event) -> None:
    """Serve until ``stopping`` is set, then let requests in progress finish.

    Raises:
        OSError: An address cannot be bound.
        InvalidArgumentError: INVALID_CONFIG: a certificate cannot be used.
    """
    certificate = settings.https_certificate()
    metrics = Metrics(SERVICE)
    async with AsyncExitStack() as stack:
        workers = Workers(settings.workers, connect=settings.connect())
        stack.push_async_callback(workers.close)
        views = Views(workers, status_json, connector_json)
        workers.on_change = views.note_change
        backend = GatewayBackend(workers, views)
        rules = settings.origin_rules(None if certificate is None else certificate.present())
        of_rest = rest_settings(settings)
        rest_api = RestApplication(backend, of_rest)
        apis: dict[str, Application] = {settings.gateway_listen: rest_api}
        if settings.gateway_mcp != "off":
            # imported here: it doubles the memory of the process
            from drover_gateway.mcp.gateway import PATH, tools_over_http

            tools = await stack.enter_async_context(tools_over_http(workers, settings))
            rest = apis[settings.gateway_listen]
            apis[settings.gateway_listen] = with_api(PATH.encode(), tools, rest)
        if settings.gateway_console == "on":
            sessions = Sessions(split_addresses(settings.gateway_session_keys))
            oidc = _oidc(settings) if settings.gateway_oidc_issuer else None
            console = ConsoleApplication(workers, views, sessions, stopping, oidc)
            stack.push_async_callback(console.close)
            others = for_browsers(HOME.encode(), apis[settings.gateway_listen])
            apis[settings.gateway_listen] = with_api_below(ROOT, console, others)
        if settings.gateway_admin == "on" and settings.gateway_admin_listen:
            of_admin = RestApplication(backend, replace(of_rest, admin=True))
            apis[settings.gateway_admin_listen] = only_below(b"/admin", of_admin)
        servers = {}
        for listen, api in apis.items():
            at_once = rest_api.at_once if listen == settings.gateway_listen else None
            app = GatewayApplication(api, rules, stream_path=STREAM_PATH, at_once=at_once)
            servers[listen] = HttpServer(
                app,
                at_once=app.at_once,
                certificate=certificate,
                files=settings.https_files,
                trusted_proxies=split_addresses(settings.gateway_trusted_proxies),
            )
            if listen == settings.gateway_listen:
                metrics.add(app.samples)
                metrics.add(servers[listen].samples)
        metrics.add(workers.samples)
        metrics.add(views.samples)
        metrics.add(lambda: [table.SERVING.at(0 if stopping.is_set() else 1)])
        await stack.enter_async_context(serving_metrics(settings.metrics_listen, metrics))
        warm_up = asyncio.create_task(workers.health(timeout_s=_WARM_UP_S), name="warm-up")
        for task in (asyncio.create_task(views.run(), name="views"), warm_up):
            stack.push_async_callback(_cancelled, task)
        # so that the first request does not wait for a connection to a worker
        await asyncio.wait({warm_up}, timeout=_WARM_UP_FIRST_S)
        scheme = "http" if certificate is None else "https"
        for listen, server in servers.items():
            address = await server.listen(listen)
            stack.push_async_callback(server.close, 0.0)
            _log.info("serving", address=f"{scheme}://{address}", workers=settings.gateway_workers)
        await stopping.wait()
        await asyncio.gather(*(each.close(_DRAIN_S) for each in servers.values()))


def _oidc(settings: GatewaySettings) -> "Oidc":
    # imported here: it loads cryptography, which a gateway without an issuer does not need
    from drover_gateway.identity.issuer import Issuer
    from drover_gateway.identity.issuer_http import IssuerHttp
    from drover_gateway.identity.oidc import Oidc
    from drover_gateway.identity.oidc_values import OidcClient

    http = IssuerHttp(settings.gateway_oidc_ca)
    client = OidcClient(
        settings.gateway_oidc_client_id,
        settings.client_secret(),
        settings.gateway_oidc_scopes,
        settings.gateway_oidc_token,
        settings.gateway_url,
    )
    issuer = Issuer(settings.gateway_oidc_issuer, client.client_id, http)
    return Oidc(client, issuer, http.post_form)


async def _cancelled(task: "asyncio.Task[object]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


if __name__ == "__main__":
    # a full collection of the modules' objects takes 30 ms, usually during the first request
    gc.freeze()
    run_service(SERVICE, GatewaySettings, serve)
