"""The definition of a connector's settings: names, types, defaults and rules.

Parsing reports all errors of a config at once.

Example:
    >>> from drover.connector import InRange
    >>> definition = ConfigDef(
    ...     ConfigKey("url", ConfigType.STRING, documentation="Where to read from."),
    ...     ConfigKey("poll.interval.ms", ConfigType.INT, default=1000, validator=InRange(1)),
    ... )
    >>> definition.parse({"url": "http://example.org"}).values
    {'url': 'http://example.org', 'poll.interval.ms': 1000}
    >>> [str(fault.description) for fault in definition.parse({"poll.interval.ms": "0"}).violations]
    ['is required', 'must be at least 1, not 0']
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from itertools import islice
from typing import Any, Final

from drover.config.near_names import did_you_mean, near_settings
from drover.config.recommender import Recommender
from drover.config.validators import Validator
from drover.errors import InvalidArgumentError, Reason, Violation
from drover.model.config import JAVA_SPACE
from drover.model.secrets import MASK

_QUOTED_MAX_LENGTH = 80
#: For more unknown settings in one config no similar names are looked up, which takes a millisecond
#: each.
_SUGGESTIONS_MAX = 200
#: An upper limit; more recommended values are of no use.
_RECOMMENDED_MAX = 100
_INT_BOUND = 2**31
_LONG_BOUND = 2**63

#: The group of settings that no plugin defines.
UNDEFINED_GROUP = "Unknown"


class ConfigType(StrEnum):
    """The type of a setting; the Python type of its value is in parentheses."""

    #: Any text without surrounding white space (str).
    STRING = "STRING"
    #: Text without surrounding white space that is never shown (Password).
    PASSWORD = "PASSWORD"
    #: 32 bits (int).
    INT = "INT"
    #: 64 bits (int).
    LONG = "LONG"
    #: A finite number (float).
    DOUBLE = "DOUBLE"
    #: true or false (bool).
    BOOLEAN = "BOOLEAN"
    #: Items separated by commas, without surrounding white space (list of str).
    LIST = "LIST"
    #: The name of a class or one of its aliases (str).
    CLASS = "CLASS"


class Importance(StrEnum):
    """How important a setting is to users."""

    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


class Width(StrEnum):
    """The width of a setting's input field in user interfaces."""

    NONE = "NONE"
    SHORT = "SHORT"
    MEDIUM = "MEDIUM"
    LONG = "LONG"


class _Required(Enum):
    TOKEN = "required"


#: The default of a required setting.
REQUIRED: Final = _Required.TOKEN


@dataclass(frozen=True, slots=True)
class Password:
    """A secret. Only ``value`` has its text; ``str`` and ``repr`` mask it."""

    value: str

    def __repr__(self) -> str:
        return MASK

    __str__ = __repr__


class SettingError(ValueError):
    """Settings that are valid one by one contradict each other.

    Args:
        setting: The setting to which the error is attributed.
        fault: The error, as the end of a sentence that starts with the setting's name.
    """

    def __init__(self, setting: str, fault: str) -> None:
        super().__init__(f"{setting} {fault}")
        self.setting = setting
        self.fault = fault


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One setting.

    Attributes:
        name: Its name.
        type: Its type.
        default: A value of the setting's type; None for an optional setting without a default;
            ``REQUIRED`` for a required setting.
        importance: Its importance.
        documentation: Its documentation.
        group: The group in which user interfaces show it.
        validator: Checks the parsed value, including the default, unless it is None.
        recommender: Recommends values, given the other settings.
        display_name: The name that user interfaces show; by default ``name``.
        width: The width of its input field.
        trimmed: Whether white space around the text is removed first, as Kafka's
            ``ConfigDef.parseType`` does; False where it may be data, such as a delimiter.
    """

    name: str
    type: ConfigType
    default: Any = REQUIRED
    importance: Importance = Importance.MEDIUM
    documentation: str = ""
    group: str = "Connector"
    validator: Validator | None = None
    recommender: Recommender | None = None
    display_name: str = ""
    width: Width = Width.NONE
    trimmed: bool = True

    @property
    def required(self) -> bool:
        """Whether the setting is required."""
        return self.default is REQUIRED

    @property
    def default_text(self) -> str | None:
        """The default in the form in which configs write it; None if there is none."""
        if self.default is REQUIRED or self.default is None:
            return None
        return to_text(self.default)

    @property
    def valid_values(self) -> tuple[str, ...]:
        """The valid values if the setting is an enumeration, else empty."""
        return tuple(self.validator.valid_values) if self.validator is not None else ()

    def parse(self, text: str) -> Any:
        """The value of ``text``.

        Raises:
            ValueError: The text is not valid; the message states what is valid.
        """
        return _PARSERS[self.type](text.strip(JAVA_SPACE) if self.trimmed else text)


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """The value of one setting, with its errors and warnings.

    An error makes the config invalid, a warning does not.

    Attributes:
        key: The setting.
        text: The given or default value, as text.
        errors: The validation errors.
        warnings: The warnings.
        recommended_values: The recommender's values, given the other settings of the config.
        visible: Whether the setting has an effect, given the other settings of the config.
        skipped_checks: The checks that are not possible at the moment, with the reasons.
    """

    key: ConfigKey
    text: str | None
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    recommended_values: tuple[str, ...] = ()
    visible: bool = True
    skipped_checks: tuple[str, ...] = ()

    @property
    def shown_text(self) -> str | None:
        """The text that may be shown: passwords are masked."""
        if self.text is not None and self.key.type is ConfigType.PASSWORD:
            return MASK
        return self.text


@dataclass(frozen=True, slots=True)
class ParsedConfig:
    """The values of a config by name, and all violations. Unknown settings are texts; invalid
    settings are absent.
    """

    values: Mapping[str, Any]
    violations: tuple[Violation, ...] = ()

    def require_valid(self, name: str = "") -> Mapping[str, Any]:
        """The values, if the config is valid.

        Raises:
            InvalidArgumentError: INVALID_CONFIG with every violation.
        """
        if self.violations:
            of = f" of {name!r}" if name else ""
            count = len(self.violations)
            listed = "; ".join(f"{each.field} {each.description}" for each in self.violations[:5])
            more = f"; and {count - 5} more" if count > 5 else ""
            raise InvalidArgumentError(
                Reason.INVALID_CONFIG,
                f"the config{of} has {count} error{'s' if count > 1 else ''}: {listed}{more}",
                violations=self.violations,
            )
        return self.values


class ConfigDef:
    """The settings of a connector. An unknown setting in a config is a warning, not an error."""

    def __init__(self, *keys: ConfigKey) -> None:
        self._keys = {key.name: key for key in keys}
        if len(self._keys) != len(keys):
            names = [key.name for key in keys]
            doubled = sorted({name for name in names if names.count(name) > 1})
            raise ValueError(f"defined more than once: {', '.join(doubled)}")

    def __iter__(self) -> Iterator[ConfigKey]:
        return iter(self._keys.values())

    def __contains__(self, name: object) -> bool:
        return name in self._keys

    def __getitem__(self, name: str) -> ConfigKey:
        return self._keys[name]

    def __or__(self, other: "ConfigDef") -> "ConfigDef":
        """Both definitions, in order. If both define a setting, ``other`` takes precedence."""
        merged = ConfigDef()
        merged._keys = self._keys | other._keys
        return merged

    def parse(self, raw: Mapping[str, str | None]) -> ParsedConfig:
        """The typed values, and all violations."""
        values: dict[str, Any] = {}
        violations: list[Violation] = []
        for key in self:
            value, errors = _evaluate(key, raw.get(key.name))
            if errors:
                violations += [Violation(key.name, error) for error in errors]
            else:
                values[key.name] = value
        values |= {
            name: text for name, text in raw.items() if name not in self._keys and text is not None
        }
        return ParsedConfig(values, tuple(violations))

    def validate(self, raw: Mapping[str, str | None]) -> list[ConfigValue]:
        """All settings with values, errors and recommended values, in the order of the definition;
        unknown settings last.
        """
        found = []
        parsed = self.parse(raw)
        errors: dict[str, tuple[str, ...]] = {}
        for violation in parsed.violations:
            errors[violation.field] = (*errors.get(violation.field, ()), violation.description)
        for key in self:
            given = raw.get(key.name)
            text = given if given is not None else key.default_text
            value = ConfigValue(key, text, errors.get(key.name, ()))
            found.append(_recommended(value, parsed.values))
        unknown_names = [name for name in raw if name not in self._keys]
        for number, name in enumerate(unknown_names):
            unknown = ConfigKey(name, ConfigType.STRING, default=None, group=UNDEFINED_GROUP)
            warning = self._unknown(name, suggests=number < _SUGGESTIONS_MAX)
            found.append(ConfigValue(unknown, raw[name], warnings=(warning,)))
        return found

    def _unknown(self, name: str, *, suggests: bool) -> str:
        question = did_you_mean(near_settings(name, self._keys)[:1]) if suggests else ""
        advice = f"; {question}" if question else ""
        return f"is not a setting of this connector and has no effect{advice}"


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """The position of a setting among the others.

    Attributes:
        order: The position in the setting's group, from 1.
        dependents: The settings whose recommenders depend on this one.
    """

    order: int
    dependents: tuple[str, ...]


def places(keys: Iterable[ConfigKey]) -> list[KeyPlace]:
    """The position of each of a definition's keys, in the same order."""
    listed = list(keys)
    dependents: dict[str, list[str]] = {}
    for key in listed:
        for name in key.recommender.depends_on if key.recommender is not None else ():
            dependents.setdefault(name, []).append(key.name)
    counts: Counter[str] = Counter()
    found = []
    for key in listed:
        counts[key.group] += 1
        found.append(KeyPlace(counts[key.group], tuple(dependents.get(key.name, ()))))
    return found


def _recommended(value: ConfigValue, config: Mapping[str, Any]) -> ConfigValue:
    """A value with the recommender's results. If the recommender fails, a warning instead."""
    recommender = value.key.recommender
    values: Iterable[str] = value.key.valid_values
    if recommender is None and not values:
        return value
    visible, warnings = True, value.warnings
    try:
        if recommender is not None and recommender.visible is not None:
            visible = bool(recommender.visible(config))
        if recommender is not None and recommender.values is not None:
            values = [str(each) for each in islice(recommender.values(config), _RECOMMENDED_MAX)]
    except Exception as error:  # noqa: BLE001 - a plugin's code, which must not reject a config
        fault = f"has a recommender that failed: {type(error).__name__}"
        values, visible, warnings = (), True, (*warnings, fault)
    if value.key.type is ConfigType.PASSWORD:
        values = ()
    return replace(value, recommended_values=tuple(values), visible=visible, warnings=warnings)


def to_text(value: Any) -> str:
    """A value in the form in which configs write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Password):
        return value.value
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value)
    return str(value)


def _evaluate(key: ConfigKey, text: str | None) -> tuple[Any, tuple[str, ...]]:
    if text is None:
        if key.required:
            return None, ("is required",)
        value = key.default
    else:
        try:
            value = key.parse(text)
        except ValueError as error:
            return None, (str(error),)
    if value is None or key.validator is None:
        return value, ()
    return value, tuple(key.validator.faults(value))


def quote(text: str) -> str:
    """Text for a message: quoted and shortened."""
    if len(text) > _QUOTED_MAX_LENGTH:
        return f"{text[:_QUOTED_MAX_LENGTH]!r}…"
    return repr(text)


def _parse_int(text: str, bits: int, bound: int) -> int:
    stripped = text.strip()
    digits = stripped.removeprefix("-").removeprefix("+")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 30):
        raise ValueError(f"must be a whole number, not {quote(text)}")
    value = int(stripped)
    if not -bound <= value < bound:
        raise ValueError(f"must fit into {bits} bits, not {quote(text)}")
    return value


def _parse_double(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError(f"must be a number, not {quote(text)}")
    return value


def _parse_boolean(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError(f"must be true or false, not {quote(text)}")
    return lowered == "true"


def _parse_list(text: str) -> list[str]:
    stripped = text.strip()
    return [item.strip() for item in stripped.split(",")] if stripped else []


def _parse_class(text: str) -> str:
    stripped = text.strip()
    # Kafka Connect has nested classes: MaskField$Value
    parts = stripped.replace(":", ".").replace("$", ".").split(".")
    if not all(part.isidentifier() for part in parts):
        raise ValueError(f"must be the name of a class or its alias, not {quote(text)}")
    return stripped


_PARSERS: Final[Mapping[ConfigType, Any]] = {
    ConfigType.STRING: str,
    ConfigType.PASSWORD: Password,
    ConfigType.INT: lambda text: _parse_int(text, 32, _INT_BOUND),
    ConfigType.LONG: lambda text: _parse_int(text, 64, _LONG_BOUND),
    ConfigType.DOUBLE: _parse_double,
    ConfigType.BOOLEAN: _parse_boolean,
    ConfigType.LIST: _parse_list,
    ConfigType.CLASS: _parse_class,
}
