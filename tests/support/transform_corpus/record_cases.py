"""Cases of transforms that use more than a key or value: headers, topics, tombstones."""

from tests.support.transform_corpus.cases import (
    AT_MS,
    EVERY_PAYLOAD,
    EVERY_VALUE,
    FLOAT64,
    INT32,
    NOT_STRUCTS,
    NULLS,
    PLAIN_PAYLOAD,
    PLAIN_VALUE,
    PREDICATES,
    STRING,
    TRANSFORMS,
    Cases,
    Json,
    optional,
    plain,
    typed,
)

_HEADERS: Json = [
    ["a", STRING, "one"],
    ["b", INT32, 2],
    ["a", FLOAT64, 3.5],
    ["c", None, {"x": 1}],
    ["d", optional(STRING), None],
]
_TOPICS = ("orders", "shop.orders.v1", "a-b_c", "x", "2024-02-29")


def drop_headers() -> Cases:
    """DropHeaders."""
    cases = Cases(f"{TRANSFORMS}.DropHeaders")
    for names in ("a", "b,a", "missing", "c , d", "A", "a,b,c,d"):
        cases.add(f"{names} of many", {"headers": names}, EVERY_VALUE, form="", headers=_HEADERS)
        cases.add(f"{names} of none", {"headers": names}, PLAIN_VALUE, form="")
    for config in ({}, {"headers": ""}):
        cases.add(f"config {config}", config, form="", headers=_HEADERS)
    return cases


def filter_() -> Cases:
    """Filter."""
    cases = Cases(f"{TRANSFORMS}.Filter")
    for name, given in (*NULLS, ("every", EVERY_VALUE), ("plain", PLAIN_VALUE)):
        cases.add(name, {}, given, form="", headers=_HEADERS)
    return cases


def header_from() -> Cases:
    """HeaderFrom$Key and HeaderFrom$Value."""
    cases = Cases(f"{TRANSFORMS}.HeaderFrom")
    for operation in ("copy", "move"):
        for name in EVERY_PAYLOAD:
            config = {"fields": name, "headers": "h", "operation": operation}
            cases.add(f"{operation} every {name}", config, EVERY_VALUE)
        for name in (*PLAIN_PAYLOAD, "missing"):
            config = {"fields": name, "headers": "h", "operation": operation}
            cases.both(f"{operation} plain {name}", config, PLAIN_VALUE)
        several = {"fields": "i32,text,given", "headers": "a,h,a", "operation": operation}
        for replace in ("true", "false"):
            config = several | {"replace.null.with.default": replace}
            cases.both(f"{operation} several, defaults {replace}", config, EVERY_VALUE,
                       headers=_HEADERS)  # fmt: skip
        missing = {"fields": "missing", "headers": "h", "operation": operation}
        cases.both(f"{operation} a missing field", missing, EVERY_VALUE)
        one = {"fields": "i32", "headers": "h", "operation": operation}
        for name, given in (*NOT_STRUCTS, *NULLS):
            cases.both(f"{operation} from {name}", one, given)
        twice = {"fields": "i32,i32", "headers": "a,b", "operation": operation}
        cases.add(f"{operation} a field twice", twice, EVERY_VALUE)
    for config in (
        {}, {"fields": "a", "headers": "b"}, {"fields": "a", "operation": "copy"},
        {"fields": "a,b", "headers": "h", "operation": "copy"},
        {"fields": "", "headers": "", "operation": "copy"},
        {"fields": "i32", "headers": "h", "operation": "steal"},
        {"fields": "i32", "headers": "h", "operation": "COPY"},
    ):  # fmt: skip
        cases.add(f"config {config}", config, EVERY_VALUE)
    return cases


def insert_header() -> Cases:
    """InsertHeader."""
    cases = Cases(f"{TRANSFORMS}.InsertHeader")
    literals = ("text", "5", "-300", "70000", "5000000000", "1.5", "true", "null", "", " ",
                '"quoted"', "2024-02-29", "2024-02-29T12:34:56.789Z", "12:34:56.789Z", "[1,2]",
                '{"a":1}', "[1,\"a\"]", "99999999999999999999", "1e400", "NaN", "a b", "[]", "{}",
                "127", "128", "32768", "1.0E10", "0.1", "TRUE",
                '["a","b"]', '{"a":"b"}')  # fmt: skip
    for literal in literals:
        cases.add(f"{literal!r}", {"header": "h", "value.literal": literal}, EVERY_VALUE, form="")
    config = {"header": "a", "value.literal": "again"}
    cases.add("once more", config, PLAIN_VALUE, form="", headers=_HEADERS)
    cases.add("to a tombstone", config, form="", headers=_HEADERS)
    for bad in ({}, {"header": "h"}, {"value.literal": "x"}, {"header": "", "value.literal": "x"}):
        cases.add(f"config {bad}", bad, form="")
    return cases


def regex_router() -> Cases:
    """RegexRouter."""
    cases = Cases(f"{TRANSFORMS}.RegexRouter")
    rules = [
        ("(.*)", "new-$1"), ("orders", "bought"), ("(.*)\\.(.*)\\.v(\\d+)", "$2-$3"), ("o", "x"),
        (".*", "all"), ("(?<first>[a-z]+)(.*)", "${first}!$2"), ("(?i)ORDERS", "any case"),
        ("([a-z]++)(.*)", "$2$1"), ("\\p{Alpha}+", "letters"), ("\\p{Lower}*[\\p{Punct}].*", "p"),
        ("\\Qshop.orders\\E.*", "quoted"), ("(\\d{4})-(\\d{2})-(\\d{2})", "$1$2$3"),
        ("x|y", "$0$0"),
        ("[a-z&&[^o]].*", "not o"), ("(or)?(.*)", "$1|$2"), ("\\w+", "a\\$b\\\\c"),
        ("(?>a|ab)(.*)", "$1"), ("[^\\W\\d]+", "w"), ("\\h*\\S+", "h"), ("x\\z", "z"),
        ("(?x) or ders # comment", "spaced"), ("(o)(r)(d)(e)(r)(s)()()()(x?)", "$10$11"),
        ("(.)(.*)", "$2\\$1"), ("a-b_c", ""), ("\\x78", "hex"), ("\\u0078", "unicode"),
        ("\\p{L}+", "unicode letters"), ("\\p{IsAlphabetic}+", "alphabetic"), ("[a-z]{1,6}+", "p"),
        ("(?s:.+)", "dot"), ("(?<=x)y|x", "behind"), ("x(?!y)", "ahead"), ("\\Ax\\Z", "anchors"),
        ("[[a-m][n-z]]+", "union"), ("(?<n1>x)\\k<n1>?", "named back"), ("(x)\\1?", "back"),
    ]  # fmt: skip
    for regex, replacement in rules:
        for topic in _TOPICS:
            config = {"regex": regex, "replacement": replacement}
            cases.add(f"{regex} to {replacement}: {topic}", config, form="", topic=topic)
    full = {"key": typed(STRING, "k"), "headers": _HEADERS}
    cases.add("the rest stays", {"regex": ".*", "replacement": "t"}, EVERY_VALUE, form="", **full)
    for config in ({}, {"regex": "a"}, {"replacement": "a"}, {"regex": "(", "replacement": "a"},
                   {"regex": "[a", "replacement": "a"}, {"regex": "*", "replacement": "a"},
                   {"regex": "", "replacement": "a"}, {"regex": "a{2,1}", "replacement": "a"},
                   {"regex": "\\", "replacement": "a"}, {"regex": "(?<a b>x)", "replacement": "a"},
                   {"regex": "(.*)", "replacement": "$2"}, {"regex": "(.*)", "replacement": "$"},
                   {"regex": "(.*)", "replacement": "${no}"}, {"regex": "o+", "replacement": "$x"},
                   {"regex": ".*", "replacement": "\\"}):  # fmt: skip
        cases.add(f"config {config}", config, form="")
    return cases


def timestamp_router() -> Cases:
    """TimestampRouter."""
    cases = Cases(f"{TRANSFORMS}.TimestampRouter")
    for pattern in (None, "yyyyMMdd", "yyyy-MM-dd'T'HH", "YYYY.ww", "'week'w", "EEE dd MMM yyyy",
                    "HHmmssSSS", "DDD", "hh a", "G yy y", "z Z X " + "X" * 3, "u F W k K", "QQ",
                    "''", "MMMM LLL", ""):  # fmt: skip
        for at_ms in (AT_MS, 0, -1, 1_735_603_200_000, None):
            config = {} if pattern is None else {"timestamp.format": pattern}
            cases.add(f"{pattern} at {at_ms}", config, form="", timestamp=at_ms)
    for topic_format in ("${topic}", "${timestamp}", "${timestamp}-${topic}-${topic}", "fixed", "",
                         "$topic", "${topic}_${other}", "\\${topic}"):  # fmt: skip
        for topic in ("orders", "a$1b", "back\\slash"):
            cases.add(f"{topic_format} of {topic}", {"topic.format": topic_format}, form="",
                      topic=topic)  # fmt: skip
    cases.add("a bad pattern", {"timestamp.format": "bogus"}, form="")
    full = {"key": typed(STRING, "k"), "headers": _HEADERS}
    cases.add("the rest stays", {}, EVERY_VALUE, form="", **full)
    return cases


def has_header_key() -> Cases:
    """HasHeaderKey."""
    cases = Cases(f"{PREDICATES}.HasHeaderKey")
    for name in ("a", "b", "d", "missing", "A", " a "):
        cases.add(f"{name!r} of many", {"name": name}, EVERY_VALUE, form="", headers=_HEADERS)
        cases.add(f"{name!r} of none", {"name": name}, EVERY_VALUE, form="")
    for config in ({}, {"name": ""}):
        cases.add(f"config {config}", config, form="", headers=_HEADERS)
    return cases


def record_is_tombstone() -> Cases:
    """RecordIsTombstone."""
    cases = Cases(f"{PREDICATES}.RecordIsTombstone")
    for name, given in (*NULLS, *NOT_STRUCTS, ("every", EVERY_VALUE), ("an empty map", plain({})),
                        ("an empty text", typed(STRING, "")), ("zero", plain(0))):  # fmt: skip
        cases.add(name, {}, given, form="", key=typed(STRING, "k"))
        cases.add(f"{name}, no key", {}, given, form="")
    return cases


def topic_name_matches() -> Cases:
    """TopicNameMatches."""
    cases = Cases(f"{PREDICATES}.TopicNameMatches")
    for pattern in ("orders", "order", ".*", "shop\\..*", "[a-z]+", "\\d{4}-.*", "(?i)ORDERS",
                    "\\p{Lower}++", "x|orders", "^orders$"):  # fmt: skip
        for topic in _TOPICS:
            cases.add(f"{pattern}: {topic}", {"pattern": pattern}, form="", topic=topic)
    for config in ({}, {"pattern": ""}, {"pattern": "("}, {"pattern": "[a"}):
        cases.add(f"config {config}", config, form="")
    return cases
