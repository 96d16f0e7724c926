"""Rules of HTTP connectors that need no server: hosts, pages, pauses."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from drover.connector.settings import validate_config
from drover.connectors.files.formats.exact_json import parsed
from drover.connectors.http.client import pause_s, wait_of
from drover.connectors.http.paging import (
    CURSOR,
    LINK,
    NONE,
    OFFSET,
    PAGE,
    Paging,
    PagingError,
    Place,
    greatest,
    items_of,
    next_place,
    parameters_of,
    resolved,
)
from drover.connectors.http.settings import HttpSettings
from drover.connectors.http.sink import HttpSink, Message, layout_of
from drover.connectors.http.source import HttpSource, paging_of, request_url
from drover.policy.egress import AllowedHosts, ForbiddenHostError
from drover.policy.foreign_errors import shown_url


@pytest.mark.parametrize(
    ("text", "host", "address", "allowed"),
    [
        (None, "api.example.com", "93.184.216.34", True),
        (None, "localhost", "127.0.0.1", True),
        (None, "metadata.google.internal", "169.254.169.254", False),
        (None, "evil.example.com", "169.254.169.254", False),
        (None, "evil.example.com", "::ffff:169.254.169.254", False),
        (None, "evil.example.com", "fe80::1%eth0", False),
        (None, "evil.example.com", "fd00:ec2::254", False),
        ("169.254.169.254", "169.254.169.254", "169.254.169.254", True),
        ("api.example.com", "api.example.com", "93.184.216.34", True),
        ("api.example.com", "API.example.com.", "93.184.216.34", True),
        ("api.example.com", "api.example.com", "169.254.169.254", False),
        ("api.example.com", "other.example.com", "93.184.216.34", False),
        ("*.example.com", "other.example.com", "93.184.216.34", True),
        ("*.example.com", "example.com", "93.184.216.34", False),
        ("*.example.com", "evilexample.com", "93.184.216.34", False),
        ("api.example.com:8443", "api.example.com", "93.184.216.34", False),
        ("api.example.com:443", "api.example.com", "93.184.216.34", True),
        ("10.0.0.0/8", "inner", "10.1.2.3", True),
        ("10.0.0.0/8", "outer", "11.1.2.3", False),
        ("fd12::/16, a.example.com", "inner", "fd12::1", True),
        ("", "api.example.com", "93.184.216.34", False),
    ],
)
def test_hosts_that_connectors_may_call(
    text: str | None, host: str, address: str, allowed: bool
) -> None:
    hosts = AllowedHosts.of_worker({} if text is None else {"DROVER_ALLOWED_HOSTS": text})
    if allowed:
        hosts.check(host, 443, address)
    else:
        with pytest.raises(ForbiddenHostError, match="DROVER_ALLOWED_HOSTS"):
            hosts.check(host, 443, address)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7", 7.0),
        ("0", 0.0),
        (" 7 ", 7.0),
        ("0.5", 0.5),
        ("86400", 300.0),
        ("9" * 200, 300.0),
        ("Tue, 24 Nov 2026 12:00:30 GMT", 30.0),
        ("Tue, 24 Nov 2026 11:00:00 GMT", 0.0),
        ("Tue, 24 Nov 2026 12:00:30 -0000", 30.0),
        ("Tue, 24 Nov 2026 12:00:30", 30.0),
        ("Tue, 24 Nov 2026 13:00:30 +0100", 30.0),
        ("Tuesday, 24-Nov-26 12:00:30 GMT", 30.0),
        ("Tue Nov 24 12:00:30 2026", 30.0),
        ("2026-11-24T12:00:30Z", 30.0),
        ("2026-11-24 12:00:30", 30.0),
        ("-5", None),
        ("1e2", None),
        ("nan", None),
        ("inf", None),
        ("٣", None),
        ("", None),
        ("Tue, 99 Nov 2026 12:00:30 GMT", None),
        ("Tue, 24 Nov 99999999999 12:00:30 GMT", None),
        ("soon", None),
        (None, None),
    ],
)
def test_retry_after(text: str | None, seconds: float | None) -> None:
    assert wait_of(text, datetime(2026, 11, 24, 12, tzinfo=UTC)) == seconds


def test_pauses_double_unless_the_server_says_how_long() -> None:
    settings = HttpSettings(AllowedHosts(), backoff_ms=500)
    assert [pause_s(settings, n, None) for n in (1, 2, 3, 30)] == [0.5, 1.0, 2.0, 300.0]
    assert pause_s(settings, 3, 7.0) == 7.0


def follow(paging: Paging, place: Place, document: Any, **more: Any) -> Place | None:
    """The next page; the place without the items of the page before it."""
    given = {"items": [], "link": None, "url": "http://a/b", **more}
    following = next_place(paging, place, document, **given)
    assert following.gap is None
    return following.place and replace(following.place, before=None, count_before=0)


def test_pages_by_link() -> None:
    paging = Paging(LINK, pointer="/next")
    assert follow(paging, Place(), {}, link="http://a/2") == Place("http://a/2", 1)
    assert follow(paging, Place(), {"next": "/3?x=1"}) == Place("http://a/3?x=1", 1)
    assert follow(paging, Place("http://a/2", 1), {"next": None}) is None


def test_pages_by_cursor() -> None:
    paging = Paging(CURSOR, pointer="/meta/next", parameter="after")
    assert parameters_of(paging, Place()) == {}
    following = follow(paging, Place(), {"meta": {"next": "abc"}})
    assert following == Place("abc", 1)
    assert parameters_of(paging, following) == {"after": "abc"}
    assert follow(paging, following, {"meta": {"next": ""}}) is None
    assert follow(paging, following, {}) is None


def test_pages_by_number() -> None:
    paging = Paging(OFFSET, parameter="skip", size_parameter="take", size=10)
    assert parameters_of(paging, Place()) == {"skip": "0", "take": "10"}
    assert follow(paging, Place(), [], items=[1] * 10) == Place(10, 1)
    assert follow(paging, Place(10, 1, count_before=10), [], items=[1] * 9) is None
    numbered = Paging(PAGE, parameter="page", first=1)
    assert follow(numbered, Place(), [], items=[1] * 3) == Place(2, 1)
    assert follow(numbered, Place(2, 1), [], items=[]) is None
    assert follow(Paging(NONE), Place(), [], items=[1] * 3) is None


def test_an_api_with_smaller_pages_than_asked_for_is_read_to_its_end() -> None:
    paging = Paging(OFFSET, parameter="skip", size_parameter="take", size=100)
    place, counts = Place(), [40, 40, 40, 7]
    starts: list[Any] = [0]
    for count in counts:
        following = next_place(paging, place, [], [1] * count, link=None, url="http://a/b").place
        if following is None:
            break
        place = Place.of_offset(following.to_offset())
        starts.append(place.at)
    assert starts == [0, 40, 80, 120]
    assert follow(paging, Place(), [], items=[]) is None


def test_a_page_that_names_itself_as_the_next_one_is_the_last() -> None:
    cursor = Paging(CURSOR, pointer="/next", parameter="after")
    assert follow(cursor, Place("abc", 4), {"next": "abc"}, items=[1]) is None
    assert follow(cursor, Place("abc", 1), {"next": "abc"}) is None
    link = Paging(LINK)
    assert follow(link, Place("http://a/2", 1), {}, items=[1], link="http://a/2") is None


def test_a_parameter_without_effect_is_reported() -> None:
    cursor = Paging(CURSOR, pointer="/next", parameter="wrong")
    document, items = {"next": "abc"}, [{"id": 1}]
    again = next_place(cursor, Place(), document, items, link=None, url="http://a/b").place
    assert again is not None
    assert Place.of_offset(again.to_offset()) == again
    with pytest.raises(PagingError, match=r"the same page again: .*paging\.parameter"):
        next_place(cursor, again, document, items, link=None, url="http://a/b")
    assert follow(cursor, again, document, items=[{"id": 2}]) is None


def test_the_api_tells_whether_there_are_more_pages() -> None:
    cursor = Paging(CURSOR, pointer="/next", parameter="after", more_pointer="/meta/more")
    for last in (False, 0, "false"):
        assert follow(cursor, Place(), {"next": "a", "meta": {"more": last}}, items=[1]) is None
    for more in ({"meta": {"more": True}}, {"meta": {"more": None}}, {}):
        assert follow(cursor, Place(), {"next": "a", **more}) == Place("a", 1)
    numbered = Paging(PAGE, parameter="page", size_parameter="n", size=2, more_pointer="/more")
    assert follow(numbered, Place(), {"more": True}, items=[1]) == Place(1, 1)
    assert follow(numbered, Place(), {"more": False}, items=[1, 2]) is None
    assert follow(numbered, Place(1, 1, count_before=2), {}, items=[1]) is None


@pytest.mark.parametrize(
    "paging",
    [
        Paging(CURSOR, pointer="/next", parameter="after", more_pointer="/more"),
        Paging(PAGE, parameter="page", more_pointer="/more"),
        Paging(OFFSET, parameter="skip", more_pointer="/more"),
    ],
)
def test_a_pass_that_cannot_go_on_has_a_gap(paging: Paging) -> None:
    following = next_place(paging, Place(), {"more": True}, [], link=None, url="http://a/b")
    assert following.place is None
    assert "announces more pages" in (following.gap or "")


def test_an_empty_page_ends_the_pages_when_it_is_set() -> None:
    for ends, wanted in ((True, None), (False, Place("b", 2))):
        cursor = Paging(CURSOR, pointer="/next", parameter="after", empty_ends=ends)
        assert follow(cursor, Place("a", 1), {"next": "b"}) == wanted
        assert follow(cursor, Place("a", 1), {"next": "b"}, items=[1]) == Place("b", 2)


def test_a_pass_has_a_limit_of_pages() -> None:
    few = Paging(PAGE, parameter="page", pages_max=3)
    assert follow(few, Place(1, 1), [], items=[1]) == Place(2, 2)
    following = next_place(few, Place(2, 2), [], [1], link=None, url="http://a/b")
    assert following.place is None
    assert "more than 3 pages" in (following.gap or "")


def test_cursors_of_any_type() -> None:
    cursor = Paging(CURSOR, pointer="/next", parameter="after")
    for text in ("12345678901234567890", "1700000000.25", "0.12345678901234567890123"):
        following = follow(cursor, Place(), parsed(f'{{"next": {text}}}'))
        assert following is not None
        assert parameters_of(cursor, following) == {"after": text}
    assert follow(cursor, Place(), {"next": False}) is None


def test_a_place_survives_a_restart() -> None:
    for place in (Place(), Place("abc", 3), Place(20, 2, 7, 10)):
        assert Place.of_offset(place.to_offset()) == place
    assert Place.of_offset({"at": "abc", "page": 3}) == Place("abc", 3)


def test_a_response_without_items_that_tells_of_its_pages_is_empty() -> None:
    beside = ("/meta/next", "/more")
    documents: list[Any] = [{"meta": {"next": None}}, {"more": False}, {"meta": None}, {}]
    for document in documents:
        assert items_of(document, "/items", beside) == []
        assert items_of(document, "/data/items", beside) == []
    assert items_of({"data": None}, "/data/items") == []
    assert items_of({"page": 3}, "/items", (), {"items", "page", "total"}) == []
    wrong: list[Any] = [{"error": "try again"}, {"items": 7, "more": False}, {"meta": {}}, [], None]
    for document in wrong:
        with pytest.raises(PagingError, match="has no list at"):
            items_of(document, "/items", beside)
    with pytest.raises(PagingError, match="has no list at"):
        items_of({"data": [], "more": False}, "/data/items", beside)


def test_items_are_found() -> None:
    document = {"data": {"a/b": [1, 2]}, "one": {"x": 1}, "none": None}
    assert items_of(document, "/data/a~1b") == [1, 2]
    assert items_of(document, "/one") == [{"x": 1}]
    assert items_of(document, "/none") == []
    assert items_of([3], "") == [3]
    assert resolved(document, "/data/a~1b/1") == 2
    for pointer in ("/missing", "/data/a~1b/0"):
        with pytest.raises(PagingError, match="has no list at"):
            items_of(document, pointer)


def test_the_greatest_value() -> None:
    items = [{"at": "2026-01-02"}, {"at": None}, {}, {"at": "2026-01-03"}]
    assert greatest(items, "/at", "2026-01-01") == "2026-01-03"
    assert greatest(items, "/at", "2027-01-01") == "2027-01-01"
    assert greatest([], "/at", None) is None
    with pytest.raises(PagingError, match="different types"):
        greatest([{"at": 1}, {"at": "x"}], "/at", None)


@pytest.mark.parametrize(
    ("values", "before", "wanted"),
    [
        ("[9, 10]", "8", 10),  # incremental.initial is text
        ("[9007199254740993, 9007199254740992.5]", None, 9007199254740993),
        ("[0.12345678901234567890, 0.1]", None, "0.12345678901234567890"),
        ("[0.12345678901234567891]", "0.12345678901234567890", "0.12345678901234567891"),
        ('["2026-01-01T00:00:00.5Z", "2026-01-01T00:00:00Z"]', None, "2026-01-01T00:00:00.5Z"),
        (
            '["2026-01-01T01:00:00+02:00", "2026-01-01T00:00:00Z"]',
            "2026-01-01",
            "2026-01-01T00:00:00Z",
        ),
        ("[null]", "x", "x"),
    ],
)
def test_the_greatest_number_or_time(values: str, before: Any, wanted: Any) -> None:
    items = [{"at": each} for each in parsed(values)]
    assert greatest(items, "/at", before) == wanted


def test_urls_are_shown_without_what_may_be_secret() -> None:
    assert shown_url("https://user:pass@a.example.com:8443/b?token=x#y") == (
        "https://a.example.com:8443/b"
    )


def requested(place: Place, since: Any = None, **settings: str) -> str:
    """The URL of a page of an HttpSource."""
    raw = {
        "name": "api",
        "connector.class": "HttpSource",
        "topic": "t",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    config = HttpSource.config_def().parse(raw).values
    return request_url(config, paging_of(config), place, since)


def test_every_value_of_a_repeated_parameter_is_requested() -> None:
    url = requested(
        Place(40, 4),
        "7",
        http_url="http://api.example.com/orders?kind=a&kind=b&since=0&offset=0",
        http_request_parameters="status=open,status=paid,kind=c,empty=",
        paging_mode="offset",
        paging_parameter="offset",
        incremental_parameter="since",
        incremental_pointer="/id",
    )
    assert url.partition("?")[2].split("&") == [
        *("kind=a", "kind=b", "kind=c", "status=open", "status=paid", "empty="),
        *("since=7", "offset=40"),
    ]
    assert requested(Place(), http_url="http://api.example.com/orders").endswith("/orders")


def faults_of(kind: Any, **settings: str) -> tuple[list[str], list[str]]:
    """The errors and the warnings of a config."""
    raw = {
        "name": "api",
        "connector.class": kind.__name__,
        "topic" if kind is HttpSource else "topics": "t",
        "http.url": "http://127.0.0.1:1/",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    found = validate_config(kind, raw)
    return (
        [f"{each.key.name} {text}" for each in found for text in each.errors],
        [f"{each.key.name} {text}" for each in found for text in each.warnings],
    )


@pytest.mark.parametrize("parameters", ["fields=id,name", "=x"])
def test_a_comma_in_a_parameter_is_not_taken_for_another_parameter(parameters: str) -> None:
    errors, _ = faults_of(HttpSource, http_request_parameters=parameters)
    assert any(
        each.startswith("http.request.parameters must have parameters as name=value")
        for each in errors
    )


def body_of(count: int, **settings: str) -> bytes:
    raw = {
        "name": "api",
        "connector.class": "HttpSink",
        "topics": "t",
        "http.url": "http://api.example.com/",
        "batch.prefix": "[",
        "batch.suffix": "]",
        "batch.separator": ",",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    layout = layout_of(HttpSink.config_def().parse(raw).values)
    return layout.body_of([Message("t", 0, n, "", b"%d" % n) for n in range(count)])


def test_a_request_of_one_record_has_the_prefix_and_suffix_of_a_batch() -> None:
    assert body_of(2, batching_enabled="true") == b"[0,1]"
    assert body_of(1, batching_enabled="true") == b"[0]"
    assert body_of(1, batching_enabled="true", batch_max_size="1") == b"[0]"
    assert body_of(1) == b"0"


def test_a_prefix_without_batching_is_reported() -> None:
    _, warnings = faults_of(HttpSink, batch_prefix="[", batch_suffix="]")
    told = [each for each in warnings if "has no effect without batching.enabled=true" in each]
    assert [each.partition(" ")[0] for each in told] == ["batch.prefix", "batch.suffix"]
    _, warnings = faults_of(HttpSink, batch_prefix="[", batching_enabled="true")
    assert not any("has no effect" in each for each in warnings)
