"""What is the same on all pages."""

from collections.abc import Sequence
from dataclasses import dataclass

from drover_gateway.console.html import Html, Node, join, tag
from drover_gateway.console.rights import Rights
from drover_gateway.console.sessions import Session, Sessions
from drover_gateway.console.static_files import ICON_URL, SCRIPT_URL, STYLE_URL

HOME, CONNECTORS, SIGN_IN = "/ui/", "/ui/connectors", "/ui/sign-in"
SIGN_OUT, THEME, LIVE = "/ui/sign-out", "/ui/theme", "/ui/live"
CONNECTOR, EDIT_CONNECTOR = "/ui/connector", "/ui/connector/edit"
DEAD_LETTERS = "/ui/dead-letters"
TOPICS, TOPIC = "/ui/topics", "/ui/topic"
WORKERS, REBALANCES, AUDIT = "/ui/workers", "/ui/rebalances", "/ui/audit"
LOGGERS = "/ui/loggers"
PLUGINS, PLUGIN, NEW_CONNECTOR = "/ui/plugins", "/ui/plugin", "/ui/connector/new"
#: To the issuer of tokens, and back from it.
ISSUER, CALLBACK = "/ui/sign-in/issuer", "/ui/sign-in/callback"
#: The pages of the navigation.
_PAGES = (
    (HOME, "Overview"),
    (CONNECTORS, "Connectors"),
    (TOPICS, "Topics"),
    (WORKERS, "Workers"),
    (REBALANCES, "Rebalances"),
    (PLUGINS, "Plugins"),
    (LOGGERS, "Loggers"),
    (AUDIT, "Audit"),
)
THEMES = ("system", "light", "dark")
THEME_COOKIE = "drover-theme"
#: The name of a form's token.
FORM_TOKEN = "form_token"
EVERYTHING = Rights()
#: The calls without which a page of the navigation shows nothing.
_CALLS = {TOPICS: "ListTopics", AUDIT: "ListAuditEvents"}


@dataclass(frozen=True, slots=True)
class Visit:
    """Who asks for a page.

    Attributes:
        session: The session.
        sessions: Makes the tokens of forms.
        theme: One of ``THEMES``.
        url: The path and the query of the request.
        rights: What the caller may do.
    """

    session: Session
    sessions: Sessions
    theme: str
    url: str
    rights: Rights = EVERYTHING

    @property
    def is_signed_in(self) -> bool:
        """Whether the session has a token."""
        return bool(self.session.token)

    def form(self, action: str, *children: Node, **attributes: str | int | None) -> Html:
        """A form that is sent with POST, with its token."""
        value = self.sessions.form_token(self.session, action)
        token = tag("input", type="hidden", name=FORM_TOKEN, value=value)
        return tag("form", token, *children, method="post", action=action, **attributes)


def page_ends(visit: Visit, title: str, *, current: str = "", live: str = "") -> tuple[str, str]:
    """The parts of a page before and after its content.

    Args:
        visit: Who asks for it.
        title: Its title.
        current: Its path in the navigation; empty if it is not there.
        live: The URL of the stream with its updates; empty if there is none.
    """
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("title", f"{title} · Drover"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("link", rel="stylesheet", href=STYLE_URL),
        tag("link", rel="icon", href=ICON_URL),
        tag("script", src=SCRIPT_URL, defer=True),
    )
    start = (
        f'<!doctype html>\n<html lang="en" data-theme="{visit.theme}">{head}<body>'
        + tag("a", "Skip to the content", class_="skip", href="#main")
        + _banner(visit, current)
        + _stream_bar(live)
        + '<main id="main" tabindex="-1">'
        + tag("h1", title)
    )
    return start, "</main></body></html>\n"


def page(visit: Visit, title: str, *content: Node, current: str = "", live: str = "") -> bytes:
    """A whole page; see ``page_ends``."""
    start, end = page_ends(visit, title, current=current, live=live)
    return encoded(start, join(*content), end)


def encoded(*parts: str) -> bytes:
    """As the bytes of a response."""
    return "".join(parts).encode("utf-8", "replace")


def commands(title: str, lines: Sequence[str]) -> Html:
    """Commands for the same as the page shows or does, folded."""
    return tag(
        "details",
        tag("summary", title),
        tag("pre", tag("code", "\n".join(lines)), tabindex=0),
        class_="commands",
    )


def new_connector_link(visit: Visit) -> Html | None:
    """The link to the form for a new connector; None if the caller may create none."""
    may = visit.rights.may_for_some("CreateConnector")
    return tag("a", "New connector", href=NEW_CONNECTOR) if may else None


def notice(kind: str, title: str, *content: Node) -> Html:
    """A box with what is empty, failed or forbidden: ``kind`` is its class."""
    return tag("section", tag("h2", title), *content, class_=f"notice {kind}")


def _banner(visit: Visit, current: str) -> Html:
    links = [
        tag(
            "li",
            tag("a", label, href=path, aria_current="page" if path == current else None),
        )
        for path, label in _PAGES
        if path not in _CALLS or visit.rights.may(_CALLS[path])
    ]
    return tag(
        "header",
        tag("a", "Drover", class_="brand", href=HOME),
        tag("nav", tag("ul", *links), aria_label="Pages"),
        tag("div", _themes(visit), _account(visit), class_="tools"),
        class_="banner",
    )


def _themes(visit: Visit) -> Html:
    choices = [
        tag(
            "button",
            each.capitalize(),
            name="theme",
            value=each,
            aria_pressed="true" if each == visit.theme else "false",
        )
        for each in THEMES
    ]
    return visit.form(
        THEME,
        tag("fieldset", tag("legend", "Colours", class_="quiet"), *choices),
        tag("input", type="hidden", name="next", value=visit.url),
        class_="themes",
    )


def _account(visit: Visit) -> Html:
    if visit.is_signed_in:
        return visit.form(SIGN_OUT, tag("button", "Sign out"))
    return tag("a", "Sign in", href=SIGN_IN)


def _stream_bar(live: str) -> Html:
    """Where a lost stream is shown; ``console.js`` fills it."""
    if not live:
        return Html("")
    return tag(
        "div",
        tag("span", id="stream-text", role="status"),
        tag("button", "Try now", type="button", id="stream-retry", hidden=True),
        tag("noscript", "This page shows the state of its loading: reload it for the present one."),
        id="stream",
        data_live=live,
    )
