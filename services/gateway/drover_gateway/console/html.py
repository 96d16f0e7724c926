"""Builds HTML. Text is always escaped, unless it is ``Html`` already."""

from collections.abc import Iterable
from html import escape

_VOID = frozenset({"br", "hr", "img", "input", "link", "meta"})
#: HTML cannot contain control characters: they are shown as escapes.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
for _kept in "\t\n":
    del _CONTROLS[ord(_kept)]


class Html(str):
    """Text that is HTML."""

    __slots__ = ()


Node = Html | str | int | None | Iterable["Node"]


def text(value: str) -> Html:
    """A text as HTML."""
    return Html(escape(value.translate(_CONTROLS)))


def join(*nodes: Node) -> Html:
    """Nodes one after another; None is left out."""
    return Html("".join(_flat(nodes)))


def tag(element: str, /, *children: Node, **attributes: str | int | None) -> Html:
    """An element.

    Args:
        element: The element's name.
        children: Its content.
        attributes: Their names without a final underscore, and with hyphens for other underscores.
            None and False leave an attribute out, True gives it no value.
    """
    head = f"<{element}{''.join(_attributes(attributes))}>"
    if element in _VOID:
        return Html(head)
    return Html(f"{head}{join(*children)}</{element}>")


def _attributes(given: dict[str, str | int | None]) -> Iterable[str]:
    for key, value in given.items():
        shown = key.rstrip("_").replace("_", "-")
        if value is True:
            yield f" {shown}"
        elif value is not None and value is not False:
            yield f' {shown}="{text(str(value))}"'


def _flat(nodes: Iterable[Node]) -> Iterable[str]:
    for node in nodes:
        if isinstance(node, Html):
            yield node
        elif isinstance(node, str):
            yield text(node)
        elif isinstance(node, int):
            yield str(node)
        elif node is not None:
            yield from _flat(node)
