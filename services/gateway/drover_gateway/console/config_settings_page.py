"""The fields of the config form: one for each setting, with its documentation beside it."""

from collections.abc import Iterable

from drover_gateway.console.config_draft import SETTING, Draft, encoded
from drover_gateway.console.config_fields import (
    CLASS,
    Checked,
    Control,
    Field,
    Group,
    is_mask,
    setting_id,
)
from drover_gateway.console.html import Html, Node, join, tag

_NUMBERS = frozenset(("INT", "LONG", "DOUBLE"))


def settings_html(draft: Draft, checks: Checked) -> Html:
    """All groups with their fields."""
    return tag("div", *(_group_html(draft, each) for each in checks.groups), id="settings")


def _group_html(draft: Draft, group: Group) -> Html:
    entries = [(each, each.is_shown(draft.show)) for each in group.fields]
    group_id = f"g{setting_id(group.title)[1:]}"
    return tag(
        "section",
        tag("h2", group.title or "Settings", id=f"{group_id}-t"),
        *(_setting_html(each, is_shown=shown) for each, shown in entries),
        id=group_id,
        aria_labelledby=f"{group_id}-t",
        hidden=not any(shown for _, shown in entries),
    )


def _setting_html(entry: Field, *, is_shown: bool) -> Html:
    described = f"{entry.id}-d {entry.id}-n"
    name = tag("code", tag("bdi", entry.name)) if entry.label != entry.name else None
    needed = tag("span", "required", class_="needed") if entry.is_required else None
    return tag(
        "div",
        tag(
            "div",
            tag("label", tag("bdi", entry.label), for_=f"{entry.id}-v"),
            needed,
            name,
            _control_html(entry, described),
            _extras_html(entry),
            _notes_html(entry),
            class_="entry",
        ),
        tag("div", _documentation(entry), class_="doc", id=f"{entry.id}-d"),
        class_="setting",
        id=entry.id,
        hidden=not is_shown,
    )


def _control_html(entry: Field, described: str) -> Html:
    common: dict[str, str | int | None] = {
        "id": f"{entry.id}-v",
        "name": SETTING + encoded(entry.name),
        "aria_describedby": described,
        "aria_invalid": "true" if entry.errors else None,
        "autocomplete": "off",
    }
    given = entry.value or ""
    match entry.control:
        case Control.SECRET:
            hint = "stored: leave it empty to keep it" if entry.value else ""
            return tag(
                "input",
                type="password",
                placeholder=hint,
                **{**common, "autocomplete": "new-password"},
            )
        case Control.EXACT:
            common |= {"name": None, "autocomplete": None}
            shown = given[:200] + ("…" if len(given) > 200 else "")
            return tag("input", value=shown, readonly=True, **common)
        case Control.LINES:
            rows = min(12, 2 + given.count("\n") + len(given) // 80)
            return tag("textarea", "\n", given, rows=rows, spellcheck="false", **common)
        case Control.CHOICE:
            return tag("select", *_options(entry), **common)
    listed = f"{entry.id}-l" if entry.choices else None
    mode = "numeric" if entry.type in _NUMBERS else None
    default = entry.default if entry.default is not None and len(entry.default) < 200 else None
    field = tag(
        "input",
        value=given,
        placeholder=default,
        list=listed,
        inputmode=mode,
        spellcheck="false",
        **common,
    )
    return join(field, _choices_html(entry))


def _choices_html(entry: Field) -> Html | None:
    if not entry.choices or entry.control is not Control.LINE:
        return None
    options = [tag("option", value=each) for each in entry.choices]
    return tag("datalist", *options, id=f"{entry.id}-l")


def _options(entry: Field) -> list[Html]:
    default = "not set" if entry.default is None else f"default: {entry.default}"
    values = dict.fromkeys([*entry.choices, *([entry.value] if entry.value else [])])
    return [
        tag("option", default, value="", selected=not entry.value),
        *(tag("option", each, value=each, selected=each == entry.value) for each in values),
    ]


def _extras_html(entry: Field) -> Iterable[Node]:
    coded = encoded(entry.name)
    if entry.control is Control.SECRET:
        yield tag("input", type="hidden", name="p", value=coded)
        if entry.value:
            yield tag("input", type="hidden", name="k", value=coded)
            text = "remove the stored value"
            if not is_mask(entry.name, entry.value):
                yield tag("small", "You typed a value. It is kept, and not shown.")
                text = "forget it"
            yield _box("x", coded, text)
    elif entry.control is Control.EXACT:
        yield tag("small", "It has characters that a field cannot hold: edit it as JSON.")
        yield _box("x", coded, "remove it")
    elif entry.value == "":
        yield _box("e", coded, "set to an empty text", is_checked=True)


def _box(name: str, value: str, text: str, *, is_checked: bool = False) -> Html:
    box = tag("input", type="checkbox", name=name, value=value, checked=is_checked)
    return tag("label", box, f" {text}", class_="box")


def _notes_html(entry: Field) -> Html:
    lines: list[Node] = [tag("p", each, class_="bad") for each in entry.errors]
    lines += [tag("p", each, class_="warning") for each in entry.warnings]
    if entry.value is not None and not entry.has_effect:
        lines.append(tag("p", "It has no effect together with the other settings."))
    return tag("div", *lines, id=f"{entry.id}-n", class_="notes")


def _documentation(entry: Field) -> Iterable[Node]:
    facts = [entry.type.lower()] if entry.type else []
    if entry.default is not None:
        facts.append(f"default {entry.default or 'empty'}"[:300])
    if entry.importance and entry.type:
        facts.append(f"{entry.importance.lower()} importance")
    if entry.dependents:
        facts.append(f"affects {', '.join(entry.dependents)}"[:300])
    yield tag("p", entry.documentation) if entry.documentation else None
    if not entry.type and entry.name != CLASS:
        yield tag("p", "No plugin of this config defines it.")
    if facts:
        yield tag("small", " · ".join(facts))
