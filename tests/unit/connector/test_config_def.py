import pytest

from drover.connector import (
    REQUIRED,
    All,
    Check,
    ConfigDef,
    ConfigKey,
    ConfigType,
    InRange,
    Matches,
    NonEmpty,
    OneOf,
    Password,
)
from drover.errors import InvalidArgumentError, Reason
from drover.model.secrets import MASK


def faults(definition: ConfigDef, raw: dict[str, str | None]) -> list[tuple[str, str]]:
    return [(each.field, each.description) for each in definition.parse(raw).violations]


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (ConfigType.STRING, " as it  is ", "as it  is"),
        (ConfigType.PASSWORD, "secret", Password("secret")),
        (ConfigType.INT, " -7 ", -7),
        (ConfigType.INT, "2147483647", 2**31 - 1),
        (ConfigType.LONG, "-9223372036854775808", -(2**63)),
        (ConfigType.DOUBLE, "1e3", 1000.0),
        (ConfigType.BOOLEAN, "TRUE", True),
        (ConfigType.BOOLEAN, "false", False),
        (ConfigType.LIST, "a, b ,c", ["a", "b", "c"]),
        (ConfigType.LIST, "", []),
        (ConfigType.CLASS, "a.b:C", "a.b:C"),
    ],
)
def test_texts_are_read_by_their_type(type_: ConfigType, text: str, value: object) -> None:
    parsed = ConfigDef(ConfigKey("key", type_)).parse({"key": text})
    assert parsed.violations == ()
    assert parsed.values == {"key": value}


@pytest.mark.parametrize(
    ("type_", "text", "message"),
    [
        (ConfigType.INT, "many", "must be a whole number, not 'many'"),
        (ConfigType.INT, "1.0", "must be a whole number"),
        (ConfigType.INT, "", "must be a whole number"),
        (ConfigType.INT, "1_000", "must be a whole number"),
        (ConfigType.INT, "٣", "must be a whole number"),
        (ConfigType.INT, "9" * 5000, "must be a whole number"),
        (ConfigType.INT, "2147483648", "must fit into 32 bits"),
        (ConfigType.LONG, "9223372036854775808", "must fit into 64 bits"),
        (ConfigType.DOUBLE, "nan", "must be a number"),
        (ConfigType.DOUBLE, "inf", "must be a number"),
        (ConfigType.BOOLEAN, "yes", "must be true or false, not 'yes'"),
        (ConfigType.CLASS, "no class", "must be the name of a class"),
        (ConfigType.CLASS, "", "must be the name of a class"),
    ],
)
def test_a_text_of_another_type_is_told_what_would_be_right(
    type_: ConfigType, text: str, message: str
) -> None:
    (fault,) = faults(ConfigDef(ConfigKey("key", type_)), {"key": text})
    assert fault[0] == "key"
    assert fault[1].startswith(message)
    assert len(fault[1]) < 200


def test_every_fault_is_found_at_once() -> None:
    even = Check(lambda n: "must be even" if n % 2 else None)
    definition = ConfigDef(
        ConfigKey("missing", ConfigType.STRING),
        ConfigKey("number", ConfigType.INT, validator=InRange(1, 9)),
        ConfigKey("mode", ConfigType.STRING, validator=OneOf("fast", "safe")),
        ConfigKey("names", ConfigType.LIST, validator=All(NonEmpty(), Matches("[a-z]+", "a word"))),
        ConfigKey("even", ConfigType.INT, validator=even),
        ConfigKey("empty", ConfigType.STRING, validator=NonEmpty()),
        ConfigKey("fine", ConfigType.STRING),
    )
    raw = {"number": "10", "mode": "slow", "names": "a,,B", "even": "3", "empty": " ", "fine": "x"}
    assert faults(definition, dict(raw)) == [
        ("missing", "is required"),
        ("number", "must be from 1 to 9, not 10"),
        ("mode", "must be one of fast, safe, not 'slow'"),
        ("names", "must not have empty items"),
        ("names", "must be a word, not ''"),
        ("names", "must be a word, not 'B'"),
        ("even", "must be even"),
        ("empty", "must not be empty"),
    ]
    parsed = definition.parse(dict(raw))
    assert parsed.values == {"fine": "x"}
    with pytest.raises(InvalidArgumentError) as caught:
        parsed.require_valid("my-connector")
    assert caught.value.reason is Reason.INVALID_CONFIG
    assert len(caught.value.violations) == 8
    assert "'my-connector' has 8 errors" in caught.value.message
    assert "and 3 more" in caught.value.message


def test_defaults_count_for_what_is_not_given() -> None:
    definition = ConfigDef(
        ConfigKey("size", ConfigType.INT, default=5, validator=InRange(1)),
        ConfigKey("optional", ConfigType.STRING, default=None, validator=NonEmpty()),
    )
    assert definition.parse({}).values == {"size": 5, "optional": None}
    assert definition.parse({"size": None}).values["size"] == 5


@pytest.mark.parametrize(
    ("low", "high", "value", "message"),
    [(1, None, 0, "must be at least 1, not 0"), (None, 9, 10, "must be at most 9, not 10")],
)
def test_a_range_may_be_open(low: int | None, high: int | None, value: int, message: str) -> None:
    assert list(InRange(low, high).faults(value)) == [message]


@pytest.mark.parametrize(
    ("given", "advice"),
    [("topic", "; did you mean topics?"), ("file.nam", "; did you mean file.name?"), ("zzz", "")],
)
def test_an_unknown_setting_is_a_warning_with_the_nearest_known_name(
    given: str, advice: str
) -> None:
    definition = ConfigDef(
        ConfigKey("topics", ConfigType.LIST), ConfigKey("file.name", ConfigType.STRING)
    )
    *known, unknown = definition.validate({"topics": "a", "file.name": "f", given: "x"})
    assert [value.warnings for value in known] == [(), ()]
    assert unknown.errors == ()
    assert unknown.warnings == (f"is not a setting of this connector and has no effect{advice}",)


def test_unknown_settings_are_kept_and_are_no_fault() -> None:
    parsed = ConfigDef().parse({"theirs": "x", "null": None})
    assert parsed.values == {"theirs": "x"}
    assert parsed.violations == ()


def test_validation_tells_of_every_setting_in_order() -> None:
    definition = ConfigDef(
        ConfigKey("b", ConfigType.BOOLEAN, default=True),
        ConfigKey("a", ConfigType.INT),
        ConfigKey("secret", ConfigType.PASSWORD),
    )
    found = definition.validate({"unknown": "u", "a": "x", "secret": "s"})
    assert [(each.key.name, each.shown_text, len(each.errors)) for each in found] == [
        ("b", "true", 0),
        ("a", "x", 1),
        ("secret", MASK, 0),
        ("unknown", "u", 0),
    ]


def test_a_password_is_shown_nowhere() -> None:
    password = Password("secret")
    assert "secret" not in f"{password} {password!r} {[password]}"
    assert password.value == "secret"
    key = ConfigKey("p", ConfigType.PASSWORD, validator=NonEmpty())
    assert "secret" not in str(ConfigDef(key).parse({"p": "secret"}))


def test_a_key_says_what_it_takes() -> None:
    key = ConfigKey("mode", ConfigType.STRING, default="a", validator=OneOf("a", "b"))
    assert (key.required, key.default_text, key.valid_values) == (False, "a", ("a", "b"))
    assert ConfigKey("n", ConfigType.INT).default is REQUIRED
    assert ConfigKey("n", ConfigType.INT).default_text is None
    assert ConfigKey("n", ConfigType.LIST, default=["x", "y"]).default_text == "x,y"


def test_a_later_definition_replaces_an_earlier_one() -> None:
    merged = ConfigDef(ConfigKey("a", ConfigType.INT), ConfigKey("b", ConfigType.INT)) | ConfigDef(
        ConfigKey("a", ConfigType.STRING)
    )
    assert [(key.name, key.type) for key in merged] == [
        ("a", ConfigType.STRING),
        ("b", ConfigType.INT),
    ]


def test_a_setting_is_defined_once() -> None:
    with pytest.raises(ValueError, match="more than once: a"):
        ConfigDef(ConfigKey("a", ConfigType.INT), ConfigKey("a", ConfigType.INT))


def test_texts_are_trimmed_as_javas_configs_are() -> None:
    definition = ConfigDef(
        ConfigKey("text", ConfigType.STRING, validator=OneOf("json", "csv")),
        ConfigKey("secret", ConfigType.PASSWORD),
        ConfigKey("list", ConfigType.LIST),
        ConfigKey("number", ConfigType.DOUBLE),
        ConfigKey("switch", ConfigType.BOOLEAN),
        ConfigKey("class", ConfigType.CLASS),
        ConfigKey("delimiter", ConfigType.STRING, trimmed=False),
    )
    found = definition.parse(
        {
            "text": " json\n",
            "secret": "a b \r\n",
            "list": "\n a , b\t",
            "number": " 1.5 ",
            "switch": " TRUE\n",
            "class": " a.B\n",
            "delimiter": "\t",
        }
    )
    assert found.require_valid() == {
        "text": "json",
        "secret": Password("a b"),
        "list": ["a", "b"],
        "number": 1.5,
        "switch": True,
        "class": "a.B",
        "delimiter": "\t",
    }
    # Java trims no other white space
    violations = definition.parse({"text": "json\u00a0"}).violations
    assert "text" in {each.field for each in violations}
