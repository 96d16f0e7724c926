"""Every sink: a bad record stops nothing that errors.tolerance covers.

Good, bad and good records; the bad ones become dead letters with their position and a reason that
names the value, and the good ones arrive once.
"""

import json
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from drover.testing import Record, SinkKit, TaskFailedError
from tests.databases.conftest import s3, s3_server
from tests.support.own_connectors import ON_KAFKA, SINKS, Place, SinkCase
from tests.support.previews import previewed, rejected

__all__ = ["s3", "s3_server"]
pytestmark = pytest.mark.spark

JSON_VALUES = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}
TOLERATES = {
    "errors.tolerance": "all",
    "errors.deadletterqueue.topic.name": "bad",
    "errors.deadletterqueue.context.headers.enable": "true",
}
GOOD = {"id": 0, "n": 1, "city": "Oslo", "at": "2024-01-01T00:00:00Z", "s": {"x": 1}}


@dataclass(frozen=True)
class Bad:
    """A value that a sink cannot write, and words of the reason; the key is by default text."""

    value: Any
    words: str
    key: Any = "k"


@dataclass(frozen=True)
class Contract:
    """The bad records of a sink with ``config``; empty for a sink that writes any record."""

    bad: Sequence[Bad] = ()
    config: Mapping[str, str] = field(default_factory=dict)


NO_OBJECTS = [Bad("text", "'text'"), Bad([1], r"\[1\]"), Bad(5, "5"), Bad(True, "True")]
#: The table has the types of GOOD.
NO_ROWS = [
    *NO_OBJECTS,
    Bad({**GOOD, "n": "x"}, "'n' has the value 'x'"),
    Bad({**GOOD, "n": 2**63}, "'n' has the value .*9223372036854775808"),
    Bad({**GOOD, "n": 10**40}, "'n' has the value"),
    Bad({**GOOD, "n": 1.5}, "'n' has the value 1.5"),
    Bad({**GOOD, "n": [1]}, r"'n' has the value \[1\]"),
    Bad({**GOOD, "s": {"x": "y"}}, "'s.x' has the value 'y'"),
    Bad({**GOOD, "s": 7}, "'s' has the value 7"),
    Bad({**GOOD, "": 1}, "no column ''"),
    Bad({**GOOD, "more": 1}, "no column 'more'"),
]
NO_DIRECTORY = [
    *NO_OBJECTS,
    Bad({"id": 1, "at": GOOD["at"]}, "'city'"),
    Bad({**GOOD, "city": ["a"]}, "'city'.*'a'"),
    Bad({**GOOD, "city": "x" * 700}, "xxx"),
    Bad({**GOOD, "at": "garbage"}, "'garbage'"),
    Bad({**GOOD, "at": 2**62}, "4611686018427387904"),
]
CONTRACTS: Mapping[str, Sequence[Contract]] = {
    "ConsoleSink": [Contract()],
    "NullSink": [Contract()],
    "FileStreamSink": [
        Contract(config={"value.converter": "org.apache.kafka.connect.storage.StringConverter"})
    ],
    "HttpSink": [Contract()],
    "JdbcSink": [Contract(NO_OBJECTS)],
    "DeltaSink": [
        Contract(NO_ROWS),
        Contract(
            [*NO_ROWS, Bad({"n": 1}, "no 'id', which is a key"), Bad({"id": None}, "no 'id'")],
            {"insert.mode": "upsert", "pk.mode": "record_value", "pk.fields": "id"},
        ),
        Contract(
            [Bad(GOOD, "key.*no column|'id'", key=None), Bad(GOOD, "'id' .*'x'", key="x")],
            {
                "insert.mode": "upsert",
                "pk.mode": "record_key",
                "pk.fields": "id",
                "key.converter": JSON_VALUES["value.converter"],
                "key.converter.schemas.enable": "false",
            },
        ),
    ],
    "IcebergSink": [
        Contract(NO_ROWS),
        Contract(
            [*NO_ROWS, Bad({"n": 1}, "no 'id', which is a key"), Bad({"id": None}, "no 'id'")],
            {
                "iceberg.tables.upsert-mode-enabled": "true",
                "iceberg.tables.default-id-columns": "id",
            },
        ),
    ],
    "FilesSink": [
        Contract(NO_DIRECTORY, {"partition.by": "city,day(at)"}),
        Contract(),
    ],
    "S3Sink": [
        Contract(
            [*NO_DIRECTORY, Bad({**GOOD, "city": None}, "'city'")],
            {
                "partitioner.class": "FieldPartitioner",
                "partition.field.name": "city,at",
            },
        ),
    ],
}
#: Sinks whose preview has the records that a run rejects, with the same reasons.
PREDICTED = ("DeltaSink", "IcebergSink", "FilesSink", "S3Sink")
#: Cases that need a server or a catalogue: with the suite of faults.
_SLOW = ("S3Sink",)


def cases() -> list[Any]:
    return [
        pytest.param(
            name,
            each,
            id=f"{name}-{index}",
            marks=[pytest.mark.faults("connectors")] if name in _SLOW else [],
        )
        for name, contracts in CONTRACTS.items()
        for index, each in enumerate(contracts)
    ]


def bad_of(name: str, contract: Contract) -> list[Bad]:
    """Only texts and lists as directories are bad for times without a time partitioner."""
    if name == "S3Sink":
        return [each for each in contract.bad if not _is_time(each)]
    return list(contract.bad)


def _is_time(each: Bad) -> bool:
    return isinstance(each.value, dict) and each.value.get("at") != GOOD["at"]


def fed(kit: SinkKit, values: Sequence[Any], keys: Sequence[Any]) -> None:
    kit.feed(
        [json.dumps(each).encode() for each in values],
        keys=[None if each is None else json.dumps(each).encode() for each in keys],
        partition=0,
    )


def offset_of(letter: Record) -> int:
    return int(dict(letter.headers)["__connect.errors.offset"] or b"")


def reason_of(letter: Record) -> str:
    return (dict(letter.headers)["__connect.errors.exception.message"] or b"").decode()


def case_of(name: str, place: Place) -> SinkCase:
    """The sink's case of the kit; values without schemas need a table that exists."""
    if name == "JdbcSink":
        with closing(sqlite3.connect(place.path / "rows.db")) as connection:
            connection.execute(
                "CREATE TABLE records (id INTEGER, n INTEGER, city TEXT, at TEXT, s TEXT)"
            )
    return SINKS[name](place)


@pytest.mark.parametrize(("name", "contract"), cases())
def test_bad_records_become_dead_letters_and_good_ones_arrive_once(
    sink_kit: Callable[..., SinkKit],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    name: str,
    contract: Contract,
) -> None:
    case = case_of(name, Place(tmp_path, request))
    kit = sink_kit(case.kind, {**case.config, **JSON_VALUES, **contract.config, **TOLERATES})
    fed(kit, [{**GOOD, "id": 100}], [100])
    kit.run()
    bad = bad_of(name, contract)
    values: list[Any] = [{**GOOD, "id": 0}]
    keys: list[Any] = [0]
    for number, each in enumerate(bad):
        value = each.value
        if isinstance(value, dict) and value.get("id") == 0:
            value = {**value, "id": 1_000 + number}
        values += [value, {**GOOD, "id": number + 1}]
        keys += [each.key, number + 1]
    fed(kit, values, keys)
    predicted = rejected(previewed(kit)) if name in PREDICTED else None
    kit.run_uncommitted()
    kit.run()
    found = sorted(case.found(kit))
    good = [*range(len(bad) + 1), 100]
    if case.once:
        assert found == good
    if not bad:
        return
    letters = {offset_of(each): reason_of(each) for each in kit.records("bad")}
    assert sorted(letters) == [2 * number + 2 for number in range(len(bad))]
    for number, each in enumerate(bad):
        assert re.search(each.words, letters[2 * number + 2]), letters[2 * number + 2]
    if predicted is not None:
        assert predicted == {f"records-0@{offset}": text for offset, text in letters.items()}


@pytest.mark.parametrize(
    "name", sorted(name for name, own in CONTRACTS.items() if own[0].bad and name not in _SLOW)
)
def test_without_tolerance_a_bad_record_fails_the_task_and_is_named(
    sink_kit: Callable[..., SinkKit], request: pytest.FixtureRequest, tmp_path: Path, name: str
) -> None:
    contract = CONTRACTS[name][0]
    case = case_of(name, Place(tmp_path, request))
    kit = sink_kit(case.kind, {**case.config, **JSON_VALUES, **contract.config})
    fed(kit, [{**GOOD, "id": 0}, contract.bad[0].value, {**GOOD, "id": 1}], [0, 1, 2])
    with pytest.raises(TaskFailedError, match=r"record records-0@1 .*errors\.tolerance=all"):
        kit.run()
    assert kit.committed == {}


def test_every_sink_has_a_contract() -> None:
    assert {*CONTRACTS, *ON_KAFKA} >= SINKS.keys()
