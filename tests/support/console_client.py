"""A client of the console without JavaScript: it follows links and submits forms."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote

import requests

from drover_gateway.console.frame import FORM_TOKEN
from drover_gateway.console.sessions import Sessions
from tests.support.gateways import TOKENS, RunningGateway


@dataclass
class PageForm:
    """A form of a page, with the fields that it sends unless something is chosen."""

    action: str
    method: str
    fields: list[tuple[str, str]] = field(default_factory=list)
    buttons: list[tuple[str, str]] = field(default_factory=list)
    checkboxes: list[tuple[str, str]] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[PageForm] = []
        self.names: list[str] = []
        self.text: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attrs}
        self.tags.append(tag)
        self.attributes += given
        if tag == "form":
            self.forms.append(PageForm(given.get("action", ""), given.get("method", "get")))
        elif tag == "input" and self.forms:
            entry = (given.get("name", ""), given.get("value", ""))
            if given.get("type") == "hidden":
                self.forms[-1].fields.append(entry)
            elif given.get("type") == "checkbox":
                self.forms[-1].checkboxes.append(entry)
                if entry[0] == "name":
                    self.names.append(unquote(entry[1]))
        elif tag == "button" and self.forms:
            self.forms[-1].buttons.append((given.get("name", ""), given.get("value", "")))

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@dataclass
class Page:
    """A response, with what a reader of the page sees."""

    status: int
    url: str
    html: str
    headers: Any
    history: Sequence[Any]

    def __post_init__(self) -> None:
        reader = _Reader()
        reader.feed(self.html)
        self.forms = reader.forms
        self.tags = reader.tags
        self.attributes = set(reader.attributes)
        #: The connectors of the list, in order.
        self.names = reader.names
        self.text = " ".join(" ".join(reader.text).split())

    def form(self, action: str) -> PageForm:
        """The form that is sent to this path."""
        (found,) = [each for each in self.forms if each.action == action]
        return found


class ConsoleClient:
    """One browser's cookies."""

    def __init__(self, gateway: RunningGateway) -> None:
        self.gateway = gateway
        self.session = requests.Session()

    async def get(self, path: str, **options: Any) -> Page:
        """Open a page."""
        return await self._send("GET", path, **options)

    async def post(self, path: str, fields: Sequence[tuple[str, str]], **options: Any) -> Page:
        """Send a form with exactly these fields."""
        return await self._send("POST", path, data=list(fields), **options)

    async def submit(self, page: Page, action: str, *fields: tuple[str, str]) -> Page:
        """Submit a form of a page, with its hidden fields and some more."""
        form = page.form(action)
        assert form.method == "post"
        return await self.post(action, [*form.fields, *fields])

    async def post_by_hand(self, path: str, *fields: tuple[str, str]) -> Page:
        """Send a form that no page offers, with a valid token; the gateway needs session keys."""
        sessions = Sessions([self.gateway.session_keys])
        cookies = {each.name: each.value or "" for each in self.session.cookies}
        session = sessions.read(cookies, time.time(), secure=bool(self.gateway.ca))
        assert session is not None
        return await self.post(path, [(FORM_TOKEN, sessions.form_token(session, path)), *fields])

    async def sign_in(self, role: str) -> Page:
        """Sign in with the token of a role."""
        page = await self.get("/ui/sign-in")
        return await self.submit(page, "/ui/sign-in", ("token", TOKENS[role]))

    async def _send(self, method: str, path: str, **options: Any) -> Page:
        def send() -> requests.Response:
            url = self.gateway.url + path
            verify = self.gateway.ca or True
            return self.session.request(method, url, timeout=60, verify=verify, **options)

        return page_of(await asyncio.to_thread(send))


def page_of(response: requests.Response) -> Page:
    """A response as its reader sees it."""
    html = response.content.decode("utf-8")
    return Page(response.status_code, response.url, html, response.headers, response.history)
