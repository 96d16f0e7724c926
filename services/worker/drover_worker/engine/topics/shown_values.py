"""Values from the JSON in which people see them (JsonForm SHOWN), checked with a schema."""

import base64
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from drover.record import schema as schemas
from drover.record.errors import RecordError
from drover.record.json.values import exact_json, reader_of
from drover.record.schema import Schema, Type
from drover.transform.exact_texts import moment_of, time_of_day

#: Faults of one value that are listed.
FAULTS_MAX = 20
_BYTES = "bytes"
_DAY_NS, _MS_NS, _US_NS = 86_400 * 10**9, 10**6, 10**3
_DEBEZIUM = "io.debezium.time."
#: The functions that read ISO 8601 as nanoseconds, and the nanoseconds of the unit, by schema name.
_TIMES: Mapping[str, tuple[Callable[[str], Decimal | None], int]] = {
    schemas.DATE: (moment_of, _DAY_NS),
    schemas.TIME: (time_of_day, _MS_NS),
    schemas.TIMESTAMP: (moment_of, _MS_NS),
    f"{_DEBEZIUM}Date": (moment_of, _DAY_NS),
    f"{_DEBEZIUM}Time": (time_of_day, _MS_NS),
    f"{_DEBEZIUM}MicroTime": (time_of_day, _US_NS),
    f"{_DEBEZIUM}NanoTime": (time_of_day, 1),
    f"{_DEBEZIUM}Timestamp": (moment_of, _MS_NS),
    f"{_DEBEZIUM}MicroTimestamp": (moment_of, _US_NS),
    f"{_DEBEZIUM}NanoTimestamp": (moment_of, 1),
}
_INTEGERS = (Type.INT8, Type.INT16, Type.INT32, Type.INT64)
_VARIABLE_SCALE = "io.debezium.data.VariableScaleDecimal"

#: Adds the path of a part of the value, and what is wrong with it.
Note = Callable[[str, str], None]


def connect_value(text: str, schema: Schema) -> tuple[Any, list[str]]:
    """The value of a JSON text as parsed JSON in Kafka Connect's form, and every fault."""
    faults: list[str] = []

    def note(path: str, fault: str) -> None:
        if len(faults) < FAULTS_MAX:
            faults.append(f"{path}: {fault}" if path else fault)

    try:
        found = exact_json(text)
    except ValueError as error:
        return None, [f"is not JSON: {error}"]
    return _value(found, schema, "", note), faults


def _value(found: Any, schema: Schema, path: str, note: Note) -> Any:
    if found is None:
        if not schema.optional and schema.default is None:
            note(path, f"must be of type {_named(schema)}, not null")
        return None
    if schema.name == _VARIABLE_SCALE and _is_number(found):
        return _variable_scale(Decimal(str(found)))
    match schema.type:
        case Type.STRUCT:
            return _struct(found, schema, path, note)
        case Type.ARRAY if isinstance(found, list):
            assert schema.value_schema is not None
            item = schema.value_schema
            return [_value(each, item, f"{path}[{n}]", note) for n, each in enumerate(found)]
        case Type.MAP if isinstance(found, dict | list):
            return _map(found, schema, path, note)
    return _leaf(_read_text(found, schema), found, schema, path, note)


def _leaf(value: Any, found: Any, schema: Schema, path: str, note: Note) -> Any:
    try:
        reader_of(schema)(value)
    except RecordError as error:
        shown = str(error) if value is found else f"{found!r} is no value of type {schema.type}"
        note(path, f"must be of type {_named(schema)}: {shown}")
    return value


def _read_text(found: Any, schema: Schema) -> Any:
    """A time of ISO 8601 as a number, and labelled bytes as base64; other values unchanged."""
    time = _TIMES.get(schema.name or "")
    if time is not None and isinstance(found, str) and schema.type in _INTEGERS:
        read, unit_ns = time
        nanoseconds = read(found)
        if nanoseconds is not None and nanoseconds % unit_ns == 0:
            return int(nanoseconds / unit_ns)
    is_labelled = isinstance(found, dict) and found.keys() == {_BYTES}
    if schema.type is Type.BYTES and is_labelled:
        return found[_BYTES]
    return found


def _struct(found: Any, schema: Schema, path: str, note: Note) -> Any:
    if not isinstance(found, dict):
        return _leaf(found, found, schema, path, note)
    before = f"{path}." if path else ""
    for name in found:
        if schema.field(name) is None:
            known = ", ".join(each.name for each in schema.fields[:20])
            note(f"{before}{name[:100]}", f"is not a field of the schema: it has {known}")
    return {
        each.name: _value(found.get(each.name), each.schema, f"{before}{each.name}", note)
        for each in schema.fields
    }


def _map(found: Any, schema: Schema, path: str, note: Note) -> Any:
    key_schema, value_schema = schema.key_schema, schema.value_schema
    assert key_schema is not None
    assert value_schema is not None
    is_object = key_schema.type is Type.STRING
    if isinstance(found, list):
        if is_object or not all(isinstance(each, list) and len(each) == 2 for each in found):
            return _leaf(found, found, schema, path, note)
        pairs = [(each[0], each[1]) for each in found]
    else:
        pairs = [(name if is_object else _key_of(name), each) for name, each in found.items()]
    read = [
        (
            _value(key, key_schema, f"{path}[{str(key)[:40]}]", note),
            _value(each, value_schema, f"{path}[{str(key)[:40]}]", note),
        )
        for key, each in pairs
    ]
    return dict(read) if is_object else [list(each) for each in read]


def _key_of(text: str) -> Any:
    """The key of a map from its name in an object."""
    try:
        return exact_json(text)
    except ValueError:
        return text


def _variable_scale(number: Decimal) -> dict[str, Any]:
    sign, digits, exponent = number.as_tuple()
    places = int(exponent)
    unscaled = int("".join(map(str, digits))) * 10 ** max(0, places) * (-1 if sign else 1)
    data = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
    return {"scale": max(0, -places), "value": base64.b64encode(data).decode()}


def _is_number(found: Any) -> bool:
    return isinstance(found, int | float | Decimal) and not isinstance(found, bool)


def _named(schema: Schema) -> str:
    short = (schema.name or "").rpartition(".")[2]
    return f"{schema.type} ({short})" if short else str(schema.type)
