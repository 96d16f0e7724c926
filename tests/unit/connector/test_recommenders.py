"""Recommended values of a setting, given the other settings."""

from collections.abc import Mapping
from itertools import count

from drover.config.config_def import places
from drover.connector import (
    ConfigDef,
    ConfigKey,
    ConfigType,
    ConfigValue,
    OneOf,
    Recommender,
    visible_when,
    visible_with,
)


def _broken(config: Mapping[str, object]) -> list[str]:
    raise KeyError(config)


def _only_two(config: Mapping[str, object]) -> list[str]:
    return [f"{config['mode']}{number}" for number in (1, 2)]


DEFINITION = ConfigDef(
    ConfigKey("mode", ConfigType.STRING, default="a", validator=OneOf("a", "b")),
    ConfigKey("b.only", ConfigType.STRING, default=None, recommender=visible_when("mode", "b")),
    ConfigKey("table", ConfigType.STRING, default=None, group="Tables"),
    ConfigKey("table.rows", ConfigType.INT, default=5, recommender=visible_with("table")),
    ConfigKey(
        "choice",
        ConfigType.STRING,
        default=None,
        group="Tables",
        recommender=Recommender(depends_on=("mode", "table"), values=_only_two),
    ),
    ConfigKey(
        "broken",
        ConfigType.STRING,
        default=None,
        validator=OneOf("x"),
        recommender=Recommender(values=_broken, visible=lambda _: False),
    ),
    ConfigKey(
        "endless",
        ConfigType.INT,
        default=None,
        recommender=Recommender(values=lambda _: map(str, count())),
    ),
    ConfigKey(
        "secret", ConfigType.PASSWORD, default=None, recommender=Recommender(values=lambda _: ["s"])
    ),
)


def values_of(**raw: str) -> dict[str, ConfigValue]:
    return {value.key.name: value for value in DEFINITION.validate(dict(raw))}


def test_a_setting_is_visible_only_beside_those_that_give_it_an_effect() -> None:
    hidden = [name for name, value in values_of().items() if not value.visible]
    assert hidden == ["b.only", "table.rows"]
    assert all(value.visible for value in values_of(mode="b", table="t").values())


def test_values_are_those_of_the_recommender_else_those_of_the_validator() -> None:
    found = values_of(mode="b")
    assert found["mode"].recommended_values == ("a", "b")
    assert found["choice"].recommended_values == ("b1", "b2")
    assert found["table"].recommended_values == ()
    assert len(found["endless"].recommended_values) == 100
    assert found["secret"].recommended_values == (), "passwords are never recommended"


def test_a_recommender_that_fails_refuses_nothing() -> None:
    broken = values_of()["broken"]
    assert (broken.errors, broken.recommended_values, broken.visible) == ((), (), True)
    assert broken.warnings == ("has a recommender that failed: KeyError",)
    # the recommender finds no value of a faulty setting
    assert values_of(mode="c")["choice"].warnings == ("has a recommender that failed: KeyError",)


def test_dependents_and_places_follow_from_the_definition() -> None:
    found = dict(zip((key.name for key in DEFINITION), places(DEFINITION), strict=True))
    assert found["mode"].dependents == ("b.only", "choice")
    assert found["table"].dependents == ("table.rows", "choice")
    assert found["choice"].dependents == ()
    assert [found[name].order for name in ("mode", "b.only", "table", "choice")] == [1, 2, 1, 2]
