import pytest

from drover_gateway.identity.origin import LOOPBACK_HOSTS, OriginRules

RULES = OriginRules(
    frozenset({*LOOPBACK_HOSTS, "connect.example", "other.example:8443"}),
    origins=("https://console.example",),
)


@pytest.mark.parametrize(
    "host",
    [
        b"localhost:8083",
        b"LOCALHOST",
        b"127.0.0.1:8083",
        b"[::1]:8083",
        b"[::1]",
        b"connect.example",
        b"connect.example:1",
        b"other.example:8443",
    ],
)
def test_a_known_host_is_accepted_with_any_port_unless_one_is_given(host: bytes) -> None:
    assert RULES.host_fault([(b"host", host)]) is None


@pytest.mark.parametrize(
    "headers",
    [
        [(b"host", b"attacker.example")],
        [(b"host", b"attacker.example:8083")],
        [(b"host", b"localhost.attacker.example")],
        [(b"host", b"other.example")],
        [(b"host", b"other.example:8444")],
        [(b"host", b"10.0.0.7")],
    ],
)
def test_a_foreign_host_is_not_accepted(headers: list[tuple[bytes, bytes]]) -> None:
    fault = RULES.host_fault(headers)
    assert fault
    assert fault.status == 421


@pytest.mark.parametrize("rules", [RULES, OriginRules(frozenset({"*"}))])
@pytest.mark.parametrize(
    "hosts",
    [
        [],
        [b""],
        [b"localhost", b"attacker.example"],
        [b"localhost", b"localhost"],
        [b"localhost, attacker.example"],
        [b"localhost@attacker.example"],
        [b"localhost/attacker"],
        [b"local host"],
        ["lo\u00e7alhost".encode()],
    ],
)
def test_one_valid_host_is_needed(rules: OriginRules, hosts: list[bytes]) -> None:
    fault = rules.host_fault([(b"host", each) for each in hosts])
    assert fault
    assert fault.status == 400


def test_every_host_is_accepted_if_the_operator_allows_it() -> None:
    assert OriginRules(frozenset({"*"})).host_fault([(b"host", b"any")]) is None


@pytest.mark.parametrize(
    ("host", "server", "accepted"),
    [
        (b"10.0.0.7:8083", "10.0.0.7", True),
        (b"10.0.0.7", "10.0.0.7", True),
        (b"[fd00::7]:8083", "fd00::7", True),
        (b"10.0.0.8:8083", "10.0.0.7", False),
        (b"10.0.0.7.attacker.example", "10.0.0.7", False),
        (b"", "", False),
    ],
)
def test_the_address_of_the_connection_is_accepted(
    host: bytes, server: str, *, accepted: bool
) -> None:
    """As a health check of Kubernetes sends it; a page of another site has a name."""
    assert (RULES.host_fault([(b"host", host)], server) is None) == accepted


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"sec-fetch-site", b"none")],
        [(b"sec-fetch-site", b"same-origin")],
        [(b"origin", b"http://localhost:8083")],
        [(b"origin", b"https://LOCALHOST:8083")],
        [(b"origin", b"https://console.example"), (b"sec-fetch-site", b"cross-site")],
    ],
)
def test_own_pages_and_allowed_ones_may_change_something(
    headers: list[tuple[bytes, bytes]],
) -> None:
    assert RULES.origin_fault("POST", [(b"host", b"localhost:8083"), *headers]) == ""


@pytest.mark.parametrize(
    "headers",
    [
        [(b"origin", b"https://attacker.example")],
        [(b"origin", b"null")],
        [(b"origin", b"")],
        [(b"origin", b"http://localhost:3000")],
        [(b"origin", b"https://console.example.attacker.example")],
        [(b"sec-fetch-site", b"cross-site")],
        [(b"sec-fetch-site", b"same-site")],
        [(b"sec-fetch-site", b"cross-site"), (b"sec-fetch-site", b"none")],
        [(b"origin", b"https://attacker.example"), (b"origin", b"http://localhost:8083")],
        [(b"origin", b"http://localhost:8083, https://attacker.example")],
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "MKCOL"])
def test_other_pages_may_not(method: str, headers: list[tuple[bytes, bytes]]) -> None:
    assert RULES.origin_fault(method, [(b"host", b"localhost:8083"), *headers])
    for reading in ("GET", "HEAD", "OPTIONS"):
        assert RULES.origin_fault(reading, [(b"host", b"localhost:8083"), *headers]) == ""
