"""``drover migrate``: a report about a running Kafka Connect cluster, and the files of a move."""

import asyncio
import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import grpc.aio
import typer

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.access import present_access, present_directory
from drover.cli.caller import author
from drover.cli.cluster_choice import worker_addresses
from drover.cli.console import (
    EXIT_REFUSED,
    EXIT_USAGE,
    AddressOption,
    CliError,
    Output,
    OutputOption,
    call,
    json_text,
    note_cluster,
    plain,
    print_document,
    print_table,
    say,
)
from drover.client import ConnectClient
from drover.config.config_def import UNDEFINED_GROUP
from drover.errors import DroverError, NotFoundError
from drover.migrate.checks import (
    Finding,
    Report,
    Target,
    Validation,
    check_cluster,
    effective_config,
)
from drover.migrate.files import connector_id
from drover.migrate.http_get import Getter
from drover.migrate.installed import InstalledConnectors
from drover.migrate.read import OldCluster, ReadError, ReadLimits, read_cluster
from drover.migrate.report import (
    COLUMNS,
    definition_text,
    document_of,
    markdown_of,
    rows_of,
    secrets_text,
    summary_of,
)
from drover.migrate.scripts import DEFINITIONS, MOVED, Access, scripts_of
from drover.migrate.worker_properties import WorkerProperties
from drover.private_files import SharedDirectoryError, private_directory, replace_private

_FILE_MAX_BYTES = 1024 * 1024
#: ValidateConfig starts a process for each call.
_VALIDATIONS_AT_ONCE = 4
_SECRETS, _JSON, _MARKDOWN = "secrets.properties", "report.json", "report.md"


def _file_option(help_text: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(
        help=help_text, dir_okay=False, show_default=False
    )
    return option


def migrate(
    url: Annotated[str, typer.Argument(help="Kafka Connect's REST API: http://host:8083.")],
    user: Annotated[str, typer.Option(help="The user of Kafka Connect.")] = "",
    password_file: Annotated[
        Path | None, _file_option("A file with the password of --user.")
    ] = None,
    token_file: Annotated[
        Path | None, _file_option("A file with a bearer token for Kafka Connect.")
    ] = None,
    ca: Annotated[
        Path | None, _file_option("A PEM file with the CA of Kafka Connect's certificate.")
    ] = None,
    worker_properties: Annotated[
        Path | None,
        _file_option("The properties file of Kafka Connect's workers, which REST does not show."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="A new directory for the report, the definitions and the commands of the move.",
            file_okay=False,
            show_default=False,
        ),
    ] = None,
    address: AddressOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Report what a move of a Kafka Connect cluster to Drover needs; reads only.

    Exit codes: 0 if every connector runs unchanged or with the listed differences, 1 if one needs
    a class that Drover does not have, or could not be read, 2 if the cluster cannot be read.
    """
    worker = _worker(worker_properties)
    directory = None if out is None else _checked_directory(out)
    access = Access(
        user=user,
        password_file=_absolute(password_file),
        token_file=_absolute(token_file),
        ca_file=_absolute(ca),
        properties_file=_absolute(worker_properties),
    )
    cluster = _read(url, access)
    installed = InstalledConnectors()
    configs = {each.name: effective_config(each, worker) for each in cluster.connectors}
    target, validations = _validations(address, installed, configs)
    report = check_cluster(
        cluster,
        validations,
        target=target,
        worker=worker,
        find=installed.find,
        secrets_file=str(directory / _SECRETS) if directory else "",
    )
    files = _write(report, access, directory) if directory else []
    if output is not Output.TABLE:
        print_document(document_of(report, files), output)
    else:
        _print(report, directory)
    if not report.is_complete:
        raise typer.Exit(EXIT_REFUSED)


def _read(url: str, access: Access) -> OldCluster:
    limits = ReadLimits()
    try:
        getter = Getter(
            url,
            _credentials(access),
            ca_file=access.ca_file,
            request_s=limits.request_s,
            max_bytes=limits.total_bytes,
        )
    except ValueError as error:
        raise CliError(f"the URL of Kafka Connect {error}", EXIT_USAGE) from None
    except OSError as error:
        reason = error.strerror or "it has no certificates in PEM"
        raise CliError(f"cannot read {access.ca_file}: {reason}", EXIT_USAGE) from None
    try:
        return read_cluster(getter, url, limits)
    except ReadError as error:
        raise CliError(plain(str(error)), EXIT_USAGE) from None


def _credentials(access: Access) -> dict[str, str]:
    if bool(access.user) != bool(access.password_file):
        raise CliError("--user and --password-file need each other: give both", EXIT_USAGE)
    if access.user and access.token_file:
        raise CliError("give --user or --token-file, not both", EXIT_USAGE)
    if access.user:
        password = _secret(access.password_file)
        pair = base64.b64encode(f"{access.user}:{password}".encode()).decode()
        return {"authorization": f"Basic {pair}"}
    if access.token_file:
        token = _secret(access.token_file)
        if not token.isascii() or not token.isprintable():
            raise CliError(f"{access.token_file} has no token: it is not one line of ASCII", 2)
        return {"authorization": f"Bearer {token}"}
    return {}


def _worker(file: Path | None) -> WorkerProperties | None:
    if file is None:
        return None
    try:
        return WorkerProperties.parsed(str(file), _text(str(file)))
    except ValueError as error:
        raise CliError(plain(str(error)), EXIT_USAGE) from None


def _secret(file: str) -> str:
    return _text(file).rstrip("\r\n")


def _text(file: str) -> str:
    try:
        with Path(file).open("rb") as stream:
            raw = stream.read(_FILE_MAX_BYTES + 1)
        text = raw.decode()
    except OSError as error:
        raise CliError(f"cannot read {file}: {error.strerror}", EXIT_USAGE) from None
    except UnicodeDecodeError:
        raise CliError(f"{file} is not UTF-8", EXIT_USAGE) from None
    if len(raw) > _FILE_MAX_BYTES:
        raise CliError(f"{file} is larger than {_FILE_MAX_BYTES} bytes", EXIT_USAGE)
    return text


def _absolute(file: Path | None) -> str:
    return str(file.absolute()) if file else ""


def _validations(
    address: str, installed: InstalledConnectors, configs: Mapping[str, Mapping[str, str]]
) -> tuple[Target, dict[str, Validation]]:
    """Validates all configs: in the named or present cluster, else with the installed library."""
    is_named = bool(address or present_access().address or present_directory())
    try:
        addresses = worker_addresses(address)
        return asyncio.run(
            call(
                addresses,
                lambda channel: _by_cluster(channel, ", ".join(addresses), configs),
                server="worker",
            )
        )
    except DroverError as error:
        text = f"the target cluster refused: {plain(error.message)} ({error.reason})"
        raise CliError(text, EXIT_USAGE) from None
    except CliError as error:
        if is_named:
            raise CliError(str(error), EXIT_USAGE) from None
        note_cluster("")
    return Target(), {name: installed.validate(each) for name, each in configs.items()}


async def _by_cluster(
    channel: grpc.aio.Channel, address: str, configs: Mapping[str, Mapping[str, str]]
) -> tuple[Target, dict[str, Validation]]:
    client = ConnectClient(channel, author=author())
    plugins = (await client.list_plugins()).plugins
    names = frozenset(each.name for each in await client.list_connectors())
    by_name = {name: each for each in plugins for name in (each.class_name, *each.aliases)}
    at_once = asyncio.Semaphore(_VALIDATIONS_AT_ONCE)

    async def one(config: Mapping[str, str]) -> Validation:
        async with at_once:
            plugin = by_name.get(config.get("connector.class", "").strip())
            try:
                return _decoded(plugin, await client.validate_config(config))
            except NotFoundError as error:
                return Validation(missing=error.message)

    async with asyncio.TaskGroup() as group:
        tasks = {name: group.create_task(one(config)) for name, config in configs.items()}
    return Target(address, names), {name: task.result() for name, task in tasks.items()}


def _decoded(plugin: pb.Plugin | None, answer: pb.ValidateConfigResponse) -> Validation:
    return Validation(
        runs_as=plugin.class_name.rpartition(".")[2] if plugin else "a plugin",
        guarantee=_GUARANTEES.get(plugin.guarantee_kafka, "") if plugin else "",
        faults=tuple(
            Finding(each.key.name, text) for each in answer.values for text in each.errors
        ),
        warnings=tuple(
            Finding(each.key.name, text) for each in answer.values for text in each.warnings
        ),
        skipped=tuple(Finding(each.setting, each.reason) for each in answer.skipped_checks),
        secret_settings=frozenset(
            each.key.name for each in answer.values if each.key.type == "PASSWORD"
        ),
        plain_settings=frozenset(
            each.key.name
            for each in answer.values
            if each.key.type != "PASSWORD" and each.key.group != UNDEFINED_GROUP
        ),
    )


_GUARANTEES: Mapping[int, str] = {
    pb.GUARANTEE_AT_MOST_ONCE: "at most once",
    pb.GUARANTEE_AT_LEAST_ONCE: "at least once",
    pb.GUARANTEE_EXACTLY_ONCE: "exactly once",
}


def _checked_directory(out: Path) -> Path:
    """The absolute path of the directory to write; it is new, empty, or has an earlier report."""
    path = out.absolute()
    if any(each in str(path) for each in ":}") or not str(path).isprintable():
        raise CliError(f"--out: {plain(str(path))} must not contain ':' or '}}'", EXIT_USAGE)
    if path.exists() and any(path.iterdir()) and not (path / _JSON).is_file():
        raise CliError(f"--out: {path} is not empty and has no {_JSON}: name another", EXIT_USAGE)
    if any(each for name in MOVED for each in (path / name).glob("*")):
        raise CliError(
            f"--out: connectors were moved with the files in {path}: name another directory",
            EXIT_USAGE,
        )
    return path


def _write(report: Report, access: Access, directory: Path) -> list[str]:
    """Write all files, for the current user only; the file of secrets is never replaced."""
    texts = {
        f"{DEFINITIONS}/{connector_id(each.old.name)}.yaml": definition_text(each)
        for each in report.connectors
    }
    texts |= scripts_of(report, access)
    if secrets := secrets_text(report):
        texts[_SECRETS] = secrets
    files = [*texts, _MARKDOWN, _JSON]
    texts[_MARKDOWN] = markdown_of(report, files)
    texts[_JSON] = json_text(document_of(report, files), indent=2) + "\n"
    try:
        private_directory(directory)
        if (directory / DEFINITIONS).is_symlink():
            raise CliError(f"--out: {directory / DEFINITIONS} is a link: name another directory", 2)
        private_directory(directory / DEFINITIONS)
        for name, text in texts.items():
            if name != _SECRETS or not (directory / name).exists():
                replace_private(directory / name, text)
    except SharedDirectoryError as error:
        raise CliError(f"--out: {directory}: {error}", EXIT_USAGE) from None
    except OSError as error:
        text = f"cannot write {error.filename or directory}: {error.strerror}"
        raise CliError(text, EXIT_USAGE) from None
    return files


def _print(report: Report, directory: Path | None) -> None:
    print_table(COLUMNS, rows_of(report), empty="no connectors")
    say(plain(summary_of(report)))
    if report.worker is None:
        say("the workers' settings are not known: give their file with --worker-properties")
    for each in report.cluster.unknown:
        say(plain(f"not read: {each}"))
    if directory is None:
        say("--out DIR writes all details, the definitions and the commands of the move")
    else:
        say(f"all details: {directory / _MARKDOWN}")
