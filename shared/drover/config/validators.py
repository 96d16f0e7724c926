"""Rules for the values of settings. An error message states what is valid, not only what is
invalid.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


class Validator(Protocol):
    """A rule for a parsed value."""

    @property
    def valid_values(self) -> Sequence[str]:
        """The valid values of an enumeration, else empty."""

    def faults(self, value: Any) -> Iterable[str]:
        """The errors, each as the end of a sentence that starts with the setting's name."""


@dataclass(frozen=True, slots=True)
class InRange:
    """A number from ``minimum`` to ``maximum``, both inclusive; None for no bound."""

    minimum: float | None = None
    maximum: float | None = None
    valid_values: Sequence[str] = field(default=(), init=False)

    def faults(self, value: Any) -> Iterable[str]:
        """See Validator."""
        low, high = self.minimum, self.maximum
        if (low is None or value >= low) and (high is None or value <= high):
            return ()
        if low is not None and high is not None:
            return (f"must be from {low} to {high}, not {value}",)
        if low is not None:
            return (f"must be at least {low}, not {value}",)
        return (f"must be at most {high}, not {value}",)


class OneOf:
    """One of the given texts; for a list, every item."""

    def __init__(self, *values: str) -> None:
        self.valid_values: Sequence[str] = values

    def faults(self, value: Any) -> Iterable[str]:
        """See Validator."""
        items = value if isinstance(value, list) else [value]
        allowed = ", ".join(self.valid_values)
        return [f"must be one of {allowed}, not {item!r}" for item in items if item not in self]

    def __contains__(self, item: object) -> bool:
        return item in self.valid_values


class Matches:
    """A text that matches a regular expression as a whole; for a list, every item."""

    def __init__(self, pattern: str, what: str) -> None:
        self._pattern = re.compile(pattern)
        self._what = what
        self.valid_values: Sequence[str] = ()

    def faults(self, value: Any) -> Iterable[str]:
        """See Validator."""
        items = value if isinstance(value, list) else [value]
        return [
            f"must be {self._what}, not {item[:80]!r}"
            for item in items
            if not self._pattern.fullmatch(item)
        ]


class NonEmpty:
    """A text that is not blank, or a list with at least one item and no empty items."""

    valid_values: Sequence[str] = ()

    def faults(self, value: Any) -> Iterable[str]:
        """See Validator."""
        if isinstance(value, list):
            if not value:
                return ("must have at least one item",)
            return ("must not have empty items",) if not all(value) else ()
        return ("must not be empty",) if not str(value).strip() else ()


class Check:
    """A custom rule: a function that returns the error of a value, or None.

    Example:
        >>> even = Check(lambda value: None if value % 2 == 0 else f"must be even, not {value}")
    """

    def __init__(self, judge: Callable[[Any], str | None]) -> None:
        self._judge = judge
        self.valid_values: Sequence[str] = ()

    def faults(self, value: Any) -> Iterable[str]:
        """See Validator."""
        fault = self._judge(value)
        return (fault,) if fault else ()


class All:
    """Several rules at once; reports the errors of all of them."""

    def __init__(self, *validators: Validator) -> None:
        self._validators = validators
        self.valid_values: Sequence[str] = tuple(
            value for each in validators for value in each.valid_values
        )

    def faults(self, value: Any) -> Iterable[str]:
        """See Validator."""
        return [fault for each in self._validators for fault in each.faults(value)]
