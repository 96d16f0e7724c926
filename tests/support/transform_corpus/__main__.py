"""Runs every case on the JVM and writes the golden files; see the package."""

import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.support.kafka.jars import find_jars
from tests.support.repository import REPOSITORY
from tests.support.transform_corpus import field_cases, record_cases, value_cases
from tests.support.transform_corpus.cases import Cases, Json
from tests.support.transform_corpus.java_questions import questions

GOLDEN = REPOSITORY / "tests" / "golden" / "transforms"
JAVA_GOLDEN = REPOSITORY / "tests" / "golden" / "java.jsonl"
_PROGRAM = REPOSITORY / "tests" / "support" / "transform_corpus" / "TransformCorpus.java"
_TIMEOUT_S = 300
_COMPACT = json.JSONEncoder(separators=(",", ":")).encode
_sorted = json.JSONEncoder(sort_keys=True).encode
_ALL: Sequence[Callable[[], Cases]] = (
    value_cases.cast,
    value_cases.timestamp_converter,
    field_cases.extract_field,
    field_cases.flatten,
    field_cases.hoist_field,
    field_cases.insert_field,
    field_cases.mask_field,
    field_cases.replace_field,
    field_cases.set_schema_metadata,
    field_cases.value_to_key,
    record_cases.drop_headers,
    record_cases.filter_,
    record_cases.header_from,
    record_cases.insert_header,
    record_cases.regex_router,
    record_cases.timestamp_router,
    record_cases.has_header_key,
    record_cases.record_is_tombstone,
    record_cases.topic_name_matches,
)


def main() -> None:
    """Write one file for each transform and predicate, and one for the JVM's own rules."""
    GOLDEN.mkdir(parents=True, exist_ok=True)
    by_file: list[tuple[str, list[Json]]] = []
    for make in _ALL:
        cases = make()
        by_file.append((cases.class_name.rpartition(".")[2], list(cases.found.values())))
    asked = questions()
    answers = _answers([case for _, cases in by_file for case in cases] + asked)
    for name, found in by_file:
        lines = [case | _changes(case["record"], next(answers)) for case in found]
        _write(GOLDEN / f"{name}.jsonl", lines)
    _write(JAVA_GOLDEN, [question | next(answers) for question in asked])


def _changes(record: Json, answer: Json) -> Json:
    """The result without the unchanged parts of the record."""
    if answer.get("expected") is None:
        return answer
    changed = {
        name: part
        for name, part in answer["expected"].items()
        # compared as text: 0, 0.0 and false are equal otherwise
        if _sorted(part) != _sorted(record[name])
    }
    return {"expected": changed}


def _answers(lines: Sequence[Json]) -> Iterator[Json]:
    jars = find_jars()

    command = [str(jars.java), "-XX:TieredStopAtLevel=1", "-Duser.language=en", "-Duser.country=US"]
    command += ["-cp", f"{jars.directory}/*", str(_PROGRAM)]
    asked = "".join(f"{json.dumps(line)}\n" for line in lines)
    done = subprocess.run(
        command, input=asked, stdout=subprocess.PIPE, text=True, timeout=_TIMEOUT_S, check=True
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(lines), f"{len(answers)} answers to {len(lines)} cases"
    return iter(answers)


def _write(path: Path, lines: Sequence[Json]) -> None:
    text = "".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in lines)
    path.write_text(text)


if __name__ == "__main__":
    main()
