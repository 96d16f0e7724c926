"""Cases of transforms that move fields: ExtractField, Flatten, HoistField, InsertField, MaskField,
ReplaceField, SetSchemaMetadata, ValueToKey.
"""

from collections.abc import Mapping

from tests.support.transform_corpus.cases import (
    BYTES,
    DECIMAL,
    EVERY,
    EVERY_PAYLOAD,
    EVERY_VALUE,
    INT32,
    INT64,
    NOT_STRUCTS,
    NULLS,
    PLAIN_PAYLOAD,
    PLAIN_VALUE,
    STRING,
    TRANSFORMS,
    Cases,
    Json,
    array,
    optional,
    plain,
    struct,
    typed,
)

_NESTED = struct(
    {
        "id": INT32,
        "a.b": optional(STRING),
        "inner": optional(
            struct(
                {
                    "x": INT32,
                    "dot.ted": STRING,
                    "deep": optional(struct({"y": optional(INT64) | {"default": 9}})),
                },
                name="shop.Inner",
            )
        ),
        "list": array(struct({"z": INT32})),
    },
    name="shop.Nested",
    version=1,
)
_NESTED_PAYLOAD: Json = {
    "id": 1, "a.b": "dot", "inner": {"x": 2, "dot.ted": "d", "deep": {"y": None}},
    "list": [{"z": 3}],
}  # fmt: skip
_NESTED_VALUE = typed(_NESTED, _NESTED_PAYLOAD)
_NESTED_PLAIN = plain(_NESTED_PAYLOAD)
_HOLLOW = typed(_NESTED, {"id": 1, "list": []})
_HOLLOW_PLAIN = plain({"id": 1, "inner": None})


def _not_structs(cases: Cases, config: Mapping[str, str]) -> None:
    for name, given in (*NOT_STRUCTS, *NULLS):
        cases.both(name, config, given)


def extract_field() -> Cases:
    """ExtractField$Key and ExtractField$Value."""
    cases = Cases(f"{TRANSFORMS}.ExtractField")
    for name in EVERY_PAYLOAD:
        cases.add(f"every {name}", {"field": name}, EVERY_VALUE)
    for name in (*PLAIN_PAYLOAD, "missing"):
        cases.both(f"plain {name}", {"field": name}, PLAIN_VALUE)
    cases.both("a missing field", {"field": "missing"}, EVERY_VALUE)
    for replace in ("true", "false"):
        config = {"field": "given", "replace.null.with.default": replace}
        cases.both(f"null with a default, {replace}", config, EVERY_VALUE)
    _not_structs(cases, {"field": "i32"})
    for version in ("V1", "V2", "v2"):
        for path in ("id", "a.b", "`a.b`", "inner.x", "inner.deep.y", "inner.`dot.ted`",
                     "inner.missing", "missing.x", "id.x", "list.z", "inner.deep", "",
                     "`unclosed", "a`b", "inner."):  # fmt: skip
            config = {"field": path, "field.syntax.version": version}
            if version == "v2" and path not in ("id", "inner.x"):
                continue
            cases.add(f"{version} {path!r}", config, _NESTED_VALUE)
            cases.add(f"{version} {path!r} plain", config, _NESTED_PLAIN)
            if version == "V2":
                cases.add(f"{version} {path!r} hollow", config, _HOLLOW)
                cases.add(f"{version} {path!r} hollow plain", config, _HOLLOW_PLAIN)
    cases.add("no field", {}, EVERY_VALUE)
    cases.add("no such version", {"field": "a", "field.syntax.version": "V3"}, EVERY_VALUE)
    return cases


def flatten() -> Cases:
    """Flatten$Key and Flatten$Value."""
    cases = Cases(f"{TRANSFORMS}.Flatten")
    no_map = typed(struct({"a": INT32, "in": struct({"b": STRING})}), {"a": 1, "in": {"b": "x"}})
    for delimiter in (None, ".", "_", "", "--"):
        config: dict[str, str] = {} if delimiter is None else {"delimiter": delimiter}
        cases.both(f"nested by {delimiter!r}", config, _NESTED_VALUE)
        cases.both(f"plain nested by {delimiter!r}", config, _NESTED_PLAIN)
        cases.add(f"simple by {delimiter!r}", config, no_map)
    cases.both("a map with a schema", {}, EVERY_VALUE)
    cases.both("plain values", {}, PLAIN_VALUE)
    cases.both("hollow", {}, _HOLLOW)
    cases.both("hollow plain", {}, _HOLLOW_PLAIN)
    _not_structs(cases, {})
    cases.add("an empty map", {}, plain({}))
    cases.add("an empty map within", {}, plain({"a": {}, "b": 1}))
    cases.add("an empty struct", {}, typed(struct({}), {}))
    clash = struct({"a.b": INT32, "a": struct({"b": STRING})})
    cases.add("names that clash", {}, typed(clash, {"a.b": 1, "a": {"b": "x"}}))
    cases.add("plain names that clash", {}, plain({"a.b": 1, "a": {"b": "x"}}))
    for value in ({"@bytes": "AAH/"}, {"@decimal": "1.5"}, {"@date": 0}, {"@int": 5}):
        cases.add(f"plain {value}", {}, plain({"a": {"b": value}}))
    within = optional(struct({"b": INT32, "c": optional(STRING) | {"default": "dc"}}))
    outer = struct({"in": within})
    cases.add("an optional struct within that is null", {}, typed(outer, {}))
    for replace in ("true", "false"):
        config = {"replace.null.with.default": replace}
        name = f"a null with a default within, {replace}"
        cases.add(name, config, typed(outer, {"in": {"b": 1}}))
    cases.add("an optional struct", {}, typed(optional(_NESTED), _NESTED_PAYLOAD))
    return cases


def hoist_field() -> Cases:
    """HoistField$Key and HoistField$Value."""
    cases = Cases(f"{TRANSFORMS}.HoistField")
    for name, given in (*NOT_STRUCTS, *NULLS, ("every", EVERY_VALUE), ("plain", PLAIN_VALUE),
                        ("bytes", typed(BYTES, "AAH/")), ("decimal", typed(DECIMAL, "1.50")),
                        ("null text", typed(optional(STRING), None)),
                        ("plain true", plain(True)), ("plain 1.5", plain(1.5))):  # fmt: skip
        cases.both(name, {"field": "wrapped"}, given)
    cases.add("no field", {}, PLAIN_VALUE)
    cases.add("an empty field", {"field": ""}, typed(INT32, 1))
    cases.add("a field with dots", {"field": "a.b"}, typed(INT32, 1))
    return cases


def insert_field() -> Cases:
    """InsertField$Key and InsertField$Value."""
    cases = Cases(f"{TRANSFORMS}.InsertField")
    all_of_them = {
        "topic.field": "t", "partition.field": "p!", "offset.field": "o?", "timestamp.field": "ts",
        "static.field": "s", "static.value": "fixed",
    }  # fmt: skip
    givens = [("every", EVERY_VALUE), ("plain", PLAIN_VALUE), ("an empty map", plain({})),
              ("an optional", typed(optional(EVERY), EVERY_PAYLOAD))]  # fmt: skip
    for name, given in givens:
        cases.both(f"all into {name}", all_of_them, given)
        for setting in ("topic", "partition", "offset", "timestamp"):
            for suffix in ("", "!", "?"):
                cases.add(f"{setting}{suffix} into {name}", {f"{setting}.field": f"f{suffix}"},
                          given)  # fmt: skip
            cases.add(f"{setting} over a field of {name}", {f"{setting}.field": "text"}, given)
        source: Json = {"offset": None, "partition": None, "timestamp": None}
        for setting in ("partition", "offset", "timestamp"):
            for suffix in ("", "!", "?"):
                cases.add(f"no {setting}{suffix} into {name}", {f"{setting}.field": f"f{suffix}"},
                          given, **source)  # fmt: skip
    _not_structs(cases, all_of_them)
    for replace in ("true", "false"):
        config = {"static.field": "s", "static.value": "x", "replace.null.with.default": replace}
        cases.add(f"beside a null with a default, {replace}", config, EVERY_VALUE)
    for config in ({}, {"static.field": "s"}, {"static.value": "x"}, {"topic.field": ""},
                   {"topic.field": "!"}, {"static.field": "s", "static.value": ""}):  # fmt: skip
        cases.add(f"config {config}", config, EVERY_VALUE)
        cases.add(f"config {config} on a map", config, PLAIN_VALUE)
    return cases


def _replacing(text: str | None) -> dict[str, str]:
    return {} if text is None else {"replacement": text}


def mask_field() -> Cases:
    """MaskField$Key and MaskField$Value."""
    cases = Cases(f"{TRANSFORMS}.MaskField")
    for name in (*EVERY_PAYLOAD, "missing"):
        for replacement in (None, "42", "masked"):
            config = {"fields": name} | (
                {} if replacement is None else {"replacement": replacement}
            )
            cases.add(f"every {name} by {replacement}", config, EVERY_VALUE)
    for name in (*PLAIN_PAYLOAD, "missing"):
        for replacement in (None, "42", "masked"):
            config = {"fields": name} | (
                {} if replacement is None else {"replacement": replacement}
            )
            cases.add(f"plain {name} by {replacement}", config, PLAIN_VALUE)
    for value in ({"@bytes": "AAH/"}, {"@decimal": "1.5"}, {"@date": 5}):
        for more in ({}, {"replacement": "7"}):
            cases.add(f"plain {value} {more}", {"fields": "f"} | more, plain({"f": value}))
    cases.both("several", {"fields": "i32, text,bool"}, EVERY_VALUE)
    cases.both("several plain", {"fields": "whole,text , bool"}, PLAIN_VALUE)
    for replacement in ("300", "3000000000", "1.9", "-1", "1e3", " 5 ", "5.", "NaN", ""):
        for name in ("i8", "i64", "f64", "decimal", "text"):
            config = {"fields": name, "replacement": replacement}
            cases.add(f"{name} by {replacement!r}", config, EVERY_VALUE)
        config = {"fields": "whole", "replacement": replacement}
        cases.add(f"plain by {replacement!r}", config, PLAIN_VALUE)
    given = {"fields": "given", "replacement": "5"}
    for replace in ("true", "false"):
        config = given | {"replace.null.with.default": replace}
        cases.add(f"null with a default, {replace}", config, EVERY_VALUE)
    _not_structs(cases, {"fields": "i32"})
    cases.add("no fields", {}, EVERY_VALUE)
    cases.add("empty fields", {"fields": ""}, EVERY_VALUE)
    return cases


def replace_field() -> Cases:
    """ReplaceField$Key and ReplaceField$Value."""
    cases = Cases(f"{TRANSFORMS}.ReplaceField")
    configs: tuple[dict[str, str], ...] = (
        {"include": "i32,text"}, {"exclude": "i32,text"}, {"renames": "i32:number,text:words"},
        {"include": "i32,text", "renames": "i32:number"}, {"include": "text,i32"},
        {"exclude": "i32", "renames": "text:i32"}, {"include": "missing"}, {"exclude": "missing"},
        {"renames": "missing:there"}, {"include": "i32,text", "exclude": "text"},
        {"include": "given"}, {"exclude": "given"}, {"renames": "given:taken"},
        {"include": "given", "replace.null.with.default": "false"},
        {"renames": "given:taken", "replace.null.with.default": "false"}, {},
        {"include": " i32 , text "}, {"renames": "i32:text"},
    )  # fmt: skip
    for config in configs:
        cases.both(f"every {config}", config, EVERY_VALUE)
        plainly = {
            key: text.replace("i32", "whole").replace("given", "none")
            for key, text in config.items()
        }
        cases.both(f"plain {plainly}", plainly, PLAIN_VALUE)
    for renames in ("a", "a:", ":b", "a:b:c", "a:b,a:c", "a:b,c:b", ""):
        given = typed(struct({"a": INT32, "c": INT32}), {"a": 1, "c": 2})
        cases.add(f"renames {renames!r}", {"renames": renames}, given)
    cases.add("an optional struct", {"exclude": "i32"}, typed(optional(EVERY), EVERY_PAYLOAD))
    _not_structs(cases, {"exclude": "i32"})
    return cases


def set_schema_metadata() -> Cases:
    """SetSchemaMetadata$Key and SetSchemaMetadata$Value."""
    cases = Cases(f"{TRANSFORMS}.SetSchemaMetadata")
    configs = (
        {"schema.name": "shop.New"}, {"schema.version": "7"},
        {"schema.name": "shop.New", "schema.version": "7"},
        {"schema.name": "shop.New", "replace.null.with.default": "false"},
    )  # fmt: skip
    named = INT32 | {"name": "shop.Id", "version": 3, "doc": "id", "parameters": {"a": "b"}}
    givens = (*NOT_STRUCTS, *NULLS, ("every", EVERY_VALUE), ("nested", _NESTED_VALUE),
              ("plain", PLAIN_VALUE), ("named", typed(named, 5)),
              ("null text", typed(optional(STRING), None)),
              ("an optional", typed(optional(EVERY), EVERY_PAYLOAD)))  # fmt: skip
    for config in configs:
        for name, given in givens:
            cases.both(f"{name} {config}", config, given)
    for config in ({}, {"schema.version": "x"}, {"schema.name": ""}, {"schema.version": "-1"}):
        cases.add(f"config {config}", config, EVERY_VALUE)
    return cases


def value_to_key() -> Cases:
    """ValueToKey."""
    cases = Cases(f"{TRANSFORMS}.ValueToKey")
    old_key = typed(STRING, "old")
    for names in ("i32", "i32,text", "text,i32", "given", "none", "inner", "list,map", "missing",
                  "decimal,date,time,at", "", "i32,i32"):  # fmt: skip
        for replace in ("true", "false"):
            config = {"fields": names, "replace.null.with.default": replace}
            cases.add(f"every {names!r}, {replace}", config, EVERY_VALUE, form="", key=old_key)
    for names in ("whole", "text,whole", "none", "inner", "list", "missing", ""):
        cases.add(f"plain {names!r}", {"fields": names}, PLAIN_VALUE, form="", key=old_key)
    cases.add("no fields", {}, PLAIN_VALUE, form="")
    for name, given in (*NOT_STRUCTS, *NULLS):
        cases.add(name, {"fields": "i32"}, given, form="", key=old_key)
    cases.add("an optional", {"fields": "i32"}, typed(optional(EVERY), EVERY_PAYLOAD), form="")
    return cases
