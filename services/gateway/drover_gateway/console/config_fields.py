"""A connector's config as the fields of a form. Pure.

A field has the value that the user gave; what the setting is comes from a validation. Settings that
no plugin defines are fields too, so that no setting of a config is lost.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.config.config_def import UNDEFINED_GROUP
from drover.config.url_passwords import has_url_password
from drover.model.secrets import MASK, sounds_secret

NAME, CLASS = "name", "connector.class"
#: Longer values are edited in several lines.
_LINE_MAX_CHARS = 120
#: What browsers change or drop in the value of a field.
_NOT_IN_FORMS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_PLACEHOLDER = re.compile(r"\$\{[^{}:]+:[^{}]*\}")
#: A value of the transform MaskField may look like the mask of a secret.
_RECORD_MASK = re.compile(r"transforms\..*\.replacement")
_SETTING = re.compile(r'config\["(.*)"\]', re.DOTALL)
_BOOLEANS = ("true", "false")
_PREDICATE = re.compile(r"transforms\..+\.predicate")
#: The kinds of proposals beside the kinds of ``RecordPlugin``: a topic; topics that a sink reads.
TOPIC, TOPICS = "topic", "topics"
#: The settings that have proposals, by their kind.
_PROPOSED_SETTINGS = {
    TOPIC: re.compile(r"topic|errors\.deadletterqueue\.topic\.name"),
    TOPICS: re.compile(r"topics"),
    "converter": re.compile(r"(key|value|header)\.converter"),
    "transforms": re.compile(r"transforms\..+\.type"),
    "predicates": re.compile(r"predicates\..+\.type"),
}


class Show(StrEnum):
    """Which fields are visible."""

    SET = "set"
    IMPORTANT = "important"
    ALL = "all"


class Control(StrEnum):
    """How a value is edited."""

    #: Its value is never sent to the browser.
    SECRET = "secret"
    #: A form cannot hold the value: it is kept, and edited as JSON.
    EXACT = "exact"
    LINES = "lines"
    CHOICE = "choice"
    LINE = "line"


@dataclass(frozen=True, slots=True)
class Field:
    """A setting with the value that the user gave.

    Attributes:
        name: The setting.
        label: What user interfaces show as its name.
        type: The setting's type; empty if no plugin defines it.
        value: Its value; None if it is not set.
        control: How it is edited.
        default: Its default value; None if there is none.
        is_required: Whether it must be set.
        importance: HIGH, MEDIUM or LOW.
        documentation: Its documentation.
        choices: Its valid or recommended values.
        dependents: The settings whose choices or visibility depend on it.
        errors: Its errors.
        warnings: Its warnings.
        has_effect: Whether it has an effect together with the other settings.
    """

    name: str
    label: str
    type: str = ""
    value: str | None = None
    control: Control = Control.LINE
    default: str | None = None
    is_required: bool = False
    importance: str = "MEDIUM"
    documentation: str = ""
    choices: Sequence[str] = ()
    dependents: Sequence[str] = ()
    errors: Sequence[str] = ()
    warnings: Sequence[str] = ()
    has_effect: bool = True

    @property
    def id(self) -> str:
        """The start of the ids of its elements."""
        return setting_id(self.name)

    def is_shown(self, show: Show) -> bool:
        """Whether it is visible; a value or a fault never hides."""
        if self.value is not None or self.errors or self.warnings:
            return True
        if not self.has_effect or show is Show.SET:
            return self.is_required and self.has_effect
        return show is Show.ALL or self.is_required or self.importance == "HIGH"


@dataclass(frozen=True, slots=True)
class Group:
    """Settings that belong together, in their order."""

    title: str
    fields: Sequence[Field]


@dataclass(frozen=True, slots=True)
class Fault:
    """An error or a warning: the setting, or another field of the request, and the text."""

    setting: str
    text: str


@dataclass(frozen=True, slots=True)
class Checked:
    """A config with the result of its validation.

    Attributes:
        groups: All settings.
        errors: All errors.
        warnings: All warnings.
        skipped: Checks that were not made, with the reasons.
    """

    groups: Sequence[Group]
    errors: Sequence[Fault] = ()
    warnings: Sequence[Fault] = ()
    skipped: Sequence[Fault] = ()

    @property
    def fields(self) -> Mapping[str, Field]:
        """The fields by setting."""
        return {each.name: each for group in self.groups for each in group.fields}


def checked(
    config: Mapping[str, str],
    answer: pb.ValidateConfigResponse,
    own: Collection[str] = (),
    proposals: Mapping[str, Sequence[str]] | None = None,
    passwords: Collection[str] = (),
    *,
    is_new: bool = False,
) -> Checked:
    """The fields of a config: the first group, the connector's own settings, the other groups.

    Args:
        config: The settings that the user gave.
        answer: The result of their validation.
        own: The connector's own settings.
        proposals: Classes by the kinds of ``RecordPlugin``, and topics.
        passwords: Settings whose values are never shown.
        is_new: Whether the user has not filled in anything yet: errors are left out.
    """
    groups: dict[str, list[Field]] = {each: [] for each in answer.groups}
    known = set()
    for value in answer.values:
        known.add(value.key.name)
        if value.key.name != NAME:
            proposed = _proposed_for(value.key, config, proposals or {})
            entry = _field(value, config.get(value.key.name), proposed, is_new=is_new)
            groups.setdefault(value.key.group, []).append(_hidden(entry, passwords))
    errors = [] if is_new else _faults(answer.violations)
    rest = [
        Field(
            each,
            each,
            value=config[each],
            errors=tuple(fault.text for fault in errors if fault.setting == each),
        )
        for each in sorted(config)
        if each not in known
    ]
    groups.setdefault(UNDEFINED_GROUP, []).extend(
        _hidden(_with_control(each), passwords) for each in rest if each.name != NAME
    )
    order = {each.key.name: each.key.order for each in answer.values}
    found = [
        Group(title, sorted(fields, key=lambda each: order.get(each.name, len(order))))
        for title, fields in groups.items()
        if fields
    ]
    first, rest_of_groups = found[:1], found[1:]
    rest_of_groups.sort(key=lambda group: all(each.name not in own for each in group.fields))
    return Checked(
        [*first, *rest_of_groups],
        errors,
        _faults(answer.warnings),
        [Fault(each.setting, each.reason) for each in answer.skipped_checks],
    )


def setting_id(name: str) -> str:
    """The start of the ids of a setting's elements."""
    return f"s-{hashlib.blake2s(name.encode('utf-8', 'replace'), digest_size=8).hexdigest()}"


def is_mask(name: str, value: str) -> bool:
    """Whether a value is the mask that the workers show for a secret."""
    return value == MASK and _RECORD_MASK.fullmatch(name) is None


def is_secret(name: str, value: str, type_name: str = "") -> bool:
    """Whether the value of a setting is not shown, as in the workers' responses.

    A placeholder is no secret. ``type_name`` is empty for a setting that no plugin defines.
    """
    if is_mask(name, value):
        return True
    if _PLACEHOLDER.fullmatch(value):
        return False
    by_name = type_name == "PASSWORD" or (not type_name and sounds_secret(name))
    return by_name or has_url_password(value)


def secrets_of(config: Mapping[str, str], named: Iterable[str] = ()) -> Mapping[str, str]:
    """The secrets that the user typed; ``named`` are settings of type PASSWORD."""
    passwords = frozenset(named)
    return {
        name: value
        for name, value in config.items()
        if value
        and not is_mask(name, value)
        and is_secret(name, value, "PASSWORD" if name in passwords else "")
    }


def masked(config: Mapping[str, str], named: Iterable[str] = ()) -> dict[str, str]:
    """A config as it may be sent to the browser."""
    return {**config, **dict.fromkeys(secrets_of(config, named), MASK)}


def unmasked(config: Mapping[str, str], secrets: Mapping[str, str]) -> dict[str, str]:
    """A config with the typed secrets in place of their masks."""
    return {
        name: secrets[name] if name in secrets and is_mask(name, value) else value
        for name, value in config.items()
    }


def setting_of(place: str) -> str:
    """The setting in the field of a violation; other fields stay as they are."""
    found = _SETTING.fullmatch(place)
    return found[1] if found else place


def _faults(violations: Iterable[pb.ConfigViolation]) -> list[Fault]:
    return [Fault(setting_of(each.field), each.description) for each in violations]


def names_in(value: str) -> list[str]:
    """The names in the value of a list."""
    return [each.strip() for each in value.split(",") if each.strip()]


def _proposed_for(
    key: pb.ConfigKey, config: Mapping[str, str], proposals: Mapping[str, Sequence[str]]
) -> Sequence[str]:
    """What is proposed for the value of a setting."""
    if _PREDICATE.fullmatch(key.name):
        return names_in(config.get("predicates", ""))
    kinds = (kind for kind, each in _PROPOSED_SETTINGS.items() if each.fullmatch(key.name))
    names = proposals.get(next(kinds, ""), ())
    return _longer_lists(config.get(key.name, ""), names) if key.type == "LIST" else names


def _longer_lists(value: str, names: Sequence[str]) -> Sequence[str]:
    """A list as the user gave it with one more name: a proposal replaces the whole value."""
    given = names_in(value)
    if given and not value.rstrip().endswith(",") and given[-1] not in names:
        given.pop()  # the start of a name
    return [",".join([*given, each]) for each in names if each not in given]


def _field(
    value: pb.ConfigValue, given: str | None, proposed: Sequence[str], *, is_new: bool
) -> Field:
    key = value.key
    choices = tuple(value.recommended_values) or tuple(key.valid_values) or tuple(proposed)
    if key.type == "BOOLEAN":
        choices = _BOOLEANS
    return _with_control(
        Field(
            name=key.name,
            label=key.display_name or key.name,
            type="" if key.group == UNDEFINED_GROUP else key.type,
            value=given,
            default=key.default_value if key.HasField("default_value") else None,
            is_required=key.required,
            importance=key.importance,
            documentation=key.documentation,
            choices=choices,
            dependents=tuple(key.dependents),
            errors=() if is_new else tuple(value.errors),
            warnings=tuple(value.warnings),
            has_effect=value.visible,
        ),
        is_closed=key.type == "BOOLEAN" or bool(key.valid_values and key.type != "LIST"),
    )


def _hidden(entry: Field, passwords: Collection[str]) -> Field:
    """The field, as one of a secret if its value is one under another class."""
    is_secret_elsewhere = entry.name in passwords and is_secret(
        entry.name, entry.value or "", "PASSWORD"
    )
    return replace(entry, control=Control.SECRET) if entry.value and is_secret_elsewhere else entry


def _with_control(entry: Field, *, is_closed: bool = False) -> Field:
    """Choose how it is edited; ``is_closed`` if other values than the choices are invalid."""
    given = entry.value or ""
    if entry.type == "PASSWORD" and not given:
        is_hidden = True
    elif not given:
        is_hidden = not entry.type and sounds_secret(entry.name)
    else:
        is_hidden = is_secret(entry.name, given, entry.type)
    if is_hidden:
        control = Control.SECRET
    elif _NOT_IN_FORMS.search(given):
        control = Control.EXACT
    elif "\n" in given or len(given) > _LINE_MAX_CHARS:
        control = Control.LINES
    else:
        control = Control.CHOICE if is_closed else Control.LINE
    return replace(entry, control=control)
