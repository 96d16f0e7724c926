"""The command lines that pages show. Names in them are data: none is read as an option."""

import json
import shlex
from collections.abc import Mapping, Sequence


def drover_command(command: str, *names: str, options: Sequence[str] = ()) -> str:
    """A command of ``drover``.

    Args:
        command: The command, such as ``connector pause``.
        names: Its arguments.
        options: Its options, each followed by its value.
    """
    words = [*names, *options]
    if any(each.startswith("-") for each in names):
        # a connector may have the name of an option, such as --address=HOST: the command would
        # send the token of its user there
        words = [*options, "--", *names]
    return shlex.join(["drover", *command.split(), *words])


def grpc_command(rpc: str, body: Mapping[str, object] | None = None) -> str:
    """The command that calls a method of ConnectService, without the client's options."""
    text = shlex.quote(json.dumps(body or {}, ensure_ascii=False))
    return f"grpcurl -d {text} WORKER drover.api.connect.v1.ConnectService/{rpc}"
