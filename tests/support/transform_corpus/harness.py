"""Runs cases of the golden corpus on Drover's transforms and compares the results."""

import base64
import datetime
import decimal
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from drover.record import (
    HEADERS_TYPE,
    Field,
    RecordError,
    Schema,
    Type,
    arrow_field,
    column_schema,
    make_batch,
)
from drover.record.batch import HEADERS, KEY, OFFSET, PARTITION, TIMESTAMP, TOPIC, VALUE
from drover.record.json.schemaless import dumps, loads
from drover.record.schema import DECIMAL, is_schemaless
from drover.transform.registry import PREDICATES, TRANSFORMS
from drover.transform.transform import Predicate, Transform
from tests.support.repository import REPOSITORY
from tests.support.transform_corpus.cases import Json

GOLDEN = REPOSITORY / "tests" / "golden" / "transforms"
JAVA_GOLDEN = GOLDEN.parent / "java.jsonl"
CONFIG_ERROR, RECORD_ERROR = "the config is refused", "the record is refused"
#: Kafka Connect returned a value that violates its own schema, which none of its converters can
#: write: Drover may reject the record, or return a better value.
UNFIT = "unfit"
#: The type of a header's value without schema.
_NO_SCHEMA = "null"
#: Settings that fail in Kafka Connect with some records, but not with the case's record; Drover
#: rejects them at validation.
_REFUSED_BEFORE = {"RegexRouter: config {'regex': 'o+', 'replacement': '$x'}"}
#: Records of which Kafka Connect loses a field, because another one has its new name.
_FIELD_LOST = {
    "Flatten: plain names that clash": "more than one field called 'a.b'",
    "ReplaceField: plain {'renames': 'whole:number,text:words'}": "called 'number'",
    "ReplaceField: plain {'renames': 'whole:number,text:words'} (key)": "called 'number'",
    "ReplaceField: plain {'renames': 'whole:text'}": "called 'text'",
    "ReplaceField: plain {'renames': 'whole:text'} (key)": "called 'text'",
}
#: The results of the UNFIT cases, by id: a part of the error or of the output.
_OWN_WAY = {
    "Cast: a whole timestamp to string": "'2024-02-29T12:34:56.789Z'",
    "InsertField: no partition! into every": "'f' is required: no partition is known",
    "InsertField: no timestamp! into every": "'f' is required: no timestamp is known",
    "InsertField: no partition! into an optional": "'f' is required: no partition is known",
    "InsertField: no timestamp! into an optional": "'f' is required: no timestamp is known",
    "InsertHeader: '[1,\"a\"]'": "('h', None, [1, 'a'])",
    "InsertHeader: '[]'": "('h', None, [])",
    "InsertHeader: '{}'": "('h', None, {})",
}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class Case:
    """A case of the corpus; ``expected`` is a record, None when dropped, a truth (of predicates),
    CONFIG_ERROR, RECORD_ERROR (``told`` is then what Kafka Connect says) or UNFIT.
    """

    id: str
    class_name: str
    config: Mapping[str, str]
    record: Json
    expected: Any
    told: str = ""

    @property
    def fails(self) -> bool:
        """Whether the case has no output record."""
        return self.told != ""


def load_cases() -> list[Case]:
    """All cases, in order of file and line."""
    return [
        _case(path.stem, json.loads(line))
        for path in sorted(GOLDEN.glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]


def grouped(cases: Iterable[Case]) -> list[list[Case]]:
    """The cases that fit in one batch: same transform, settings and schemas, and no failing
    record.
    """
    groups: dict[str, list[Case]] = {}
    for each in cases:
        if not each.fails and each.expected != UNFIT:
            schemas = [each.record[side]["schema"] for side in (KEY, VALUE)]
            shape = json.dumps([each.class_name, dict(each.config), schemas])
            groups.setdefault(shape, []).append(each)
    return list(groups.values())


def assert_alone(case: Case) -> None:
    """The case as a batch of one record gives Kafka Connect's result."""
    outcome, found = _outcome(case)
    wanted = case.told or case.expected
    if case.expected == UNFIT:
        assert _OWN_WAY[case.id] in str(found)
        return
    if outcome == CONFIG_ERROR:
        # an error that Kafka Connect finds with the first record may be found earlier
        assert case.fails, f"{outcome}: {found}; wanted {wanted}"
    elif outcome == RECORD_ERROR:
        assert case.expected == RECORD_ERROR, f"{outcome}: {found}; wanted {wanted}"
    else:
        assert not case.fails, f"came out as {found}; wanted {wanted}"
        _compare(found, [case], lenient_nulls=False)


def assert_together(cases: Sequence[Case]) -> None:
    """The cases as one slice of a longer batch give the same results."""
    step = _step(cases[0])
    # at least three rows, to detect results computed once for all rows
    several = [*cases, *cases, *cases][: max(3, len(cases))]
    _compare(_run(step, several), several, lenient_nulls=True)


def schema_from(found: Json) -> Schema | None:
    """The schema of the JSON converter's form."""
    if found is None:
        return None
    parts = {name: found.get(name) for name in ("name", "version", "doc")}
    values = found.get("items") if found["type"] == "array" else found.get("values")
    return Schema(
        Type(found["type"]),
        optional=found.get("optional", False),
        default=json.dumps(found["default"]) if found.get("default") is not None else None,
        parameters=MappingProxyType(found.get("parameters") or {}),
        fields=tuple(Field(each["field"], _schema(each)) for each in found.get("fields", ())),
        key_schema=schema_from(found.get("keys")),
        value_schema=schema_from(values),
        **parts,
    )


def _schema(found: Json) -> Schema:
    schema = schema_from(found)
    assert schema is not None
    return schema


def _case(file: str, line: Json) -> Case:
    told = ""
    if "error" in line:
        told = f"{line['error']['class']}: {line['error']['message']}"
        expected: Any = CONFIG_ERROR if line["error"]["at"] == "configure" else RECORD_ERROR
    elif "matches" in line:
        expected = line["matches"]
    elif line["expected"] is None:
        expected = None
    elif _is_unfit(line["expected"]):
        expected = UNFIT
    else:
        expected = line["record"] | line["expected"]
    name = f"{file}: {line['name']}"
    if name in _REFUSED_BEFORE:
        told, expected = "settings that would fail with other records", CONFIG_ERROR
    if name in _FIELD_LOST:
        told, expected = _FIELD_LOST[name], RECORD_ERROR
    return Case(name, line["class"], line["config"], line["record"], expected, told)


def _is_unfit(found: Json) -> bool:
    if isinstance(found, dict):
        return "@other" in found or any(map(_is_unfit, found.values()))
    return isinstance(found, list) and any(map(_is_unfit, found))


def _step(case: Case) -> Transform | Predicate:
    """The transform or predicate of the case.

    Raises:
        ValueError: Its config is invalid.
    """
    is_predicate = ".predicates." in case.class_name
    # without a class every case of it fails, with that reason
    registry: Any = PREDICATES if is_predicate else TRANSFORMS
    try:
        found = registry.find(case.class_name)
    except ValueError as error:
        raise AssertionError(str(error)) from error
    parsed = found.config_def().parse(case.config)
    if parsed.violations:
        raise ValueError(str(parsed.violations))
    step: Transform | Predicate = found(parsed.values)
    return step


def _outcome(case: Case) -> tuple[str, Any]:
    """The outcome: an error's message, or records."""
    try:
        step = _step(case)
    except ValueError as error:
        return CONFIG_ERROR, error
    try:
        return "", _run(step, [case])
    except RecordError as error:
        return RECORD_ERROR, error


def _run(step: Transform | Predicate, cases: Sequence[Case]) -> list[Any]:
    batch = _batch([cases[0].record, *(each.record for each in cases)]).slice(1)
    if isinstance(step, Predicate):
        matches: list[bool] = step.matches(batch).to_pylist()
        return list(matches)
    return [record for each in step(batch) for record in _records(each)]


# records as batches


def _batch(records: Sequence[Json]) -> pa.RecordBatch:
    columns: dict[str, Any] = {
        TOPIC: pa.array([each["topic"] for each in records], pa.string()),
        PARTITION: pa.array([each["partition"] for each in records], pa.int32()),
        OFFSET: pa.array([each["offset"] for each in records], pa.int64()),
        TIMESTAMP: pa.array([each["timestamp"] for each in records], pa.timestamp("ms", "UTC")),
        HEADERS: pa.array([_headers(each["headers"]) for each in records], HEADERS_TYPE),
    }
    for side in (KEY, VALUE):
        schema = schema_from(records[0][side]["schema"])
        field = arrow_field(side, schema)
        payloads = [each[side]["payload"] for each in records]
        columns[side] = (field, pa.array([_read(schema, each) for each in payloads], field.type))
    return make_batch(len(records), **columns)


def _headers(headers: Json) -> list[dict[str, Any]]:
    return [
        {
            "key": key,
            "value": json.dumps(payload).encode(),
            "type": _NO_SCHEMA if schema is None else json.dumps(schema),
        }
        for key, schema, payload in headers
    ]


def _read(schema: Schema | None, payload: Json) -> Any:
    """A payload for pa.array."""
    if schema is None:
        return None if payload is None else dumps(_untagged(payload))
    return _typed(schema, payload)


def _typed(schema: Schema, payload: Json) -> Any:
    if payload is None:
        return None
    match schema.type:
        case _ if schema.name == DECIMAL:
            return decimal.Decimal(payload)
        case Type.BYTES:
            return base64.b64decode(payload)
        case Type.FLOAT32:
            with np.errstate(over="ignore"):
                return float(np.float32(payload))
        case Type.FLOAT64:
            return float(payload)
        case Type.STRUCT:
            return {
                each.name: _typed(each.schema, payload.get(each.name)) for each in schema.fields
            }
        case Type.ARRAY:
            return [_typed(_of(schema.value_schema), each) for each in payload]
        case Type.MAP:
            return [
                (_typed(_of(schema.key_schema), key), _typed(_of(schema.value_schema), value))
                for key, value in payload
            ]
    return payload


def _of(schema: Schema | None) -> Schema:
    assert schema is not None
    return schema


def _untagged(payload: Json) -> Any:
    match payload:
        case {"@byte": int(number)} | {"@short": int(number)} | {"@int": int(number)}:
            return number
        case {"@float": str(text)}:
            # the shortest text: Java had longer ones before 19
            return float(str(np.float32(text)))
        case {"@double": str(text)}:
            return float(text)
        case {"@decimal": str(text)}:
            return decimal.Decimal(text)
        case {"@date": int(at_ms)}:
            return _EPOCH + datetime.timedelta(milliseconds=at_ms)
        case {"@bytes": str(text)}:
            return base64.b64decode(text)
        case dict():
            return {name: _untagged(each) for name, each in payload.items()}
        case list():
            return [_untagged(each) for each in payload]
    return payload


# batches as records, comparable ones


def _records(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    plain = {name: batch.column(name).to_pylist() for name in (TOPIC, PARTITION, OFFSET)}
    plain[TIMESTAMP] = batch.column(TIMESTAMP).cast(pa.int64()).to_pylist()
    plain[HEADERS] = [_found_headers(each) for each in batch.column(HEADERS).to_pylist()]
    for side in (KEY, VALUE):
        schema, values = column_schema(batch, side), batch.column(side)
        if is_schemaless(batch.schema.field(side)):
            found = [None if text is None else loads(text) for text in values.to_pylist()]
        else:
            found = _found_values(values)
        plain[side] = [(_canonical(schema), each) for each in found]
    return [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]


def _found_headers(headers: list[dict[str, Any]] | None) -> list[Any]:
    found = []
    for each in headers or []:
        assert each["type"] is not None, f"the header {each['key']} has lost its type"
        schema = schema_from(json.loads(each["type"]))
        text = None if each["value"] is None else each["value"].decode()
        found.append((each["key"], _canonical(schema), None if text is None else loads(text)))
    return found


def _found_values(values: Any) -> list[Any]:
    """Values with logical types as numbers, which have no bounds as Python's classes have."""
    kind = values.type
    if pa.types.is_temporal(kind):
        return list(values.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist())
    if pa.types.is_struct(kind):
        columns = {
            kind.field(index).name: _found_values(values.field(index))
            for index in range(kind.num_fields)
        }
        return [
            {name: column[row] for name, column in columns.items()} if valid else None
            for row, valid in enumerate(values.is_valid().to_pylist())
        ]
    if pa.types.is_map(kind):
        found = []
        for each in values:
            pairs = _found_values(each.values) if each.is_valid else None
            found.append(pairs and [tuple(pair.values()) for pair in pairs])
        return found
    if pa.types.is_list(kind):
        return [_found_values(each.values) if each.is_valid else None for each in values]
    return list(values.to_pylist())


def _wanted(record: Json) -> dict[str, Any]:
    wanted = {name: record[name] for name in (TOPIC, PARTITION, OFFSET, TIMESTAMP)}
    wanted[HEADERS] = [
        (key, _canonical(schema_from(schema)), _header_json(schema_from(schema), payload))
        for key, schema, payload in record["headers"]
    ]
    for side in (KEY, VALUE):
        schema, payload = schema_from(record[side]["schema"]), record[side]["payload"]
        value = _untagged(payload) if schema is None else _typed(schema, payload)
        wanted[side] = (_canonical(schema), value)
    return wanted


def _header_json(schema: Schema | None, payload: Json) -> Any:
    """A header's value as the JSON converter writes it, parsed."""
    if schema is None or payload is None:
        return _untagged(payload)
    if schema.name == DECIMAL:
        scale = int(schema.parameters["scale"])
        unscaled = int(decimal.Decimal(payload).scaleb(scale))
        size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
        return base64.b64encode(unscaled.to_bytes(size, "big", signed=True)).decode()
    if schema.type is Type.STRUCT:
        return {each.name: _header_json(each.schema, payload[each.name]) for each in schema.fields}
    if schema.type is Type.ARRAY:
        return [_header_json(_of(schema.value_schema), each) for each in payload]
    if schema.type is Type.MAP:
        pairs = [
            [
                _header_json(_of(schema.key_schema), key),
                _header_json(_of(schema.value_schema), each),
            ]
            for key, each in payload
        ]
        return dict(pairs) if _of(schema.key_schema).type is Type.STRING else pairs
    return payload


def _canonical(schema: Schema | None) -> Schema | None:
    """The schema with its default in one spelling."""
    if schema is None:
        return None
    default = schema.default
    if default is not None:
        found = json.loads(default)
        is_real = schema.type in (Type.FLOAT32, Type.FLOAT64)
        default = json.dumps(float(found) if is_real else found, sort_keys=True)
    return replace(
        schema,
        default=default,
        parameters=dict(schema.parameters),
        fields=tuple(Field(each.name, _of(_canonical(each.schema))) for each in schema.fields),
        key_schema=_canonical(schema.key_schema),
        value_schema=_canonical(schema.value_schema),
    )


def _compare(found: list[Any], cases: Sequence[Case], *, lenient_nulls: bool) -> None:
    """``lenient_nulls``: a null among values has their schema, whatever its own."""
    wanted = [each.expected for each in cases if each.expected is not None]
    assert len(found) == len(wanted), f"{len(found)} records came out instead of {len(wanted)}"
    for one, other in zip(found, wanted, strict=True):
        if isinstance(other, bool):
            assert one is other
            continue
        expected = _wanted(other)
        for name, part in expected.items():
            actual = one[name]
            if name in (KEY, VALUE) and lenient_nulls and part[1] is None:
                actual, part = actual[1], None
            assert _same(actual, part), f"{name} is\n  {actual}\ninstead of\n  {part}"


def _same(one: Any, other: Any) -> bool:
    match one, other:
        case (float(), float()):
            return one == other or (math.isnan(one) and math.isnan(other))
        case (dict(), dict()):
            return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
        case (list() | tuple(), list() | tuple()):
            return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and bool(one == other)


@dataclass(frozen=True, slots=True)
class JavaAnswer:
    """A JVM function's result; ``fails``: it threw an exception."""

    function: str
    arguments: tuple[Any, ...]
    answer: Any
    fails: bool

    @property
    def id(self) -> str:
        """The test's readable id."""
        return f"{self.function}: {', '.join(map(repr, self.arguments))}"


def java_answers() -> list[JavaAnswer]:
    """All stored results of the JVM."""
    lines = map(json.loads, JAVA_GOLDEN.read_text().splitlines())
    return [
        JavaAnswer(each["ask"], tuple(each["of"]), each.get("answer"), "error" in each)
        for each in lines
    ]
