"""The notice of a page that shows the last known state, because no worker answers."""

from drover_gateway.console.connectors_page import time_html
from drover_gateway.console.frame import notice
from drover_gateway.console.html import Html, tag
from drover_gateway.views import LastState


def last_state_html(last: LastState | None, url: str) -> Html | None:
    """The age of the state and why there is no newer one; None if the state is the present one."""
    if last is None:
        return None
    return notice(
        "error",
        "The cluster does not answer",
        tag("p", "This is the last known state, of ", time_html(last.end_ms), "."),
        tag("p", last.error.message),
        tag("p", tag("a", "Try again", href=url)),
    )
