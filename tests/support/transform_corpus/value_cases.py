"""Cases of Cast and TimestampConverter."""

from tests.support.transform_corpus.cases import (
    AT_MS,
    BOOLEAN,
    BYTES,
    DATE,
    DECIMAL,
    EVERY_VALUE,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    NOT_STRUCTS,
    NULLS,
    PLAIN_VALUE,
    STRING,
    TIME,
    TIMESTAMP,
    TRANSFORMS,
    Cases,
    Json,
    array,
    map_of,
    optional,
    plain,
    struct,
    typed,
)

_TARGETS = ("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string")
_SOURCES: list[tuple[str, Json, list[Json]]] = [
    ("int8", INT8, [0, 127, -128]),
    ("int16", INT16, [1, 32767, -32768]),
    ("int32", INT32, [128, 2147483647, -2147483648]),
    ("int64", INT64, [9223372036854775807, -9223372036854775808, 16777217, 4294967296]),
    ("float", FLOAT32, [0.1, -1.5, 1e10, 16777216.0, "NaN", "Infinity", 1e-5, 3.4028235e38]),
    (
        "double", FLOAT64,
        [0.0, "-0.0", 1e7, 9999999.0, 0.001, 0.0001, 128.9, -128.9, 1e20, -1e300, 0.1, 1e-300,
         123456789.125, "NaN", "Infinity", "-Infinity", 3e9, 1.7976931348623157e308, 4.9e-324],
    ),
    ("boolean", BOOLEAN, [True, False]),
    (
        "string", STRING,
        ["12", "-7", "+5", " 12", "12 ", "", "128", "99999999999", "9223372036854775808", "1.5",
         "1e3", "0x1F", "true", "TRUE", "abc", "NaN", "Infinity", "-Infinity", "inf", "1.5f",
         "2d", " 3.5 ", "1_000", "0x1.8p1", "1e400", "1e-400", ".5", "5.", "٣", "1,5"],
    ),
    ("bytes", BYTES, ["", "AAH/"]),
    ("decimal", DECIMAL, ["12.34", "-0.50", "300.99", "0.00", "12345678901234567890.12"]),
    ("date", DATE, [0, 19782, -1]),
    ("time", TIME, [0, 45296789]),
    ("timestamp", TIMESTAMP, [0, AT_MS, 86400000, 45296789, -1, -86400000]),
    ("array", array(INT32), [[1]]),
    ("map", map_of(STRING, INT32), [[["a", 1]]]),
    ("struct", struct({"a": INT32}), [{"a": 1}]),
]  # fmt: skip
_PLAIN_SOURCES: list[Json] = [
    0, 128, -129, 2147483648, 9223372036854775807, 1.5, -1.5, 1e7, 1e20, 0.001, 0.1,
    {"@double": "NaN"}, {"@double": "-Infinity"}, True, False, "12", " 12", "abc", "true", "1.5",
    "128", "", "NaN", "1e3", [1], {"a": 1}, {"@bytes": "AAH/"}, {"@decimal": "12.34"},
    {"@decimal": "1E+3"}, {"@date": AT_MS}, {"@date": 0}, {"@date": 86400000},
]  # fmt: skip

_CAST_STRUCT = struct(
    {
        "n": optional(INT32) | {"default": 300},
        "text": optional(STRING) | {"default": "8"},
        "at": TIMESTAMP,
        "price": optional(DECIMAL),
        "keep": optional(struct({"a": INT32})),
    },
    name="shop.Cast",
    version=4,
)
_CAST_PAYLOAD: Json = {"n": 70000, "text": "12", "at": AT_MS, "price": "9.99", "keep": {"a": 1}}


def cast() -> Cases:
    """Cast$Key and Cast$Value."""
    cases = Cases(f"{TRANSFORMS}.Cast")
    for name, schema, payloads in _SOURCES:
        for target in _TARGETS:
            for payload in payloads:
                # a whole value of a logical type keeps its name: the value no longer fits it
                held = struct({"f": schema}) if "name" in schema else schema
                spec = f"f:{target}" if "name" in schema else target
                value = typed(held, {"f": payload} if "name" in schema else payload)
                cases.add(f"{name} {payload} to {target}", {"spec": spec}, value)
    for payload in _PLAIN_SOURCES:
        for target in _TARGETS:
            cases.add(f"plain {payload} to {target}", {"spec": target}, plain(payload))
    value = typed(_CAST_STRUCT, _CAST_PAYLOAD)
    nulls = typed(_CAST_STRUCT, {"at": AT_MS})
    specs = (
        "n:int8", "n:string,text:int64", "at:string,price:string", "at:int64,price:float64",
        "at:int32", "price:int8", "keep:string", "missing:int8", "n:boolean , text:float32",
    )  # fmt: skip
    for spec in specs:
        cases.both(f"fields {spec}", {"spec": spec}, value)
        for replace in ("true", "false"):
            config = {"spec": spec, "replace.null.with.default": replace}
            cases.add(f"null fields {spec}, defaults {replace}", config, nulls)
    for name, given in (*NOT_STRUCTS, *NULLS):
        cases.both(f"fields of {name}", {"spec": "i32:string"}, given)
    for target in _TARGETS:
        for name, given in (*NULLS, ("a null int", typed(optional(INT32), None))):
            cases.add(f"whole {name} to {target}", {"spec": target}, given)
    optional_default = optional(INT32) | {"default": 300}
    cases.both("an optional whole", {"spec": "int8"}, typed(optional_default, 5))
    cases.both("an optional whole that is null", {"spec": "int8"}, typed(optional_default, None))
    named = INT32 | {"name": "shop.Id", "version": 3, "doc": "the id", "parameters": {"a": "b"}}
    cases.both("a whole with a name", {"spec": "string"}, typed(named, 5))
    cases.add("a whole timestamp to string", {"spec": "string"}, typed(TIMESTAMP, AT_MS))
    cases.add("a field with a name", {"spec": "f:string"}, typed(struct({"f": named}), {"f": 5}))
    cases.add(
        "a default that cannot be cast",
        {"spec": "f:int8"},
        typed(struct({"f": optional(STRING) | {"default": "x"}}), {"f": "5"}),
    )
    cases.both(
        "plain fields", {"spec": "whole:string,number:int8,none:int8,missing:int8"}, PLAIN_VALUE
    )
    cases.add("a plain field that cannot", {"spec": "text:int8"}, PLAIN_VALUE)
    cases.add("a plain field that is a map", {"spec": "inner:string"}, PLAIN_VALUE)
    every = {"spec": "i8:string,i16:int8,i64:int32,f32:float64,f64:int64,bool:string,date:string"}
    cases.both("every field", every, EVERY_VALUE)
    bad_specs = ("", "int9", "a:int9", "a", "a:", ":int8", "a:int8:int16", "int8,int16",
                 "int8,a:int8", "a:array", "a:struct", "INT8", "a:Int8", "bytes", "a:int8,a:int16",
                 "float", "double")  # fmt: skip
    for spec in bad_specs:
        cases.add(f"spec {spec!r}", {"spec": spec}, typed(struct({"a": INT32}), {"a": 1}))
    cases.add("without a spec", {}, typed(INT32, 1))
    return cases


_UNIT_VALUES = {
    "seconds": AT_MS // 1000,
    "milliseconds": AT_MS,
    "microseconds": AT_MS * 1000 + 5,
    "nanoseconds": AT_MS * 1_000_000 + 7,
}
_ISO = "yyyy-MM-dd'T'HH:mm:ss"
_KINDS = ("string", "unix", "Date", "Time", "Timestamp")
_PATTERNS: list[tuple[str, list[str]]] = [
    (
        _ISO,
        ["2024-02-29T12:34:56", "2023-02-29T00:00:00", "2023-13-45T25:61:61", "2024-1-2T3:4:5",
         "2024-02-29T12:34:56junk", "2024-02-29", "", "x", "0001-01-01T00:00:00",
         "12024-02-29T12:34:56", "1500-03-01T00:00:00", "24-02-29T12:34:56", "-5-01-01T00:00:00",
         " 2024-02-29T12:34:56", "2024-02-29 12:34:56", "1582-10-10T00:00:00"],
    ),
    ("yyyy-MM-dd", ["2024-02-29", "2023-13-45junk", "1969-12-31", "2024/02/29", "20240229"]),
    ("yyyyMMdd", ["20240229", "2024022", "202402291", "2024-229"]),
    ("yyyy-MM-dd HH:mm:ss.SSS", ["2024-02-29 12:34:56.789", "2024-02-29 12:34:56.7",
                                 "2024-02-29 12:34:56.7891", "2024-02-29 12:34:56"]),
    ("yyyy-MM-dd'T'HH:mm:ss.SSSX", ["2024-02-29T12:34:56.789Z", "2024-02-29T12:34:56.789+02",
                                    "2024-02-29T12:34:56.789+02:00", "2024-02-29T12:34:56.789"]),
    ("yyyy-MM-dd'T'HH:mm:ss" + "X" * 3, ["2024-02-29T12:34:56+02:00", "2024-02-29T12:34:56Z",
                                  "2024-02-29T12:34:56+0200"]),
    ("yyyy-MM-dd HH:mm:ss Z", ["2024-02-29 12:34:56 +0130", "2024-02-29 12:34:56 GMT-03:00"]),
    ("EEE, dd MMM yyyy HH:mm:ss z", ["Thu, 29 Feb 2024 12:34:56 GMT", "thu, 9 feb 2024 1:2:3 UTC",
                                     "Mon, 29 February 2024 12:34:56 GMT"]),
    ("dd/MMMM/yy hh:mm a", ["29/February/24 12:34 PM", "1/Jan/70 12:00 am", "1/may/45 1:00 PM"]),
    ("yyyy.DDD", ["2024.060", "2023.366"]),
    ("HH:mm", ["12:34", "25:61", "-1:30"]),
    ("yyyy-MM-dd'o''clock'HH", ["2024-02-29o'clock12"]),
    ("G yyyy", ["AD 2024", "BC 0044"]),
    ("YYYY-'W'ww-u", ["2024-W09-4"]),
    ("yyyy MM dd kk K", ["2024 02 29 24 0"]),
]  # fmt: skip


_PLAIN_TIMES: list[Json] = [
    "2024-02-29T12:34:56", AT_MS, {"@date": AT_MS}, 1.5, True, [1], "junk", {"a": 1},
]  # fmt: skip


def _of_kind(name: str, unit: str = "milliseconds") -> Json:
    return {
        "string": typed(STRING, "2024-02-29T12:34:56"),
        "unix": typed(INT64, _UNIT_VALUES[unit]),
        "Date": typed(DATE, 19782),
        "Time": typed(TIME, 45296789),
        "Timestamp": typed(TIMESTAMP, AT_MS),
    }[name]


def _config(target: str, **more: str) -> dict[str, str]:
    spelled = {name.replace("_", "."): text for name, text in more.items()}
    wanted = {"format": _ISO} if target == "string" else {}
    return {"target.type": target} | wanted | spelled


def timestamp_converter() -> Cases:
    """TimestampConverter$Key and TimestampConverter$Value."""
    cases = Cases(f"{TRANSFORMS}.TimestampConverter")
    for source in _KINDS:
        given = _of_kind(source)
        more = {"format": _ISO} if source == "string" else {}
        for target in _KINDS:
            config = _config(target, **more)
            cases.both(f"{source} to {target}", config, given)
            held = struct({"a": STRING, "f": given["schema"]}, name="shop.At", doc="when")
            payload = {"a": "x", "f": given["payload"]}
            cases.both(f"field {source} to {target}", {**config, "field": "f"},
                       typed(held, payload))  # fmt: skip
            absent = struct({"a": STRING, "f": optional(given["schema"])})
            for replace in ("true", "false"):
                cases.add(
                    f"null field {source} to {target}, defaults {replace}",
                    {**config, "field": "f", "replace.null.with.default": replace},
                    typed(absent, {"a": "x"}),
                )
            cases.add(f"null {source} to {target}", config, typed(optional(given["schema"]), None))
    _units(cases)
    for pattern, texts in _PATTERNS:
        to_timestamp = {"target.type": "Timestamp", "format": pattern}
        for text in texts:
            cases.add(f"{pattern}: {text!r} to Timestamp", to_timestamp, typed(STRING, text))
        cases.add(f"{pattern}: plain to Timestamp", to_timestamp, plain(texts[0]))
        to_string = {"target.type": "string", "format": pattern}
        for at_ms in (AT_MS, 0, -1, -62135596800000, 253402300800000, -14000000000000):
            cases.add(f"{pattern}: {at_ms} to string", to_string, typed(TIMESTAMP, at_ms))
    for target in _KINDS:
        config = _config(target, format=_ISO)
        for payload in _PLAIN_TIMES:
            cases.add(f"plain {payload} to {target}", config, plain(payload))
            fields = {"f": payload, "g": 1}
            cases.add(f"plain field {payload} to {target}", {**config, "field": "f"}, plain(fields))
        for name, given in NULLS:
            cases.both(f"{name} to {target}", config, given)
            cases.both(f"field of {name} to {target}", {**config, "field": "f"}, given)
    in_field = _config("unix", field="f")
    for name, given in NOT_STRUCTS:
        cases.both(f"field of {name}", in_field, given)
        cases.both(f"the whole of {name}", _config("unix"), given)
    cases.both("a missing field", in_field, EVERY_VALUE)
    cases.both("a missing plain field", in_field, PLAIN_VALUE)
    cases.add("a null plain field", in_field, plain({"f": None}))
    for field in ("i32", "bool", "list", "inner", "decimal"):
        cases.add(f"a field of another type: {field}", _config("unix", field=field), EVERY_VALUE)
    with_default = struct({"f": optional(TIMESTAMP) | {"default": 0}})
    cases.add("a field with a default", in_field, typed(with_default, {"f": AT_MS}))
    cases.add("null for a default", in_field, typed(with_default, {}))
    _bad_configs(cases)
    return cases


def _units(cases: Cases) -> None:
    for unit, number in _UNIT_VALUES.items():
        for target in ("Timestamp", "Date", "Time", "unix", "string"):
            config = _config(target, unix_precision=unit)
            cases.add(f"unix in {unit} to {target}", config, typed(INT64, number))
        for number_ in (-1, -1001, -1_000_000_001, 0, 999):
            cases.add(
                f"unix {number_} in {unit} to Timestamp",
                _config("Timestamp", unix_precision=unit),
                typed(INT64, number_),
            )
        for at_ms in (AT_MS, -1, -1001):
            config = _config("unix", unix_precision=unit)
            cases.add(f"{at_ms} to unix in {unit}", config, typed(TIMESTAMP, at_ms))
    for at_ms in (-1, -86400000, 86399999, 86400000, AT_MS):
        for target in ("Date", "Time"):
            cases.add(f"{at_ms} to {target}", _config(target), typed(TIMESTAMP, at_ms))


def _bad_configs(cases: Cases) -> None:
    given = _of_kind("Timestamp")
    for config in (
        {}, {"target.type": ""}, {"target.type": "timestamp"}, {"target.type": "UNIX"},
        {"target.type": "string"}, {"target.type": "string", "format": ""},
        {"target.type": "string", "format": "bogus pattern"},
        {"target.type": "Timestamp", "format": "yyyy-'unclosed"},
        {"target.type": "unix", "unix.precision": "minutes"},
        {"target.type": "unix", "unix.precision": "SECONDS"},
        {"target.type": "Timestamp", "format": "  "},
        {"target.type": "Timestamp", "replace.null.with.default": "maybe"},
    ):  # fmt: skip
        cases.add(f"config {config}", config, given)
    for target in _KINDS:
        config = {"target.type": target}
        cases.add(f"a text without a format to {target}", config, typed(STRING, "2024-02-29"))
        cases.add(f"a plain text without a format to {target}", config, plain("2024-02-29"))
