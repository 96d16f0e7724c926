"""What a setting's value could be, and whether it matters at all, given the other settings."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommender:
    """Helps people and forms to fill in a config; it refuses nothing.

    Both functions get the parsed values of the whole config, defaults included; settings that are
    faulty or have no value are left out or None. They run whenever a config is checked: they must
    be quick, and ask no other system.

    Attributes:
        depends_on: The settings that they look at; these list this one among their dependents.
        values: Values that fit to the others; without it those that the validator allows.
        visible: Whether the setting has an effect beside the others; without it it always has.
    """

    depends_on: tuple[str, ...] = ()
    values: Callable[[Mapping[str, Any]], Iterable[str]] | None = None
    visible: Callable[[Mapping[str, Any]], bool] | None = None


def visible_when(name: str, *values: Any) -> Recommender:
    """For a setting that has an effect only while ``name`` has one of ``values``.

    Example:
        >>> recommender = visible_when("auth.type", "basic")
        >>> recommender.visible({"auth.type": "oauth2"})
        False
    """
    return Recommender(depends_on=(name,), visible=lambda config: config.get(name) in values)


def visible_with(name: str) -> Recommender:
    """For a setting that has an effect only while ``name`` has a value."""
    return Recommender(depends_on=(name,), visible=lambda config: bool(config.get(name)))
