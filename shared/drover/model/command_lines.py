"""Command lines in messages and on pages. Names in them are data: none is read as an option."""

import shlex
from collections.abc import Sequence


def drover_command(command: str, *names: str, options: Sequence[str] = ()) -> str:
    """A command of ``drover`` that a shell can run.

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
