"""JSON on the pages of the console: every number is shown with the digits that it has."""

import pytest

from drover.api.common.v1.preview_pb2 import Preview, PreviewedRecord, PreviewedRow
from drover_gateway.console.config_draft import Draft
from drover_gateway.console.config_result_page import preview_html
from drover_gateway.console.frame import Visit
from drover_gateway.console.json_texts import members_of
from drover_gateway.console.sessions import Sessions

VALUE = '{"amount": 12345678901234567.890, "big": 1e400,"text": "\\u00e9 <b>", "o": {"a": 1.10}}'


def test_the_members_of_an_object_have_their_texts() -> None:
    assert members_of(VALUE) == {
        "amount": "12345678901234567.890",
        "big": "1e400",
        "text": '"\\u00e9 <b>"',
        "o": '{"a": 1.10}',
    }
    assert members_of(" { } ") == {}


@pytest.mark.parametrize("text", ["", "1", "[1]", "{", '{"a"', '{"a":', '{"a":1', "nul"])
def test_what_is_no_object_has_no_members(text: str) -> None:
    assert members_of(text) is None


def test_a_preview_shows_each_number_with_its_digits() -> None:
    record = PreviewedRecord(topic="t", value=VALUE)
    preview = Preview(steps=["read"], rows=[PreviewedRow(place="t-0@1", records=[record])])
    sessions = Sessions()
    visit = Visit(sessions.new("", 0), sessions, "system", "/ui/")
    page = preview_html(visit, Draft("c", {}, is_new=False), preview, "")
    for text in ("12345678901234567.890", "1e400", "é &lt;b&gt;", "{&quot;a&quot;: 1.10}"):
        assert text in page
