"""Content types of the REST API, and headers for other web sites."""

import pytest

from drover_gateway.rest.cors import Cors, HeaderRule, parse_header_rules, with_rules
from drover_gateway.rest.errors import RestError
from drover_gateway.rest.negotiate import check_accept, check_content_type


@pytest.mark.parametrize(
    ("content_type", "has_body"),
    [
        (None, False),
        ("application/json", True),
        ("Application/JSON", True),
        ("application/json; charset=utf-8", True),
        (" application/json ;x=y", True),
    ],
)
def test_json_is_read(content_type: str | None, has_body: bool) -> None:
    check_content_type(content_type, has_body=has_body)


@pytest.mark.parametrize(
    ("content_type", "has_body", "status"),
    [
        (None, True, 415),
        ("text/plain", False, 415),
        ("text/plain", True, 415),
        ("application/vnd.api+json", True, 415),
        ("application/merge-patch+json", True, 415),
        ("application/x-www-form-urlencoded", True, 415),
        ("nonsense", True, 400),
        ("", True, 400),
        ("application/json/x", True, 400),
    ],
)
def test_other_bodies_are_refused(content_type: str | None, has_body: bool, status: int) -> None:
    with pytest.raises(RestError) as refused:
        check_content_type(content_type, has_body=has_body)
    assert refused.value.status == status


@pytest.mark.parametrize(
    "accept",
    [
        None,
        "",
        "*/*",
        "application/json",
        "application/*;q=0.1",
        "text/html, application/json;q=0.5",
        "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
        "*",
        "application",
        "text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2",
        "image/gif, *;q=.2",
    ],
)
def test_callers_that_accept_json(accept: str | None) -> None:
    check_accept(accept)


@pytest.mark.parametrize(
    "accept",
    [
        *("text/html", "application/xml", "application/json;q=0", "*/*;q=0.0", "json", ";"),
        *("*/json", "*;q=0", "text", "application/"),
    ],
)
def test_callers_that_do_not(accept: str) -> None:
    with pytest.raises(RestError) as refused:
        check_accept(accept)
    assert refused.value.status == 406


def test_headers_of_all_responses_are_set_and_added() -> None:
    rules = parse_header_rules(
        'set X-Content-Type-Options: nosniff, "add Cache-Control: no-cache, no-store",'
        " setDate Expires: 1000"
    )
    assert rules == (
        HeaderRule("X-Content-Type-Options", "nosniff", replaces=True),
        HeaderRule("Cache-Control", "no-cache, no-store", replaces=False),
        HeaderRule("Expires", "1000", replaces=True, is_date=True),
    )
    assert with_rules([("expires", "0"), ("cache-control", "private")], rules, now_s=0) == [
        ("cache-control", "private"),
        ("x-content-type-options", "nosniff"),
        ("cache-control", "no-cache, no-store"),
        ("expires", "Thu, 01 Jan 1970 00:00:01 GMT"),
    ]
    assert parse_header_rules("") == ()


@pytest.mark.parametrize(
    "rule",
    [
        "X-A: b",
        "replace X-A: b",
        "set X A: b",
        "set X-A b",
        "addDate X: soon",
        "set X: é",
        "set X: a\nb",
    ],
)
def test_malformed_rules_are_named(rule: str) -> None:
    with pytest.raises(ValueError, match=r"set|add"):
        parse_header_rules(rule)


def test_only_allowed_web_sites_may_read_answers() -> None:
    cors = Cors(["https://console.example"], ["GET", "PUT", "DELETE"])
    mine = "https://console.example"
    assert cors.headers(mine, is_preflight=False) == [
        ("vary", "Origin"),
        ("access-control-allow-origin", mine),
    ]
    assert dict(cors.headers(mine, is_preflight=True)) == {
        "vary": "Origin",
        "access-control-allow-origin": mine,
        "access-control-allow-methods": "PUT,DELETE,GET",
        "access-control-allow-headers": "Content-Type",
        "access-control-max-age": "60",
    }
    for origin in (None, "https://elsewhere.example", "null", "https://console.example.evil"):
        assert cors.headers(origin, is_preflight=True) == [("vary", "Origin")]
    assert Cors([]).headers(mine, is_preflight=True) == []
    assert Cors(["*"]).allows("https://any.example")
    assert not Cors(["*"]).allows("https://a\r\nx")
