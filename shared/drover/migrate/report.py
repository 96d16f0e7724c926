"""Shows a report: as a JSON document, as Markdown, and as the rows of a table. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from drover.migrate.checks import Difference, Finished, Report, Verdict
from drover.migrate.files import connector_id
from drover.migrate.read import OldTask
from drover.migrate.scripts import (
    BACK,
    DEFINITIONS,
    SAME_TOPICS,
    SAME_TOPICS_BACK,
    TO_DROVER,
)
from drover.migrate.worker_properties import NOT_KNOWN

#: The version of the JSON document; it grows if a field changes or is removed.
SCHEMA = 1
#: The verdicts in words.
WORDS: Mapping[Verdict, str] = {
    Verdict.UNCHANGED: "unchanged",
    Verdict.DIFFERS: "differs",
    Verdict.NEEDS_JAVA_HOST: "needs the Java host",
    Verdict.MISSING: "missing",
}
COLUMNS = ("CONNECTOR", "STATE", "CLASS", "RUNS AS", "VERDICT", "WHAT TO DO")
_CELL_MAX_CHARS = 160


def document_of(report: Report, files: Sequence[str] = ()) -> dict[str, Any]:
    """The report as a JSON document, which docs/migrate.md describes.

    Args:
        report: The report.
        files: The written files, relative to their directory.
    """
    cluster, worker = report.cluster, report.worker
    return {
        "schema": SCHEMA,
        "kafka_connect": {
            "url": cluster.url,
            "version": cluster.version,
            "kafka_cluster_id": cluster.kafka_cluster_id,
        },
        "checked_by": {
            "kind": "cluster" if report.target.address else "library",
            "address": report.target.address,
        },
        "worker": {
            "known": worker is not None,
            "environment": worker.environment() if worker else {},
            "by_hand": worker.by_hand() if worker else [],
            "not_known": [] if worker else list(NOT_KNOWN),
        },
        "counts": {str(each): report.count(each) for each in Verdict},
        "connectors": [_connector(each) for each in report.connectors],
        "not_read": list(cluster.unknown),
        "files": list(files),
    }


def definition_text(finished: Finished) -> str:
    """The file that creates the connector, stopped: YAML."""
    document = {
        "name": finished.old.name,
        "initial_state": "STOPPED",
        "config": dict(sorted(finished.definition.items())),
    }
    # PyYAML writes some control characters so that they are read as others, unless it escapes all
    is_printable = all(each.isprintable() for pair in finished.definition.items() for each in pair)
    return str(yaml.safe_dump(document, allow_unicode=is_printable, sort_keys=False, width=10_000))


def secrets_text(report: Report) -> str:
    """The file of secrets, without values; empty if no definition has placeholders."""
    keys = [secret.key for each in report.connectors for secret in each.secrets]
    if not keys:
        return ""
    return (
        "# The secrets of the connectors: write the value behind each key.\n"
        "# Workers read this file if DROVER_CONFIG_PROVIDERS allows its directory.\n"
        + "".join(f"{_property_key(key)}=\n" for key in keys)
    )


def rows_of(report: Report) -> list[tuple[str, ...]]:
    """The rows of the table; ``COLUMNS`` are the columns."""
    return [
        (
            each.old.name,
            _state(each),
            each.old.class_name,
            each.runs_as or "-",
            WORDS[each.verdict],
            _to_do(each),
        )
        for each in report.connectors
    ]


def summary_of(report: Report) -> str:
    """The counts in one line."""
    counts = [f"{report.count(each)} {WORDS[each]}" for each in Verdict if report.count(each)]
    by = f"the cluster at {report.target.address}" if report.target.address else "the library"
    unread = len(report.cluster.unread)
    missing = f"; {unread} more could not be read" if unread else ""
    return (
        f"{len(report.connectors)} connectors: {', '.join(counts) or 'none'}{missing}; checked by "
        f"{by}"
    )


def markdown_of(report: Report, files: Sequence[str] = ()) -> str:
    """The report as Markdown."""
    return "\n".join(_markdown(report, files)) + "\n"


def _connector(each: Finished) -> dict[str, Any]:
    old = each.old
    return {
        "name": old.name,
        "class": old.class_name,
        "type": old.kind,
        "verdict": str(each.verdict),
        "runs_as": each.runs_as,
        "can_move": each.can_move,
        "state": old.state,
        "cause": each.cause,
        "tasks": [_task(task) for task in each.tasks],
        "task_count": old.task_count,
        "differences": [_difference(found) for found in each.differences],
        "notes": list(each.notes),
        "secrets": [
            {"setting": secret.setting, "placeholder": secret.text} for secret in each.secrets
        ],
        "delivery": {"before": each.delivery_before, "after": each.delivery_after},
        "offsets": {
            "place": each.offsets_place,
            "count": None if old.offsets is None else len(old.offsets),
            "readable": each.offsets_readable,
        },
        "topics": None if old.topics is None else list(old.topics),
        "topic_creation": each.topic_creation,
        "definition": f"{DEFINITIONS}/{connector_id(old.name)}.yaml",
    }


def _task(task: OldTask) -> dict[str, Any]:
    return {"task": task.number, "state": task.state, "cause": task.cause}


def _difference(found: Difference) -> dict[str, str]:
    return {
        "kind": str(found.kind),
        "setting": found.setting,
        "text": found.text,
        "action": found.action,
    }


def _state(each: Finished) -> str:
    failed = sum(task.state == "FAILED" for task in each.tasks)
    count = f", {failed} of {len(each.tasks)} tasks failed" if failed else ""
    return f"{each.old.state}{count}"


def _to_do(each: Finished) -> str:
    if not each.differences:
        return ""
    first = each.differences[0]
    about = f"{first.setting}: " if first.setting else ""
    more = len(each.differences) - 1
    text = f"{about}{first.text}"
    if len(text) > _CELL_MAX_CHARS:
        text = f"{text[:_CELL_MAX_CHARS]}..."
    return f"{text}{f' (and {more} more)' if more else ''}"


def _markdown(report: Report, files: Sequence[str]) -> Iterator[str]:
    cluster = report.cluster
    yield "# Move from Kafka Connect to Drover"
    yield ""
    yield (
        f"Kafka Connect {_text(cluster.version)} at {_text(cluster.url)}, Kafka cluster "
        f"{_text(cluster.kafka_cluster_id) or 'not known'}. {_text(summary_of(report))}."
    )
    yield ""
    yield "| Connector | State | Class | Runs as | Verdict |"
    yield "|---|---|---|---|---|"
    for name, state, class_name, runs_as, verdict, _ in rows_of(report):
        cells = (name, state, class_name, runs_as, verdict)
        yield f"| {' | '.join(map(_text, cells))} |"
    for each in report.connectors:
        yield from _section(each)
    yield from _worker(report)
    if cluster.unknown:
        yield from ("", "## Not read", "")
        yield from (f"- {_text(each)}" for each in cluster.unknown)
    if files:
        yield from _steps(report)


def _section(each: Finished) -> Iterator[str]:
    old = each.old
    yield from ("", f"## {_text(old.name)}: {WORDS[each.verdict]}", "")
    if each.cause:
        yield f"- failed in Kafka Connect: {_text(each.cause)}"
    for task in each.tasks:
        if task.cause:
            yield f"- task {task.number} is {_text(task.state)}: {_text(task.cause)}"
    for found in each.differences:
        about = f"**{_text(found.setting)}**: " if found.setting else ""
        yield f"- {found.kind}: {about}{_text(found.text)}. To do: {_text(found.action)}"
    for note in each.notes:
        yield f"- note: {_text(note)}"
    yield f"- delivery: {_text(each.delivery_before)}; in Drover: {_text(each.delivery_after)}"
    count = "not known" if old.offsets is None else str(len(old.offsets))
    yield f"- offsets: {count}, in {_text(each.offsets_place)}"
    if old.topics is not None:
        yield f"- topics: {_text(', '.join(old.topics)) or 'none yet'}"
    if each.topic_creation:
        creation = ", ".join(f"{name}={value}" for name, value in each.topic_creation.items())
        yield f"- settings of created topics: {_text(creation)}"


def _worker(report: Report) -> Iterator[str]:
    yield from ("", "## Workers", "")
    if report.worker is None:
        yield "Not known, because the REST API does not show it (use `--worker-properties FILE`):"
        yield ""
        yield from (f"- {each}" for each in NOT_KNOWN)
        return
    yield "| Setting of Drover | Value |"
    yield "|---|---|"
    for name, value in report.worker.environment().items():
        yield f"| {name} | {_text(value)} |"
    for each in report.worker.by_hand():
        yield from ("", f"- by hand: {_text(each)}")


def _steps(report: Report) -> Iterator[str]:
    yield from ("", "## One connector after the other", "")
    yield (
        "Drover runs beside Kafka Connect, with separate topics on the same Kafka cluster. Each "
        "connector is created stopped, stopped in Kafka Connect, given its offsets, and resumed."
    )
    yield ""
    if any(each.secrets for each in report.connectors):
        yield (
            "1. Write the secrets into `secrets.properties`, and allow its directory in "
            "`DROVER_CONFIG_PROVIDERS` of the workers."
        )
    yield f"1. `bash {TO_DROVER}` moves the connectors that can move; it lists the others."
    yield f"1. `bash {BACK}` gives the moved connectors back, with their offsets."
    yield from ("", "## All at once, over the same topics", "")
    if report.worker is None:
        yield "Needs the workers' properties: repeat the report with `--worker-properties FILE`."
        return
    yield "1. Stop every worker of Kafka Connect with SIGTERM, and wait until it has ended."
    yield f"1. `bash {SAME_TOPICS}` starts Drover with the same group and topics."
    yield (
        f"1. To return: `bash {SAME_TOPICS_BACK}` stops Drover; then start the workers of Kafka "
        "Connect again."
    )


def _text(text: str) -> str:
    """Text from a server in one line of Markdown, without markup."""
    plain = "".join(each if each.isprintable() else " " for each in text)
    return "".join(f"\\{each}" if each in "\\`*_{}[]<>#|!~" else each for each in plain)


def _property_key(key: str) -> str:
    return "".join(f"\\{each}" if each in "\\=: #!" else each for each in key)
