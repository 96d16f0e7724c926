"""The tab with a connector's offsets, and their change after a page with the difference."""

import time
from collections.abc import Sequence

import structlog

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client import ConnectClient
from drover.model.dead_letters import DEAD_LETTER_TOPIC
from drover.transform.exact_texts import first_ms_of
from drover_gateway.console import connector_offsets_page as html
from drover_gateway.console.connectors import decoded_name
from drover_gateway.console.frame import CONNECTORS, notice, page
from drover_gateway.console.html import Html, tag
from drover_gateway.console.http import Form, PageError, Response
from drover_gateway.console.offset_edits import (
    Edit,
    EditError,
    conflicts_of,
    digest_of,
    edits_of,
    key_of,
    moves_of,
)
from drover_gateway.console.pages import Context, Request, Routes

#: The pages of offsets that are read before a write, each at most 1 MiB.
_PAGES_MAX = 20
#: What a form can contain: each move has 250 to 700 bytes in it.
_MOVES_MAX = 1_000
_AGO_MS = {"1h": 3_600_000, "1d": 86_400_000}

_log = structlog.get_logger("drover.gateway.console")


class OffsetsPages:
    """The offsets of one connector."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.routes: Routes = {
            ("POST", html.EDIT): self._confirm_edit,
            ("POST", html.EDIT_RUN): self._edit,
            ("POST", html.MOVE): self._confirm_move,
            ("POST", html.RESET): self._confirm_reset,
            ("POST", html.RESET_RUN): self._reset,
        }

    async def tab(self, request: Request, name: str) -> Html:
        """The tab."""
        client = self._context.client(request)
        connector = await client.get_connector(name)
        offsets, has_more = await _first_offsets(client, name)
        return html.offsets_html(
            request.visit,
            name,
            offsets,
            has_more=has_more,
            is_sink=connector.type == pb.CONNECTOR_TYPE_SINK,
            is_stopped=connector.target_state == pb.TARGET_STATE_STOPPED,
            digest=_digest(offsets),
            dead_letter_topic=connector.config.get(DEAD_LETTER_TOPIC, "").strip(),
        )

    async def _confirm_edit(self, request: Request) -> Response:
        form = request.form
        name = decoded_name(form.one("name"))
        request.visit.rights.demand("AlterConnectorOffsets", name)
        partitions = [decoded_name(each) for each in form.all("partition")]
        before = [decoded_name(each) for each in form.all("before")]
        rows = list(zip(partitions, before, form.all("entered"), strict=False))
        rows.append((form.one("new_partition"), "", form.one("new_offset")))
        try:
            edits = edits_of(rows)
        except EditError as error:
            faults = [tag("li", each) for each in str(error).split("\n")]
            content = notice(
                "error",
                "The offsets cannot be read",
                tag("ul", *faults),
                tag("p", "Nothing was written. Go back to correct them."),
            )
            return Response(page(request.visit, "Offsets", content, current=CONNECTORS), 400)
        content = html.confirm_edit_html(request.visit, name, edits)
        return Response(page(request.visit, "Write offsets?", content, current=CONNECTORS))

    async def _confirm_move(self, request: Request) -> Response:
        name = decoded_name(request.form.one("name"))
        request.visit.rights.demand("AlterConnectorOffsets", name)
        time_ms = _time_ms(request.form)
        found = await self._context.client(request).find_connector_offsets(name, time_ms)
        edits = moves_of(found)
        if len(edits) > _MOVES_MAX:
            raise PageError(
                400,
                "There are too many partitions",
                f"A page can write {_MOVES_MAX:,} offsets. Use `drover connector offsets NAME"
                " --to-time TIME`, which writes all of them.",
            )
        content = html.confirm_move_html(request.visit, name, time_ms, found, edits)
        return Response(page(request.visit, "Move to a time?", content, current=CONNECTORS))

    async def _edit(self, request: Request) -> Response:
        name = decoded_name(request.form.one("name"))
        request.visit.rights.demand("AlterConnectorOffsets", name)
        edits = _edits(request.form)
        client = self._context.client(request)
        present = await _present(client, name)
        conflicts = conflicts_of(edits, present)
        if conflicts:
            return _conflict(request, html.conflict_html(name, conflicts))
        changes = [
            pb.ConnectorOffset(partition_json=each.partition, offset_json=each.after or None)
            for each in edits
        ]
        message = await client.alter_connector_offsets(name, changes)
        _log.info("offsets are written", connector=name, offsets=len(changes))
        return _done(request, name, message)

    async def _confirm_reset(self, request: Request) -> Response:
        name = decoded_name(request.form.one("name"))
        request.visit.rights.demand("ResetConnectorOffsets", name)
        offsets, has_more = await _first_offsets(self._context.client(request), name)
        content = html.confirm_reset_html(
            request.visit, name, offsets, has_more=has_more, digest=_digest(offsets)
        )
        return Response(page(request.visit, "Remove all offsets?", content, current=CONNECTORS))

    async def _reset(self, request: Request) -> Response:
        name = decoded_name(request.form.one("name"))
        request.visit.rights.demand("ResetConnectorOffsets", name)
        client = self._context.client(request)
        offsets, _ = await _first_offsets(client, name)
        if _digest(offsets) != request.form.one("digest"):
            return _conflict(request, html.conflict_html(name, ()))
        message = await client.reset_connector_offsets(name)
        _log.info("offsets are removed", connector=name)
        return _done(request, name, message)


def _time_ms(form: Form) -> int:
    ago = form.one("ago")
    if ago in _AGO_MS:
        return int(time.time() * 1000) - _AGO_MS[ago]
    text = form.one("time").strip()
    found = first_ms_of(text) if text else None
    if ago or found is None:
        raise PageError(
            400,
            "The time cannot be read",
            "It must be a time from 1970 to 9999 in UTC, such as 2026-01-31T12:00:00.",
        )
    return found


def _edits(form: Form) -> Sequence[Edit]:
    fields = (form.all("partition"), form.all("before"), form.all("after"))
    edits = [Edit(*(decoded_name(each) for each in row)) for row in zip(*fields, strict=False)]
    try:
        for each in edits:
            if not key_of(each.partition):
                raise ValueError("no partition")
            key_of(each.before)
            key_of(each.after)
    except (ValueError, RecursionError):
        edits = []
    if not edits:
        raise PageError(400, "Nothing to write", "Edit offsets in the connector's tab first.")
    return edits


async def _first_offsets(
    client: ConnectClient, name: str
) -> tuple[Sequence[pb.ConnectorOffset], bool]:
    """The offsets that a page shows, and whether there are more."""
    found = await client.get_connector_offsets_page(name)
    shown = found.offsets[: html.OFFSETS_MAX]
    return shown, bool(found.next_page_token) or len(found.offsets) > len(shown)


async def _present(client: ConnectClient, name: str) -> dict[str, str]:
    """The offsets at present, by partition."""
    present: dict[str, str] = {}
    token = ""
    for _ in range(_PAGES_MAX):
        found = await client.get_connector_offsets_page(name, page_token=token)
        present.update((key_of(each.partition_json), each.offset_json) for each in found.offsets)
        token = found.next_page_token
        if not token:
            return present
    raise PageError(
        400, "There are too many offsets", "Use `drover connector offsets NAME -f FILE`."
    )


def _digest(offsets: Sequence[pb.ConnectorOffset]) -> str:
    return digest_of((each.partition_json, each.offset_json) for each in offsets)


def _conflict(request: Request, content: Html) -> Response:
    return Response(page(request.visit, "Offsets", content, current=CONNECTORS), 409)


def _done(request: Request, name: str, message: str) -> Response:
    content = html.done_html(request.visit, name, message)
    return Response(page(request.visit, "Offsets", content, current=CONNECTORS))
