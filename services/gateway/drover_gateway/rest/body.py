"""Bodies of requests: JSON objects whose values keep the digits that the caller sent.

Jackson turns a number or a boolean in a config into text; so numbers are parsed as text here, and
stay it in offsets. All violations of a body are reported at once.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from drover_gateway.rest.errors import RestError

#: The maximum size of a body with a config.
BODY_MAX_BYTES = 2 * 1024 * 1024
_INITIAL_STATES = ("RUNNING", "PAUSED", "STOPPED")
_FIELDS_SHOWN_MAX = 20


class NumberText(str):
    """A JSON number, with the digits of the body."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ConfigBody:
    """A config of a body.

    Attributes:
        settings: The settings that have a value, as text.
        nulls: The settings that are null.
    """

    settings: dict[str, str]
    nulls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateBody:
    """The body of a request that creates a connector.

    Attributes:
        name: The connector's name; empty for none.
        config: The config.
        initial_state: RUNNING, PAUSED or STOPPED; empty for none.
    """

    name: str
    config: ConfigBody
    initial_state: str = ""


@dataclass(frozen=True, slots=True)
class OffsetBody:
    """An offset of a body, as JSON text; ``offset`` is None to remove it."""

    partition: str
    offset: str | None


@dataclass(slots=True)
class _Faults:
    lines: list[str] = field(default_factory=list)

    def add(self, where: str, what: str) -> None:
        self.lines.append(f"{where} {what}" if where else what)

    def check(self) -> None:
        if self.lines:
            shown = self.lines[:_FIELDS_SHOWN_MAX]
            if len(self.lines) > len(shown):
                shown.append(f"and {len(self.lines) - len(shown)} more")
            raise RestError(400, f"the request body is invalid: {'; '.join(shown)}")


def parse_object(body: bytes) -> dict[str, Any]:
    """The JSON object of a body; the last value of a repeated field counts.

    Raises:
        RestError: 400.
    """
    if not body.strip():
        raise RestError(400, "the request body is empty: send a JSON object")
    try:
        parsed = json.loads(
            body.decode("utf-8"),
            parse_int=NumberText,
            parse_float=NumberText,
            parse_constant=_reject_constant,
        )
    except UnicodeDecodeError:
        raise RestError(400, "the request body is not UTF-8") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise RestError(400, f"the request body is not JSON: {error.msg} ({where})") from None
    except RecursionError:
        raise _nested_too_deeply() from None
    except ValueError as error:  # NaN and infinities
        raise RestError(400, f"the request body is not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise RestError(400, f"the request body must be a JSON object, not {_kind(parsed)}")
    return parsed


def parse_config(body: bytes) -> ConfigBody:
    """The body of a request whose body is a config.

    Raises:
        RestError: 400 with every fault.
    """
    faults = _Faults()
    config = _config(parse_object(body), "", faults)
    faults.check()
    return config


def parse_create(body: bytes) -> CreateBody:
    """The body of a request that creates a connector.

    Raises:
        RestError: 400 with every fault.
    """
    parsed = parse_object(body)
    faults = _Faults()
    _check_fields(parsed, ("name", "config", "initial_state"), "", faults)
    name = _text(parsed.get("name"), "name", faults) or ""
    state = _text(parsed.get("initial_state"), "initial_state", faults)
    if state is not None and state.upper() not in _INITIAL_STATES:
        faults.add("initial_state", f"must be {', '.join(_INITIAL_STATES)}, not {state[:100]!r}")
    config = ConfigBody({})
    if parsed.get("config") is None:
        faults.add("config", "is missing: send the connector's settings")
    elif not isinstance(parsed["config"], dict):
        faults.add("config", f"must be a JSON object, not {_kind(parsed['config'])}")
    else:
        config = _config(parsed["config"], "config.", faults)
    faults.check()
    return CreateBody(name, config, (state or "").upper())


def parse_offsets(body: bytes) -> tuple[OffsetBody, ...]:
    """The offsets of a body; none if it has no list of offsets, or an empty one.

    Raises:
        RestError: 400 with every fault.
    """
    parsed = parse_object(body)
    faults = _Faults()
    _check_fields(parsed, ("offsets",), "", faults)
    offsets = parsed.get("offsets")
    if offsets is not None and not isinstance(offsets, list):
        faults.add("offsets", f"must be a list, not {_kind(offsets)}")
        offsets = None
    try:
        found = [_offset(each, f"offsets[{at}]", faults) for at, each in enumerate(offsets or [])]
    except RecursionError:
        raise _nested_too_deeply() from None
    faults.check()
    return tuple(found)


def parse_level(body: bytes) -> str | None:
    """The level of a logger in a body; None if it has none. Other fields are ignored, as in Kafka
    Connect.

    Raises:
        RestError: 400.
    """
    parsed = parse_object(body)
    faults = _Faults()
    level = _text(parsed.get("level"), "level", faults)
    faults.check()
    return level


def json_text(value: Any) -> str:
    """A parsed value as JSON, with the digits that the caller sent."""
    if isinstance(value, NumberText):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json_text(k)}:{json_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(json_text(each) for each in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def _nested_too_deeply() -> RestError:
    return RestError(400, "the request body is nested too deeply")


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _config(parsed: Mapping[str, Any], prefix: str, faults: _Faults) -> ConfigBody:
    settings: dict[str, str] = {}
    nulls: list[str] = []
    for key, value in parsed.items():
        if not _is_unicode(key):
            faults.add(f"{prefix}{_shown(key)}", "is not valid Unicode")
            continue
        text = _text(value, f"{prefix}{_shown(key)}", faults)
        if value is None:
            nulls.append(key)
        elif text is not None:
            settings[key] = text
    return ConfigBody(settings, tuple(nulls))


def _text(value: Any, where: str, faults: _Faults) -> str | None:
    """A value as Jackson makes a text of it; None for null, and for a fault."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        faults.add(where, f"must be a text, not {_kind(value)}")
    elif not _is_unicode(value):
        faults.add(where, "is not valid Unicode")
    else:
        return str(value)
    return None


def _offset(parsed: Any, where: str, faults: _Faults) -> OffsetBody:
    if not isinstance(parsed, dict):
        faults.add(where, f"must be a JSON object, not {_kind(parsed)}")
        return OffsetBody("{}", None)
    _check_fields(parsed, ("partition", "offset"), f"{where}.", faults)
    partition, offset = parsed.get("partition"), parsed.get("offset")
    if not isinstance(partition, dict):
        faults.add(f"{where}.partition", f"must be a JSON object, not {_kind(partition)}")
    if offset is not None and not isinstance(offset, dict):
        faults.add(f"{where}.offset", f"must be a JSON object or null, not {_kind(offset)}")
    text = json_text(partition), None if offset is None else json_text(offset)
    if not all(_is_unicode(each) for each in text if each is not None):
        faults.add(where, "is not valid Unicode")
    return OffsetBody(*text)


def _check_fields(
    parsed: Mapping[str, Any], known: Sequence[str], prefix: str, faults: _Faults
) -> None:
    for key in parsed:
        if key not in known:
            faults.add(f"{prefix}{_shown(key)}", f"is unknown: the fields are {', '.join(known)}")


def _shown(key: str) -> str:
    return key[:100].encode("utf-8", "backslashreplace").decode()


def _is_unicode(text: str) -> bool:
    """Whether a text has no lone surrogate, which no UTF-8 can carry."""
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, NumberText):
        return "a number"
    if isinstance(value, dict):
        return "an object"
    return "a list" if isinstance(value, list) else "a text"
