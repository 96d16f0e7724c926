"""``drover connector new``: a new Python package with a source, a sink and their tests."""

import keyword
import re
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from drover.cli.console import EXIT_USAGE, CliError, say

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[-_][A-Za-z0-9]+)*")
_NAME_MAX_LENGTH = 60
_SUFFIX = ".template"


def new(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The package's name, such as my-weather.")
    ],
    into: Annotated[
        Path | None,
        typer.Option("--into", metavar="DIR", help="Parent folder; by default the current one."),
    ] = None,
) -> None:
    """Create a package with a working source and sink and their tests."""
    if not _NAME.fullmatch(name) or len(name) > _NAME_MAX_LENGTH:
        raise CliError(
            f"{name!r} is not a valid package name: start with a letter, and use letters and "
            "digits with single hyphens between",
            EXIT_USAGE,
        )
    words = re.split(r"[-_]", name)
    module = "_".join(words).lower()
    if keyword.iskeyword(module):
        raise CliError(f"{name!r} is a Python keyword: choose another name", EXIT_USAGE)
    values = {
        "package": "-".join(words).lower(),
        "module": module,
        "name": "".join(word[0].upper() + word[1:] for word in words),
    }
    folder = (into or Path()) / values["package"]
    _write(folder, values)
    say(f"wrote {folder}: try it with `cd {folder} && python -m pytest`")


def _write(folder: Path, values: dict[str, str]) -> None:
    try:
        if folder.exists() and any(folder.iterdir()):
            raise CliError(f"{folder} is not empty: choose another name or --into DIR")
        folder.mkdir(parents=True, exist_ok=True)
        for each in sorted(files("drover.cli").joinpath("package_template").iterdir(), key=str):
            name = each.name.removesuffix(_SUFFIX).replace("module", values["module"])
            text = Template(each.read_text(encoding="utf-8")).substitute(values)
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise CliError(f"{folder} cannot be written: {error.strerror or error}") from error
