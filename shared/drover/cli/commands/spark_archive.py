"""``drover spark-archive``: the packages for executors on a Spark cluster."""

from pathlib import Path
from typing import Annotated

import typer

from drover.cli.console import CliError, Output, OutputOption, plain, print_document, say
from drover.local.spark_archive import ARCHIVE_NAME, write_archive
from drover.model.sizes import size_text


def spark_archive(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE.tar.gz", help="The file to write.", dir_okay=False),
    ],
    output: OutputOption = Output.TABLE,
) -> None:
    """Write an archive of Drover, its libraries and installed plugins for Spark executors.

    Run it where a worker is installed, and name the file in DROVER_SPARK_CONF. Executors then need
    only Spark and the same version of Python.
    """
    if not file.name.endswith((".tar.gz", ".tgz")):
        raise CliError(f"{file} must end with .tar.gz: Spark unpacks an archive by its name")
    try:
        written = write_archive(file)
    except OSError as error:
        raise CliError(f"{error.filename or file} cannot be packed: {error.strerror}") from None
    setting = f"{file.absolute()}#{ARCHIVE_NAME}"
    if output is not Output.TABLE:
        document = {
            "file": str(file.absolute()),
            "spark.archives": setting,
            "size_bytes": written.size_bytes,
            "packages": list(written.packages),
        }
        print_document(document, output)
        return
    say(plain(f"{file}: {len(written.packages)} packages, {size_text(written.size_bytes)}"))
    say(plain(f'use it with DROVER_SPARK_CONF={{"spark.archives": "{setting}"}}'))
