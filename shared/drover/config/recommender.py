"""Recommends values of a setting, and whether it is visible, given the other settings."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommender:
    """Helps users and forms to fill in a config; never makes a config invalid.

    Both functions receive the parsed values of the whole config, including defaults. Invalid
    settings are absent, settings without a value are absent or None. The functions run at each
    validation of a config, so they must be fast and must not call other systems.

    Attributes:
        depends_on: The settings on which they depend. This setting becomes one of their dependents.
        values: Returns values that are valid with the other settings; by default the validator's
            values.
        visible: Returns whether the setting has an effect with the other settings; by default it
            always has.
    """

    depends_on: tuple[str, ...] = ()
    values: Callable[[Mapping[str, Any]], Iterable[str]] | None = None
    visible: Callable[[Mapping[str, Any]], bool] | None = None


def visible_when(name: str, *values: Any) -> Recommender:
    """For a setting that has an effect only if ``name`` has one of ``values``.

    Example:
        >>> recommender = visible_when("auth.type", "basic")
        >>> recommender.visible({"auth.type": "oauth2"})
        False
    """
    return Recommender(depends_on=(name,), visible=lambda config: config.get(name) in values)


def visible_with(name: str) -> Recommender:
    """For a setting that has an effect only if ``name`` has a value."""
    return Recommender(depends_on=(name,), visible=lambda config: bool(config.get(name)))
