"""Rules of HTTP connectors that need no server: hosts, pages, pauses."""

from datetime import UTC, datetime
from typing import Any

import pytest

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
        ("-5", 0.0),
        ("86400", 300.0),
        ("Tue, 24 Nov 2026 12:00:30 GMT", 30.0),
        ("Tue, 24 Nov 2026 11:00:00 GMT", 0.0),
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
    given = {"item_count": 0, "link": None, "url": "http://a/b", **more}
    return next_place(paging, place, document, **given)


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
    assert follow(paging, Place(), [], item_count=10) == Place(10, 1)
    assert follow(paging, Place(10, 1), [], item_count=9) is None
    numbered = Paging(PAGE, parameter="page", first=1)
    assert follow(numbered, Place(), [], item_count=3) == Place(2, 1)
    assert follow(numbered, Place(2, 1), [], item_count=0) is None
    assert follow(Paging(NONE), Place(), [], item_count=3) is None


def test_pages_for_ever_are_told() -> None:
    cursor = Paging(CURSOR, pointer="/next", parameter="after")
    with pytest.raises(PagingError, match="the same page again"):
        follow(cursor, Place("abc", 4), {"next": "abc"})
    few = Paging(PAGE, parameter="page", pages_max=3)
    assert follow(few, Place(1, 1), [], item_count=1) == Place(2, 2)
    with pytest.raises(PagingError, match="more than 3 pages"):
        follow(few, Place(2, 2), [], item_count=1)


def test_a_place_survives_a_restart() -> None:
    for place in (Place(), Place("abc", 3), Place(20, 2)):
        assert Place.of_offset(place.to_offset()) == place


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


def test_urls_are_shown_without_what_may_be_secret() -> None:
    assert shown_url("https://user:pass@a.example.com:8443/b?token=x#y") == (
        "https://a.example.com:8443/b"
    )
