"""Server-sent events of the console."""

import grpc.aio
import pytest

from drover.client import ConnectClient
from drover.errors import DroverError, Reason, UnauthenticatedError, UnavailableError
from drover_gateway.console import live
from drover_gateway.console.html import Html
from drover_gateway.console.live import message
from drover_gateway.views import View


def test_a_text_with_any_end_of_line_is_one_event() -> None:
    text = "a\r\revent: swap\rdata: <b>\r\n\nend"
    lines = message("refused", text).decode().split("\n")
    assert lines[0] == "event: refused"
    assert "\r" not in "".join(lines)
    assert lines[-2:] == ["", ""]
    assert all(each.startswith("data: ") for each in lines[1:-2])


class RefusedPage:
    """A page whose own calls fail while its view is open."""

    every_s = 0.001

    def __init__(self, *errors: DroverError) -> None:
        self.errors = list(errors)

    async def start(self, view: View) -> None:
        """See ``LivePage``."""

    async def update(self, view: View, changed: list[str]) -> Html:
        """See ``LivePage``."""
        if self.errors:
            raise self.errors.pop(0)
        return Html("<p id=fresh></p>")


async def test_an_error_of_a_page_is_an_event_and_a_refusal_ends_the_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live, "_RETRIES_S", (0.0,))
    monkeypatch.setattr(live, "GATHER_S", 0.0)
    async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
        view = View(ConnectClient(channel), lambda _: b"", lambda _: b"")

    async def open_view() -> View:
        return view

    lost = UnavailableError(Reason.SERVICE_UNREACHABLE, "no worker answers")
    refused = UnauthenticatedError(Reason.INVALID_CREDENTIALS, "the token was revoked")
    page = RefusedPage(lost, lost, refused)
    events = [each async for each in live.updates(open_view, page, view.version)]
    names = [each.decode().split("\n")[0].removeprefix("event: ") for each in events]
    assert names == ["live", "failed", "live", "failed", "live", "refused"]
