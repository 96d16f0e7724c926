"""Server-sent events of the console."""

from drover_gateway.console.live import message


def test_a_text_with_any_end_of_line_is_one_event() -> None:
    text = "a\r\revent: swap\rdata: <b>\r\n\nend"
    lines = message("refused", text).decode().split("\n")
    assert lines[0] == "event: refused"
    assert "\r" not in "".join(lines)
    assert lines[-2:] == ["", ""]
    assert all(each.startswith("data: ") for each in lines[1:-2])
