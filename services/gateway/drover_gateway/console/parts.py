"""Parts that several pages have: a table, and a search in a list."""

from collections.abc import Sequence

from drover_gateway.console.html import Html, tag


def table_html(
    caption: str, head: Sequence[str], rows: Sequence[Html], *, class_: str = "wide"
) -> Html:
    """A table that scrolls if it is wide."""
    return tag(
        "div",
        tag(
            "table",
            tag("caption", caption, class_="quiet"),
            tag("thead", tag("tr", *(tag("th", each, scope="col") for each in head))),
            tag("tbody", *rows),
        ),
        class_=class_,
        tabindex=0,
        role="group",
        aria_label=caption,
    )


def search_html(label: str, path: str, text: str, **attributes: str) -> Html:
    """A form that searches the list at ``path``; ``text`` is the present search."""
    return tag(
        "form",
        tag(
            "label",
            label,
            tag("input", type="search", name="q", value=text, autocomplete="off"),
        ),
        tag("button", "Apply"),
        tag("a", "Clear", href=path) if text else None,
        action=path,
        method="get",
        role="search",
        **attributes,
        aria_label="Filters",
    )
