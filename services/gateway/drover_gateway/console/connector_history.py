"""The tab with a connector's history, and the rollback to a revision."""

from collections.abc import Sequence

import structlog

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client import ConnectClient
from drover.errors import DroverError, Reason
from drover_gateway.console import connector_history_page as html
from drover_gateway.console.connectors import decoded_name
from drover_gateway.console.frame import CONNECTORS, page
from drover_gateway.console.html import Html
from drover_gateway.console.http import Form, PageError, Response
from drover_gateway.console.pages import Context, Request, Routes

#: The pages of a history that are searched for a revision, each at most 1 MiB.
_PAGES_MAX = 20

_log = structlog.get_logger("drover.gateway.console")


class HistoryPages:
    """The history of one connector."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.routes: Routes = {("POST", html.ROLLBACK): self._roll_back}

    async def tab(self, request: Request, name: str) -> Html:
        """The tab, or the page with the difference to a revision."""
        client = self._context.client(request)
        if request.query.one("revision"):
            request.visit.rights.demand("RollbackConnector", name)
            revision = _number(request.query, "revision")
            changes = await _changes(client, name, revision)
            version = _version(changes, revision)
            if version is None:
                raise PageError(
                    404, "There is no such revision", "The history has no config of this revision."
                )
            return html.rollback_html(request.visit, name, version, _present(changes))
        found = await client.get_connector_history_page(name)
        return html.history_html(
            request.visit, name, found.changes, has_more=bool(found.next_page_token)
        )

    async def _roll_back(self, request: Request) -> Response:
        name = decoded_name(request.form.one("name"))
        revision = _number(request.form, "revision")
        expected = _number(request.form, "expected")
        client = self._context.client(request)
        try:
            done = await client.rollback_connector(name, revision, expected_revision=expected)
        except DroverError as error:
            if error.reason is not Reason.REVISION_MISMATCH:
                raise
            changes = await _changes(client, name, expected)
            content = html.conflict_html(
                name, revision, _version(changes, expected), _present(changes)
            )
            return Response(page(request.visit, "Roll back", content, current=CONNECTORS), 409)
        _log.info("a config is rolled back", connector=name, revision=revision)
        content = html.done_html(name, revision, done.connector, created=done.created)
        return Response(page(request.visit, "Roll back", content, current=CONNECTORS))


async def _changes(client: ConnectClient, name: str, revision: int) -> Sequence[pb.ConnectorChange]:
    """The changes from the newest one to the config of a revision, which may not be there."""
    changes: list[pb.ConnectorChange] = []
    token = ""
    for _ in range(_PAGES_MAX):
        found = await client.get_connector_history_page(name, page_token=token)
        changes += found.changes
        token = found.next_page_token
        if not token or _version(found.changes, revision) is not None:
            break
    return changes


def _version(changes: Sequence[pb.ConnectorChange], revision: int) -> pb.ConnectorChange | None:
    return next(
        (each for each in changes if each.revision == revision and each.HasField("config_version")),
        None,
    )


def _present(changes: Sequence[pb.ConnectorChange]) -> pb.ConnectorChange | None:
    """The present config; None if the connector was deleted."""
    return next((each for each in changes if each.config_version.current), None)


def _number(form: Form, key: str) -> int:
    text = form.one(key)
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise PageError(400, "No revision is named", f"The field {key} must be a number.")
    return int(text)
