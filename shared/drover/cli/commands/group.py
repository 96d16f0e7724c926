"""``drover group …``: groups, their members and offsets, from the coordinators."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from drover.cli.access import connect
from drover.cli.cluster_choice import coordinator_addresses
from drover.cli.console import (
    DEFAULT_COORDINATOR_ADDRESS,
    CliError,
    Output,
    OutputOption,
    T,
    YesOption,
    confirm,
    connects_at_all,
    plain,
    print_document,
    print_table,
    say,
)
from drover.client import CoordinatorClient, CoordinatorsClient
from drover.model.group import GroupDescription, GroupState
from drover.model.offsets import GroupOffset

commands = typer.Typer(no_args_is_help=True, help="Groups: state, members, committed offsets.")

CoordinatorOption = Annotated[
    str,
    typer.Option(
        "--address",
        "-a",
        envvar="DROVER_COORDINATOR_ADDRESS",
        show_default=False,
        help="host:port of one or more coordinators, comma-separated. Default: the cluster of "
        f"`drover up` in this folder, else {DEFAULT_COORDINATOR_ADDRESS}.",
    ),
]


GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.")]
StatesOption = Annotated[
    list[GroupState] | None,
    typer.Option(
        "--state",
        case_sensitive=False,
        help="Only groups in this state, in upper or lower case; repeatable.",
    ),
]
TypesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--type",
        metavar="TYPE",
        help='Only groups of this protocol type, such as "connect"; repeatable.',
    ),
]


@commands.command("list")
def list_groups(
    address: CoordinatorOption = "",
    state: StatesOption = None,
    protocol_type: TypesOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the groups of all coordinators."""
    groups = run_coordinator_call(
        coordinator_addresses(address),
        lambda c: c.list_groups(states=state or (), protocol_types=protocol_type or ()),
    )
    if output is not Output.TABLE:
        print_document(
            [
                {
                    "group_id": group.group_id,
                    "state": group.state.value,
                    "protocol_type": group.protocol_type,
                    "member_count": group.member_count,
                    "generation": group.generation,
                }
                for group in groups
            ],
            output,
        )
        return
    rows = [
        (g.group_id, g.state.value, g.protocol_type, str(g.member_count), str(g.generation))
        for g in groups
    ]
    print_table(("GROUP", "STATE", "TYPE", "MEMBERS", "GENERATION"), rows, empty="no groups")


@commands.command()
def offsets(
    group_id: GroupArgument,
    address: CoordinatorOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Show a group's committed offsets by topic and partition."""

    async def fetch(client: CoordinatorClient) -> list[GroupOffset]:
        found = await client.fetch_group_offsets(group_id=group_id)
        if not found and (await client.describe(group_id)).state is GroupState.DEAD:
            raise _unknown(group_id)
        return found

    found = run_coordinator_call(coordinator_addresses(address), fetch)
    if output is not Output.TABLE:
        print_document(
            [
                {
                    "topic": offset.topic,
                    "partition": offset.partition,
                    "offset": offset.offset,
                    "leader_epoch": offset.leader_epoch,
                    "metadata": offset.metadata,
                    "commit_time_ms": offset.commit_time_ms,
                    "expire_time_ms": offset.expire_time_ms,
                }
                for offset in found
            ],
            output,
        )
        return
    rows = [
        (o.topic, str(o.partition), str(o.offset), _moment(o.commit_time_ms), o.metadata)
        for o in found
    ]
    print_table(("TOPIC", "PARTITION", "OFFSET", "COMMITTED", "METADATA"), rows, empty="no offsets")


@commands.command()
def delete(
    group_id: GroupArgument,
    yes: YesOption = False,
    address: CoordinatorOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete a group that has no members, with its committed offsets.

    At a terminal it asks first.
    """
    question = f"Delete the group {plain(group_id)} with its committed offsets?"
    confirm(question, yes=yes, in_scripts=True)
    run_coordinator_call(coordinator_addresses(address), lambda c: c.delete_group(group_id))
    if output is not Output.TABLE:
        print_document({"group_id": group_id, "result": "deleted"}, output)
    else:
        say(plain(f"deleted {group_id}"))


@commands.command()
def describe(
    group_id: GroupArgument,
    address: CoordinatorOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Show a group's state, its members, and its coordinator."""

    async def ask(client: CoordinatorClient) -> tuple[GroupDescription, str]:
        found = await client.describe(group_id)
        if found.state is GroupState.DEAD:
            raise _unknown(group_id)
        return found, await client.find_coordinator(group_id)

    group, coordinator = run_coordinator_call(coordinator_addresses(address), ask)
    if output is not Output.TABLE:
        print_document({**_document(group), "coordinator": coordinator}, output)
        return
    since = _moment(group.state_change_time_ms)
    say(f"{group.group_id}: {group.state.value} since {since}")
    say(
        f"generation {group.generation}, type {group.protocol_type or 'none'}, "
        f"protocol {group.protocol_name or 'none'}, served by {coordinator}"
    )
    rows = [
        (
            member.member_id,
            member.instance_id or "",
            "yes" if member.member_id == group.leader_id else "",
            member.client_id,
            member.client_host,
            f"{member.session_timeout_ms} ms",
        )
        for member in group.members
    ]
    columns = ("MEMBER", "INSTANCE", "LEADER", "CLIENT", "HOST", "SESSION")
    print_table(columns, rows, empty="no members")


def run_coordinator_call(
    addresses: Sequence[str], work: Callable[[CoordinatorsClient], Awaitable[T]]
) -> T:
    """Run ``work`` with a client of all coordinators; at least one must accept a connection.

    Raises:
        CliError: No coordinator accepts a connection.
        DroverError: The error that a coordinator returned.
    """

    async def run() -> T:
        async with CoordinatorsClient(addresses, connect=connect) as client:
            channels = {address: client.direct(address) for address in addresses}
            await connects_at_all("coordinator", channels)
            return await work(client)

    return asyncio.run(run())


def _unknown(group_id: str) -> CliError:
    return CliError(f"there is no group {group_id!r}; `drover group list` shows them")


def _moment(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _document(group: GroupDescription) -> dict[str, Any]:
    return {
        "group_id": group.group_id,
        "state": group.state.value,
        "protocol_type": group.protocol_type,
        "protocol_name": group.protocol_name,
        "generation": group.generation,
        "leader_id": group.leader_id,
        "state_change_time_ms": group.state_change_time_ms,
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "session_timeout_ms": member.session_timeout_ms,
                "rebalance_timeout_ms": member.rebalance_timeout_ms,
            }
            for member in group.members
        ],
    }
