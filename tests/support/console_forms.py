"""Fills in and submits the forms of the console's pages as a browser without JavaScript does."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser

from tests.support.console_client import ConsoleClient, Page


@dataclass
class FilledForm:
    """A form with its fields in order; ``None`` as a value is not sent."""

    action: str
    fields: list[tuple[str, str | None]] = field(default_factory=list)
    kinds: dict[str, str] = field(default_factory=dict)
    options: dict[str, list[str]] = field(default_factory=dict)

    def sent(self, changes: Mapping[str, str | None]) -> list[tuple[str, str]]:
        """What a browser sends after the user has changed some fields."""
        names = {name for name, _ in self.fields}
        assert changes.keys() <= names, changes.keys() - names
        found = []
        for name, value in self.fields:
            new = changes.get(name, value) if name in changes else value
            if new is not None:
                found.append((name, new.replace("\r\n", "\n").replace("\n", "\r\n")))
        return found


class _FormReader(HTMLParser):
    def __init__(self, action: str) -> None:
        super().__init__()
        self.form = FilledForm(action)
        self._is_in = False
        self._area: str | None = None
        self._select: str | None = None
        self._text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attrs}
        if tag == "form":
            self._is_in = given.get("action") == self.form.action
        if not self._is_in:
            return
        name = given.get("name", "")
        if tag == "input" and name:
            kind = given.get("type", "text")
            self.form.kinds[name] = kind
            if kind == "checkbox":
                value = given.get("value", "on") if "checked" in given else None
            else:
                value = given.get("value", "")
            self.form.fields.append((name, value))
        elif tag == "textarea":
            self._area, self._text = name, ""
            self.form.kinds[name] = tag
        elif tag == "select":
            self._select = name
            self.form.kinds[name] = tag
            self.form.options[name] = []
        elif tag == "option" and self._select is not None:
            value = given.get("value", "")
            options = self.form.options[self._select]
            options.append(value)
            if "selected" in given or len(options) == 1:
                self.form.fields = [each for each in self.form.fields if each[0] != self._select]
                self.form.fields.append((self._select, value))

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._is_in = False
        elif tag == "select":
            self._select = None
        elif tag == "textarea" and self._area is not None:
            self.form.fields.append((self._area, self._text.removeprefix("\n")))
            self._area = None

    def handle_data(self, data: str) -> None:
        self._text += data


def form_of(page: Page, action: str) -> FilledForm:
    """The form of a page that is sent to a path."""
    reader = _FormReader(action)
    reader.feed(page.html)
    assert reader.form.fields, f"{page.url} has no form for {action}: {page.text[:500]}"
    return reader.form


async def fill_in(
    console: ConsoleClient,
    page: Page,
    action: str,
    button: str,
    changes: Mapping[str, str | None] | None = None,
    *more: tuple[str, str],
) -> Page:
    """Change fields of a form, press a button named ``do``, and load the result."""
    sent = form_of(page, action).sent(changes or {})
    return await console.post(action, [*sent, *more, ("do", button)])
