"""What a user has entered for a connector so far, read from the submitted form. Pure.

The gateway keeps nothing: each page of the form has all of it. A value that a form cannot hold is
in a hidden field as JSON, and secrets that the user typed are sealed.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import quote, unquote_to_bytes

from drover.model.config import TargetState
from drover.model.secrets import MASK
from drover_gateway.console.config_fields import Show, masked, names_in, secrets_of, unmasked
from drover_gateway.console.config_text import Notation, TextError, from_text, to_text
from drover_gateway.console.http import Form, PageError

#: The prefix of the fields with the values of settings.
SETTING = "s:"
#: A text is searched for this number of secrets at most.
_SEARCHED_SECRETS_MAX = 100
#: The lists of a config to which the form adds a class, with the word for one of them.
ADDED_KINDS = {"transforms": "transform", "predicates": "predicate"}
_ALIAS = re.compile(r"[^\s,.\x00-\x1f]+")
#: The field with the config as text.
TEXT = "text"


@dataclass(frozen=True, slots=True)
class Draft:
    """The user's input.

    Attributes:
        name: The connector's name.
        config: Its settings, with the mask in place of secrets that are stored already.
        is_new: Whether the connector is to be created.
        revision: The revision that the user has seen; 0 for a new connector.
        state: The initial state of a new connector.
        show: Which fields are visible.
        notation: How the config is edited as text; None for fields.
        text: The text, as the user typed it; empty for the text of ``config``.
        passwords: Settings whose values are never shown.
        text_error: Why the text is not a config.
        notes: What in the text has no effect.
        added: The settings with the classes that were added to the config.
    """

    name: str
    config: Mapping[str, str]
    is_new: bool
    revision: int = 0
    state: TargetState = TargetState.STARTED
    show: Show = Show.IMPORTANT
    notation: Notation | None = None
    text: str = ""
    passwords: frozenset[str] = frozenset()
    text_error: str = ""
    notes: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    @property
    def sent_config(self) -> dict[str, str]:
        """The config for the workers."""
        return {**self.config, "name": self.name}

    @property
    def shown_config(self) -> dict[str, str]:
        """The config as the browser may have it."""
        return masked(self.config, self.passwords)

    @property
    def typed_secrets(self) -> Mapping[str, str]:
        """The secrets that the user typed."""
        return secrets_of(self.config, self.passwords)

    def as_text(self, notation: Notation) -> str:
        """The text for the browser: the user's own one, unless a secret is in it."""
        is_own = bool(self.text) and self.notation is notation
        if is_own and (self.text_error or not self._may_have_secrets()):
            return self.text
        return to_text(notation, self.name, self.shown_config)

    def in_notation(self, notation: Notation | None) -> "Draft":
        """The same, edited in another way."""
        return replace(self, notation=notation, text="" if notation != self.notation else self.text)

    def _may_have_secrets(self) -> bool:
        """Whether the user's text may have a secret."""
        secrets = {*self.typed_secrets.values()}
        if len(secrets) > _SEARCHED_SECRETS_MAX:
            return True
        spellings = {*secrets, *(json.dumps(each, ensure_ascii=False)[1:-1] for each in secrets)}
        return any(each in self.text for each in spellings)


def encoded(name: str) -> str:
    """A name as a part of a form: browsers would change some characters."""
    return quote(name, safe="")


def decoded(text: str) -> str:
    """The name of ``encoded``.

    Raises:
        PageError: It is not UTF-8.
    """
    try:
        return unquote_to_bytes(text).decode("utf-8")
    except ValueError:
        raise PageError(400, "The request cannot be read", "A name is not UTF-8.") from None


def read_draft(
    form: Form, secrets: Mapping[str, str], *, is_new: bool, reads_text: bool = True
) -> Draft:
    """The input of a form with fields or with a text.

    Args:
        form: The submitted fields.
        secrets: The secrets that the user typed on earlier pages.
        is_new: Whether the connector is to be created.
        reads_text: Whether to read the config in the text, which may take seconds.

    Raises:
        PageError: The form is not one of this page.
    """
    draft = Draft(
        name=form.one("connector").strip() if is_new else decoded(form.one("known")),
        config={},
        is_new=is_new,
        revision=_number(form.one("revision")),
        state=_state(form.one("state")),
        show=Show(form.one("show")) if form.one("show") in list(Show) else Show.IMPORTANT,
        notation=_notation(form.one("notation")),
        passwords=frozenset(decoded(each) for each in form.all("p")),
    )
    if draft.notation is not None and any(name == TEXT for name, _ in form.fields):
        found = replace(draft, text=_lines(form.one(TEXT)))
        return _with_text(found, secrets) if reads_text else found
    config, notes = _config(form)
    added = []
    for kind in ADDED_KINDS:
        setting, note = _add_class(config, form, kind)
        added += [setting] if setting else []
        notes += (note,) if note else ()
    config = unmasked(config, secrets)
    return replace(draft, config=config, notes=notes, added=tuple(added))


def _with_text(draft: Draft, secrets: Mapping[str, str]) -> Draft:
    """A draft with the config of its text, or with the reason why the text is none."""
    assert draft.notation is not None
    try:
        written = from_text(draft.notation, draft.text)
    except TextError as error:
        return replace(draft, text_error=str(error))
    config = unmasked(written.config, secrets)
    if draft.is_new:
        name = written.name or draft.name
        state = written.state or draft.state
        return replace(draft, name=name, config=config, state=state, notes=written.warnings)
    found = replace(draft, config=config, notes=written.warnings)
    if written.name not in ("", draft.name):
        text = f'"name" must be {draft.name}: a connector cannot be renamed.'
        return replace(found, text_error=text)
    if written.state is not None:
        text = "Remove the state: it can be set only for a new connector."
        return replace(found, text_error=text)
    return found


def _config(form: Form) -> tuple[dict[str, str], tuple[str, ...]]:
    """The settings in the fields of a form, and notes for the user."""
    config = _exact(form.one("config"))
    removed = {decoded(each) for each in form.all("x")}
    kept = {decoded(each) for each in form.all("k")}
    empty = {decoded(each) for each in form.all("e")}
    for name in removed:
        config.pop(name, None)
    for key, value in form.fields:
        if not key.startswith(SETTING):
            continue
        name = decoded(key.removeprefix(SETTING))
        if value:
            config[name] = _lines(value)
        elif name in removed:
            continue
        elif name in kept:
            config[name] = MASK
        elif name in empty:
            config[name] = ""
    notes: tuple[str, ...] = ()
    added = form.one("new-name").strip()
    if added in config or added == "name":
        notes = (f"{added} was not added: it has a field already. Change its value there.",)
    elif added:
        config[added] = _lines(form.one("new-value"))
    config.pop("name", None)
    return config, notes


def _add_class(config: dict[str, str], form: Form, kind: str) -> tuple[str, str]:
    """Add the transform or predicate that the user chose, as the last one.

    Returns:
        The setting with its class, or a note for the user; both are empty without a choice.
    """
    class_name, name = form.one(f"new-{kind}-class").strip(), form.one(f"new-{kind}-name").strip()
    word = ADDED_KINDS[kind]
    if not class_name:
        return "", f"Choose a class for the {word} {name}." if name else ""
    names = names_in(config.get(kind, ""))
    if not name:
        short = re.split(r"[.$]", class_name.removesuffix("$Key").removesuffix("$Value"))[-1]
        start = short[:1].lower() + short[1:]
        choices = (start, *(f"{start}{number}" for number in range(2, len(names) + 3)))
        name = next(each for each in choices if each not in names)
    if not _ALIAS.fullmatch(name):
        return "", f"The {word} was not added: its name must not have dots, commas or spaces."
    if name in names:
        return "", f"The {word} was not added: there is one with the name {name}."
    config[kind] = ",".join([*names, name])
    setting = f"{kind}.{name}.type"
    config[setting] = class_name
    return setting, ""


def _exact(text: str) -> dict[str, str]:
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict) and all(isinstance(each, str) for each in found.values()):
        return found
    raise PageError(400, "The request cannot be read", "A hidden field was changed.")


def _lines(text: str) -> str:
    """A text with the ends of lines that configs have: browsers send CR and LF."""
    return text.replace("\r\n", "\n")


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0


def _state(text: str) -> TargetState:
    return TargetState(text) if text in list(TargetState) else TargetState.STARTED


def _notation(text: str) -> Notation | None:
    return Notation(text) if text in list(Notation) else None
