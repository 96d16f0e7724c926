"""The URLs of pages. A name is in the query, because a path cannot contain every name."""

from urllib.parse import urlencode

from drover_gateway.console.frame import CONNECTOR, DEAD_LETTERS, EDIT_CONNECTOR, TOPIC


def connector_url(name: str, tab: str = "") -> str:
    """The page of a connector."""
    return f"{CONNECTOR}?{urlencode({'name': name, **({'tab': tab} if tab else {})})}"


def edit_url(name: str) -> str:
    """The form with the config of a connector."""
    return f"{EDIT_CONNECTOR}?{urlencode({'name': name})}"


def dead_letters_url(name: str) -> str:
    """The page with the dead letters of a connector."""
    return f"{DEAD_LETTERS}?{urlencode({'connector': name})}"


def topic_url(name: str) -> str:
    """The page of a topic."""
    return f"{TOPIC}?{urlencode({'name': name})}"
