"""The settings of a connector's transforms, and the steps built from them."""

import pickle
import threading
from typing import Any

import pyarrow as pa
import pytest

from drover.config.class_registry import ClassRegistry
from drover.record import PassError, RecordError, Schema, Type
from drover.transform import chain
from drover.transform.chain import build_chain, chain_config_def
from drover.transform.registry import PREDICATES, TRANSFORMS
from drover.transform.transform import Transform
from tests.support import transforms_for_tests
from tests.support.records import only, run, schemaless, side_of, struct, transform, with_schema
from tests.support.transforms_for_tests import SaysNoSettings, SaysTooMuch
from tests.support.waiting import wait_until

HIDE = transform("MaskField$Value", fields="a")
INT = struct(a=Schema(Type.INT32), b=Schema(Type.STRING))
ROWS = [{"a": a, "b": f"row {a}"} for a in (1, 2, 3, 4)]


def faults(config: dict[str, str]) -> dict[str, str]:
    found = chain_config_def(config).parse(config).violations
    return {each.field: each.description for each in found}


@pytest.mark.parametrize(
    ("config", "field", "fault"),
    [
        ({"transforms": "it"}, "transforms.it.type", "is required"),
        (transform("Filter") | {"transforms": "it,it"}, "transforms",
         "must not name 'it' more than once"),
        (transform("Filter") | {"transforms": "it,"}, "transforms",
         "must not have empty items"),
        (transform("MaskFeld$Value"), "transforms.it.type", "did you mean 'MaskField$Value'?"),
        (transform("MaskField$Value"), "transforms.it.fields", "is required"),
        (transform("MaskField$Value", fields=""), "transforms.it.fields", "at least one item"),
        (transform("MaskField$Value", fields="a", replacement=" "), "transforms.it.replacement",
         "must not be empty"),
        (transform("ReplaceField$Key", renames="a:b,c"), "transforms.it.renames", "not 'c'"),
        (transform("ReplaceField$Key", renames="a:"), "transforms.it.renames", "not 'a:'"),
        (transform("HeaderFrom$Key", fields="a,b", headers="c", operation="copy"),
         "transforms.it.headers", "must be as many as fields: 1 are not 2"),
        (transform("HeaderFrom$Key", fields="a", headers="c", operation="Copy"),
         "transforms.it.operation", "must be one of move, copy, not 'Copy'"),
        (transform("InsertField$Value"), "transforms.it.topic.field", "is required"),
        (transform("InsertField$Value", static__field="a"), "transforms.it.static.value",
         "is required with static.field"),
        (transform("SetSchemaMetadata$Key"), "transforms.it.schema.name",
         "or schema.version is required"),
        (transform("SetSchemaMetadata$Key", schema__version="x"), "transforms.it.schema.version",
         "must be a whole number"),
        (transform("ExtractField$Key", field="a", field__syntax__version="V3"),
         "transforms.it.field.syntax.version", "must be V1 or V2"),
        (transform("ExtractField$Key", field="`a", field__syntax__version="V2"),
         "transforms.it.field", "backtick"),
        (transform("ArrowFunction", function="tests.no.module:it"), "transforms.it.function",
         "cannot be imported: ModuleNotFoundError"),
        (transform("ArrowFunction", function="it"), "transforms.it.function",
         "must have the form package.module:name"),
        (transform("ArrowFunction", function="tests.support.transforms_for_tests.NOT_A_FUNCTION"),
         "transforms.it.function", "must name a function, not a int"),
        (HIDE | {"transforms.it.negate": "true"}, "transforms.it.negate",
         "needs transforms.it.predicate"),
        (HIDE | {"transforms.it.predicate": "p"}, "transforms.it.predicate",
         "must be in the setting predicates, which lacks 'p': it is empty"),
        (HIDE | {"transforms.it.predicate": "p", "predicates": "q", "predicates.q.type":
         "RecordIsTombstone"}, "transforms.it.predicate", "lacks 'p': it has q"),
        (HIDE | only("HasHeaderKey"), "predicates.p.name", "is required"),
        (HIDE | only("HasHeader", name="x"), "predicates.p.type", "did you mean 'HasHeaderKey'?"),
        (HIDE | only("FieldMatches", field="a"), "predicates.p.equals", "is required"),
        (HIDE | only("FieldMatches", field="a", pattern="("), "predicates.p.pattern", "RE2"),
        (HIDE | only("FieldMatches", field="`a", min="1"), "predicates.p.field", "backtick"),
    ],
)  # fmt: skip
def test_a_fault_is_where_it_is(config: dict[str, str], field: str, fault: str) -> None:
    found = faults(config)
    assert list(found) == [field]
    assert fault in found[field]


@pytest.mark.parametrize(
    ("plugin", "fault"),
    [
        (SaysNoSettings, "cannot list its settings: OSError: no disk"),
        (SaysTooMuch, "has a setting called 'negate', which every transform has"),
    ],
)
def test_a_plugin_that_does_not_say_its_settings_is_a_fault_of_its_type(
    monkeypatch: pytest.MonkeyPatch, plugin: type[Transform], fault: str
) -> None:
    registry = ClassRegistry[Transform]("transform", "none", lambda: [plugin])
    monkeypatch.setattr(chain, "TRANSFORMS", registry)
    assert faults(transform(plugin.__name__)) == {"transforms.it.type": fault}


def test_settings_have_their_defaults_and_docs() -> None:
    definition = chain_config_def(HIDE)
    assert [key.name for key in definition] == [
        "transforms",
        "predicates",
        "transforms.it.type",
        "transforms.it.fields",
        "transforms.it.replacement",
        "transforms.it.replace.null.with.default",
        "transforms.it.plugin.version",
        "transforms.it.predicate",
        "transforms.it.negate",
    ]
    assert all(key.documentation for key in definition)
    assert definition.parse(HIDE).values["transforms.it.replace.null.with.default"] is True


@pytest.mark.parametrize(
    "name",
    [
        "org.apache.kafka.connect.transforms.ReplaceField$Value",
        "ReplaceField$Value",
        "drover.transform.replace_field.ReplaceFieldValue",
    ],
)
def test_a_class_has_several_names(name: str) -> None:
    config = transform(name, exclude="a")
    (step,) = build_chain(chain_config_def(config).parse(config).require_valid())
    assert step.name == "transforms.it (ReplaceField$Value)"
    assert side_of(run(config, schemaless({"a": 1, "b": 2}))) == [{"b": 2}]


def test_every_class_says_its_settings_and_has_a_name_of_java() -> None:
    own = {"ArrowFunction", "FieldMatches", "FieldMatchesKey", "Sql"}
    for registry in (TRANSFORMS, PREDICATES):
        for each in registry:
            assert all(key.documentation for key in each.config_def())
            assert pickle.loads(pickle.dumps(each)) is each
            if each.__name__ not in own:
                packages = ("org.apache.kafka.", "io.debezium.")
                assert any(alias.startswith(packages) for alias in each.aliases)


def test_steps_are_in_order_of_their_names() -> None:
    config = {
        "transforms": "wrap,mask",
        "transforms.mask.type": "MaskField$Value",
        "transforms.mask.fields": "it",
        "transforms.wrap.type": "HoistField$Value",
        "transforms.wrap.field": "it",
    }
    assert side_of(run(config, schemaless(7))) == [{"it": 0}]


@pytest.mark.parametrize(("negate", "masked"), [(False, {2, 3}), (True, {1, 4})])
def test_a_predicate_chooses_rows_and_their_order_stays(negate: bool, masked: set[int]) -> None:
    config = HIDE | only("FieldMatches", field="a", min="2", max="3", negate=negate)
    batches = run(config, with_schema(INT, *ROWS))
    assert len(batches) == 1
    expected = [row | {"a": 0} if row["a"] in masked else row for row in ROWS]
    assert side_of(batches) == expected
    assert batches[0].column("origin").to_pylist() == [f"row {row}" for row in range(4)]
    assert batches[0].schema.names == with_schema(INT).schema.names


def test_rows_of_another_schema_are_in_batches_of_their_own_in_order() -> None:
    config = transform("ReplaceField$Value", include="b") | only("FieldMatches", field="a", min="3")
    batches = run(config, with_schema(INT, *ROWS, *ROWS))
    changed = [{"b": row["b"]} for row in ROWS[2:]]
    assert [batch.column("value").to_pylist() for batch in batches] == [
        ROWS[:2], changed, ROWS[:2], changed,
    ]  # fmt: skip


def test_none_all_and_dropped_rows() -> None:
    batch = with_schema(INT, *ROWS)
    none = HIDE | only("FieldMatches", field="a", equals="9")
    assert run(none, batch) == [batch]
    every = HIDE | only("FieldMatches", field="a", min="0")
    assert side_of(run(every, batch)) == [row | {"a": 0} for row in ROWS]
    drop = transform("Filter") | only("FieldMatches", {"in": "1,3"}, field="a")
    assert side_of(run(drop, batch)) == [ROWS[1], ROWS[3]]
    assert run(transform("Filter"), batch) == []


def test_tombstones_are_chosen() -> None:
    drop = transform("Filter") | only("RecordIsTombstone")
    assert side_of(run(drop, schemaless(1, None, 2))) == [1, 2]
    keep = HIDE | only("RecordIsTombstone", negate=True)
    assert side_of(run(keep, schemaless({"a": 1}, None))) == [{"a": 0}, None]


@pytest.fixture(autouse=True)
def own_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DROVER_PLUGIN_MODULES", "tests")


def function(name: str) -> dict[str, str]:
    return transform("ArrowFunction", function=f"tests.support.transforms_for_tests:{name}")


@pytest.mark.parametrize(
    ("name", "expected"),
    [("drop_odd_offsets", [1, 3]), ("split_rows", [1, 2, 3, 4]), ("of_lambda", [1, 2, 3, 4])],
)
def test_a_function_is_a_transform(name: str, expected: list[int]) -> None:
    found = side_of(run(function(name), with_schema(INT, *ROWS)))
    assert [each["a"] for each in found] == expected


@pytest.mark.parametrize("name", ["split_rows", "forget_other_columns"])
def test_a_function_on_some_rows_leaves_the_order(name: str) -> None:
    config = function(name) | only("FieldMatches", {"in": "1,2,4"}, field="a")
    assert side_of(run(config, with_schema(INT, *ROWS))) == ROWS


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("fail", "raised KeyError: 'city'"),
        ("leave", "raised RuntimeError: SystemExit: that is all"),
        ("refuse", "^the city is unknown$"),
        ("return_text", "must return record batches, not str"),
        ("lose_the_value", "without the columns value"),
    ],
)
def test_what_a_function_does_wrong_is_an_error_of_the_records(name: str, fault: str) -> None:
    with pytest.raises(RecordError, match=fault):
        run(function(name), with_schema(INT, *ROWS))


def test_a_function_that_does_not_return_fails_the_pass() -> None:
    raw = function("hang_at_one") | {"transforms.it.timeout.ms": "100"}
    (step,) = build_chain(chain_config_def(raw).parse(raw).require_valid())
    list(step(with_schema(INT, ROWS[1])))
    count = threading.active_count()
    for _ in range(2):
        with pytest.raises(PassError, match=r"did not return within 100 ms \(timeout.ms\)"):
            list(step(with_schema(INT, ROWS[0])))
        # the next batches succeed, all on one thread
        transforms_for_tests.threads.clear()
        for _ in range(3):
            list(step(with_schema(INT, ROWS[1])))
        assert len(transforms_for_tests.threads) == 1
    # the hung calls have ended: only the thread of the last calls is left
    wait_until(lambda: threading.active_count() == count)


def test_a_chain_of_nothing() -> None:
    config: dict[str, Any] = {}
    assert build_chain(chain_config_def(config).parse(config).require_valid()) == ()
    batch = pa.RecordBatch.from_pydict({"value": [1]})
    assert run({}, batch) == [batch]
