"""``drover connector plan``: the changes of a definition, and a hash to apply exactly these."""

from typing import Any

from drover.api.common.v1.preview_pb2 import StepSchemas
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.caller import call_worker
from drover.cli.commands.apply import Action, PlannedChange, show_steps
from drover.cli.commands.config import FileArgument, FileOption, one_file
from drover.cli.console import AddressOption, Output, OutputOption, plain, print_document, say
from drover.cli.definitions import DefinitionError, read_definition
from drover.cli.output.plans import schema_lines
from drover.cli.warnings import end_refused, print_file_warnings
from drover.errors import InvalidArgumentError
from drover.model.command_lines import drover_command


def plan(
    path: FileArgument = "",
    file: FileOption = "",
    address: AddressOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Show what a definition would change: settings and record schemas; and the plan's hash."""
    file = one_file(path, file)
    definition = read_definition(file)
    print_file_warnings([definition])
    if not definition.name:
        raise DefinitionError(f'{file}: the definition has no "name"')
    try:
        found = call_worker(
            address, lambda c: c.plan_connector_config(definition.name, definition.config)
        )
    except InvalidArgumentError as error:
        end_refused(error, definition.config, address)
    if output is not Output.TABLE:
        print_document(_document(definition.name, found), output)
        return
    show_steps([_step(definition.name, found)], Output.TABLE)
    for line in schema_lines(found):
        say(plain(line))
    for note in found.notes:
        say(plain(note))
    say(f"plan {found.plan_hash}")
    if found.changes:
        options = ["-f", str(file), "--plan", found.plan_hash]
        say(plain(drover_command("connector apply", options=options)))


def _step(name: str, found: pb.PlanConnectorConfigResponse) -> PlannedChange:
    changes = [
        (
            each.name,
            each.before if each.HasField("before") else None,
            each.after if each.HasField("after") else None,
        )
        for each in found.changes
    ]
    differs = Action.CHANGE if changes else Action.UNCHANGED
    return PlannedChange(name, Action.CREATE if found.created else differs, changes)


def _document(name: str, found: pb.PlanConnectorConfigResponse) -> dict[str, Any]:
    step = _step(name, found)
    return {
        "name": name,
        "action": step.action.value,
        "revision": found.revision,
        "changes": [
            {"setting": setting, "from": now, "to": then} for setting, now, then in step.changes
        ],
        "components": list(found.components),
        "schemas": {
            "input": _schemas(found.input_schemas),
            "output_now": _schemas(found.present_output_schemas),
            "output_then": _schemas(found.output_schemas),
        },
        "notes": list(found.notes),
        "plan": found.plan_hash,
    }


def _schemas(schemas: StepSchemas) -> dict[str, Any]:
    document: dict[str, Any] = {"keys": list(schemas.keys), "values": list(schemas.values)}
    if schemas.topics:
        document["topics"] = [
            {
                "topic": each.topic,
                "read_topic": each.read_topic,
                "key": each.key or None,
                "value": each.value or None,
            }
            for each in schemas.topics
        ]
    return document
