"""Paths of the REST API: which resource they name, and which are refused."""

import pytest

from drover_gateway.rest.errors import RestError
from drover_gateway.rest.path import encoded_name, split_path
from drover_gateway.rest.table import RESOURCES, Router


@pytest.mark.parametrize(
    ("raw", "segments"),
    [
        (b"/", ()),
        (b"", ()),
        (b"/connectors", ("connectors",)),
        (b"/connectors/", ("connectors",)),
        (b"/connectors/a%2Fb", ("connectors", "a/b")),
        (b"/connectors/a%2fb/status", ("connectors", "a/b", "status")),
        (b"/connectors/a%25", ("connectors", "a%")),
        (b"/connectors/a%2525", ("connectors", "a%25")),
        (b"/connectors/a+b%20c", ("connectors", "a+b c")),
        (b"/connectors/a;v=1", ("connectors", "a")),
        (b"/connectors/a%3Bv", ("connectors", "a;v")),
        (b"/connectors/%E6%97%A5", ("connectors", "日")),
        ("/connectors/日".encode(), ("connectors", "日")),
        (b"/connectors/..", ("connectors", "..")),
        (b"/connectors/%00", ("connectors", "\0")),
    ],
)
def test_paths_are_split_before_they_are_decoded(raw: bytes, segments: tuple[str, ...]) -> None:
    assert split_path(raw) == segments


@pytest.mark.parametrize(
    "raw",
    [
        b"/connectors//a",
        b"//",
        b"/connectors/;v=1",
        b"/connectors/a%zz",
        b"/connectors/a%2",
        b"/connectors/a%",
        b"/connectors/%2e%2e/status",
        b"/connectors/.%2e",
        b"/connectors/%2e",
        b"/connectors/%ff",
        b"/connectors/%ed%a0%80",
        b"/connectors/\xff",
    ],
)
def test_malformed_paths_are_refused(raw: bytes) -> None:
    with pytest.raises(RestError) as refused:
        split_path(raw)
    assert refused.value.status == 400


@pytest.mark.parametrize("code", range(ord(" "), ord("~") + 1))
def test_a_name_with_any_printable_character_reaches_its_connector(code: int) -> None:
    name = f"a{chr(code)}b"
    if chr(code) != ";":  # as in Kafka Connect, whose header Location names another connector
        assert split_path(f"/connectors/{encoded_name(name)}".encode()) == ("connectors", name)


@pytest.mark.parametrize(
    ("name", "encoded"),
    [
        ("rc?q#f;m=1", "rc%3Fq%23f;m=1"),
        ("rc space", "rc%20space"),
        ("rc%25", "rc%25"),
        ("50%", "50%25"),
        ("a/b\\c", "a%2Fb%5Cc"),
        ("ü日", "%C3%BC%E6%97%A5"),
        ("\r\nx", "%0D%0Ax"),
        ("\ud800", "%3F"),
    ],
)
def test_names_in_the_header_location(name: str, encoded: str) -> None:
    assert encoded_name(name) == encoded


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/", "HEAD,GET,OPTIONS"),
        ("/connectors", "HEAD,POST,GET,OPTIONS"),
        ("/connectors/{connector}", "HEAD,DELETE,GET,OPTIONS"),
        ("/connectors/{connector}/config", "HEAD,GET,OPTIONS,PUT,PATCH"),
    ],
)
def test_methods_have_the_order_of_jersey(path: str, methods: str) -> None:
    (resource,) = (each for each in RESOURCES if each.path == path)
    assert ",".join(resource.methods) == methods


@pytest.mark.parametrize(
    ("task", "found"),
    [
        ("0", "0"),
        ("-1", "-1"),
        ("+7", "7"),
        ("007", "7"),
        ("2147483647", "2147483647"),
        ("2147483648", None),
        ("-2147483649", None),
        ("99999999999", None),
        ("9" * 5_000, None),
        ("abc", None),
        ("", None),
        ("1.0", None),
        ("\u0661", None),
    ],
)
def test_a_task_is_an_integer_of_32_bits(task: str, found: str | None) -> None:
    match = Router().find(("connectors", "a", "tasks", task, "status"))
    assert (match and match.parameters["task"]) == found


def test_a_gateway_without_administrative_resources_has_no_such_path() -> None:
    assert Router().find(("admin", "loggers")) is not None
    assert Router(admin=False).find(("admin", "loggers")) is None
    assert Router().find(("admin",)) is None
    assert Router().find(("connectors", "a", "tasks-config")) is None
