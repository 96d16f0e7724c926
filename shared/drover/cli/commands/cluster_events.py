"""``drover cluster rebalances`` and ``drover cluster audit``."""

import time
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.caller import call_worker
from drover.cli.console import (
    AddressOption,
    Output,
    OutputOption,
    print_document,
    print_table,
    shortened,
    warn,
)
from drover.cli.output.rebalances import duration_text, move_text, moved_text
from drover.client import ConnectClient
from drover.codec.common import decode_duration, encode_timestamp

_TEXT_MAX_CHARS = 60
_PAGE_SIZE_MAX = 200


def rebalances(
    last: Annotated[
        int, typer.Option(min=1, max=200, metavar="N", help="How many, the newest first.")
    ] = 20,
    address: AddressOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the last rebalances of the workers: why each happened, and what moved."""

    async def read(client: ConnectClient) -> pb.ListRebalancesResponse:
        found = await client.list_rebalances(page_size=last)
        while found.next_page_token and len(found.rebalances) < last:
            page = await client.list_rebalances(page_size=last, page_token=found.next_page_token)
            found.rebalances.extend(page.rebalances)
            found.next_page_token = page.next_page_token
        del found.rebalances[last:]
        return found

    found = call_worker(address, read)
    if output is not Output.TABLE:
        print_document([_rebalance_document(each) for each in found.rebalances], output)
    else:
        rows = [
            (
                _time(each.begin_time.ToMilliseconds()),
                str(each.generation),
                duration_text(each),
                moved_text(each),
                shortened(each.reason, _TEXT_MAX_CHARS),
            )
            for each in found.rebalances
        ]
        columns = ("BEGAN", "GENERATION", "DURATION", "MOVED", "REASON")
        print_table(columns, rows, empty="no rebalances that a present worker led")
    _warn_of_silent(found.silent_worker_ids)


def audit(
    caller: Annotated[
        str, typer.Option("--caller", metavar="NAME", help="Only calls of this principal.")
    ] = "",
    call: Annotated[
        str, typer.Option("--call", metavar="RPC", help="Only this RPC, such as PauseConnector.")
    ] = "",
    outcome: Annotated[
        str, typer.Option("--outcome", metavar="CODE", help="Only this gRPC status code.")
    ] = "",
    since: Annotated[
        float, typer.Option("--since", min=0, metavar="MINUTES", help="Only the last minutes.")
    ] = 0.0,
    last: Annotated[
        int, typer.Option(min=1, max=5_000, metavar="N", help="How many, the newest first.")
    ] = 50,
    address: AddressOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the last calls in the audit logs of all workers. Requires the role admin."""
    request = pb.ListAuditEventsRequest(
        page_size=min(last, _PAGE_SIZE_MAX),
        principal=caller,
        call=call,
        outcome=outcome.upper(),
        since_time=encode_timestamp(int((time.time() - since * 60) * 1000)) if since else None,
    )

    async def read(client: ConnectClient) -> pb.ListAuditEventsResponse:
        found = await client.list_audit_events(request)
        while found.next_page_token and len(found.events) < last:
            request.page_token = found.next_page_token
            page = await client.list_audit_events(request)
            found.events.extend(page.events)
            found.next_page_token = page.next_page_token
        del found.events[last:]
        return found

    found = call_worker(address, read)
    if output is not Output.TABLE:
        print_document([_event_document(each) for each in found.events], output)
    else:
        rows = [
            (
                _time(each.event_time.ToMilliseconds()),
                each.principal or "unknown",
                each.call,
                each.connector,
                each.outcome if not each.reason else f"{each.outcome} {each.reason}",
                each.peer,
            )
            for each in found.events
        ]
        columns = ("TIME", "CALLER", "CALL", "CONNECTOR", "OUTCOME", "ADDRESS")
        print_table(columns, rows, empty="no such calls since the workers started")
    _warn_of_silent(found.silent_worker_ids)


def _warn_of_silent(worker_ids: Any) -> None:
    if worker_ids:
        warn(f"without the workers that did not answer: {', '.join(worker_ids)}")


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _rebalance_document(each: pb.Rebalance) -> dict[str, Any]:
    return {
        "began": _time(each.begin_time.ToMilliseconds()),
        "duration_ms": decode_duration(each.duration) if each.HasField("duration") else None,
        "generation": each.generation,
        "leader": each.leader_worker_id,
        "reason": each.reason,
        "workers": list(each.worker_ids),
        "joined": list(each.joined_worker_ids),
        "left": list(each.left_worker_ids),
        "draining": list(each.draining_worker_ids),
        "moved_connectors": each.moved_connector_count,
        "moved_tasks": each.moved_task_count,
        "moves": [move_text(move) for move in each.moves],
    }


def _event_document(each: pb.AuditEvent) -> dict[str, Any]:
    return {
        "time": _time(each.event_time.ToMilliseconds()),
        "worker": each.worker_id,
        "caller": each.principal,
        "call": each.call,
        "connector": each.connector,
        "request": each.request,
        "outcome": each.outcome,
        "reason": each.reason,
        "address": each.peer,
        "request_id": each.request_id,
    }
