"""``drover group …``: membership, as the coordinators see it."""

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from drover.cli.console import (
    DEFAULT_COORDINATOR_ADDRESS,
    CliError,
    Output,
    OutputOption,
    coordinator_addresses,
    print_json,
    print_table,
    run_coordinator_call,
    say,
)
from drover.model.group import GroupDescription, GroupState

commands = typer.Typer(no_args_is_help=True, help="Groups: membership, seen by the coordinator.")

CoordinatorOption = Annotated[
    str,
    typer.Option(
        "--address",
        "-a",
        envvar="DROVER_COORDINATOR_ADDRESS",
        show_default=False,
        help="host:port of the coordinator, or of several with commas between; by default those of "
        "the cluster of `make up` here, else "
        f"{DEFAULT_COORDINATOR_ADDRESS}.",
    ),
]


StatesOption = Annotated[
    list[GroupState] | None,
    typer.Option(
        "--state",
        case_sensitive=False,
        help="Only groups in this state; may be given more than once, in any case.",
    ),
]
TypesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--type",
        metavar="TYPE",
        help='Only groups of this protocol type, such as "connect"; may be given more than once.',
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
    if output is Output.JSON:
        print_json(
            [
                {
                    "group_id": group.group_id,
                    "state": group.state.value,
                    "protocol_type": group.protocol_type,
                    "member_count": group.member_count,
                    "generation": group.generation,
                }
                for group in groups
            ]
        )
        return
    rows = [
        (g.group_id, g.state.value, g.protocol_type, str(g.member_count), str(g.generation))
        for g in groups
    ]
    print_table(("GROUP", "STATE", "TYPE", "MEMBERS", "GENERATION"), rows, empty="no groups")


@commands.command()
def describe(
    group_id: Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.")],
    address: CoordinatorOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Show a group's state and members."""
    group = run_coordinator_call(coordinator_addresses(address), lambda c: c.describe(group_id))
    if group.state is GroupState.DEAD:
        raise CliError(f"there is no group {group_id!r}; `drover group list` shows them")
    if output is Output.JSON:
        print_json(_document(group))
        return
    since = datetime.fromtimestamp(group.state_change_time_ms / 1000, UTC)
    say(f"{group.group_id}: {group.state.value} since {since:%Y-%m-%d %H:%M:%S} UTC")
    say(
        f"generation {group.generation}, type {group.protocol_type or 'none'}, "
        f"protocol {group.protocol_name or 'none'}"
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
