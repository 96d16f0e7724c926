"""The hosts that connectors may connect to: names, addresses in every form, lists."""

import socket
from ipaddress import ip_address

import pytest

from drover.policy.egress import (
    HOSTS_VARIABLE,
    AllowedHosts,
    ForbiddenHostError,
    check_url,
    embedded_addresses,
    forbidden_host,
    hosts_fault,
    plain_host_of,
    split_hosts,
    url_fault,
)

METADATA = [
    *("169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.0.23", "169.254.42.42"),
    *("168.63.129.16", "100.100.100.200", "192.0.0.192"),
    *("fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:42::42", "fd00:a9fe:a9fe::1"),
    *("fe80::1", "fe80::a9fe:a9fe", "fe80::1%eth0", "febf::1"),
]
#: 169.254.169.254 within IPv6 addresses.
EMBEDDED = [
    "::ffff:169.254.169.254",
    "::ffff:0:169.254.169.254",
    "::169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::a9fe:a9fe",
    "64:ff9b:1:a9fe:a9:fe00::",
    "64:ff9b:1:a9:fe:a9fe::",
    "64:ff9b:1:0:a9:fea9:fe00:0",
    "2002:a9fe:a9fe::",
    "2002:a9fe:a9fe:1:2:3:4:5",
    "2001:0:a9fe:a9fe::",
    "2001::5601:5601",
    "2a00:1::5efe:a9fe:a9fe",
    "2a00:1::200:5efe:a9fe:a9fe",
]


@pytest.mark.parametrize("address", METADATA + EMBEDDED)
def test_metadata_services_are_not_called_unless_they_are_named(address: str) -> None:
    for patterns in (None, ("inner",), ("0.0.0.0/0", "::/0"), ("*.example.com", "inner:80")):
        with pytest.raises(ForbiddenHostError, match=HOSTS_VARIABLE):
            AllowedHosts(patterns).check("inner", 80, address)
    AllowedHosts((address.partition("%")[0],)).check("inner", 80, address)


@pytest.mark.parametrize(
    "address",
    ["169.253.255.255", "168.63.129.17", "fd00:ec1::254", "fec0::1", "64:ff9b::1", "2002:a00::"],
)
def test_their_neighbours_are_called(address: str) -> None:
    AllowedHosts().check("inner", 80, address)


def test_a_network_of_metadata_addresses_can_be_named() -> None:
    AllowedHosts(("169.254.169.0/24",)).check("inner", 80, "169.254.169.254")
    AllowedHosts(("169.254.169.254",)).check("inner", 80, "::ffff:169.254.169.254")
    with pytest.raises(ForbiddenHostError):
        AllowedHosts(("169.254.169.254",)).check("inner", 80, "2002:a9fe:a9fe::")


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("::ffff:10.1.2.3", True),
        ("64:ff9b::a01:203", True),
        ("2002:a01:203::", False),
        ("::10.1.2.3", False),
    ],
)
def test_a_listed_network_has_the_other_forms_of_the_same_host(address: str, allowed: bool) -> None:
    hosts = AllowedHosts(("10.0.0.0/8",))
    if allowed:
        hosts.check("inner", 80, address)
    else:
        with pytest.raises(ForbiddenHostError):
            hosts.check("inner", 80, address)


def test_ipv4_addresses_within_ipv6_addresses() -> None:
    assert embedded_addresses(ip_address("10.1.2.3")) == []
    assert embedded_addresses(ip_address("2a00:1:2:3:4:5:6:7")) == []
    for each in EMBEDDED:
        assert ip_address("169.254.169.254") in embedded_addresses(ip_address(each))


@pytest.mark.parametrize(
    "host",
    [
        *("169.254.169.254", "0xA9FEA9FE", "2852039166", "0251.0376.0251.0376", "169.254.43518"),
        *("\uff11\uff16\uff19.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]"),
        *("169.254.169.254.", "0xA9FEA9FE.", "2852039166."),
    ],
)
def test_addresses_are_checked_without_a_resolver(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve = socket.getaddrinfo

    def no_names(*arguments: object, **more: object) -> object:
        assert more["flags"] == socket.AI_NUMERICHOST
        return resolve(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", no_names)
    assert "must not call" in (url_fault(f"http://{host}/latest", AllowedHosts()) or "")
    assert "must not call" in (hosts_fault(f"a.example:1,{host}:2", 9092, AllowedHosts()) or "")


def test_names_are_checked_without_a_resolver() -> None:
    assert url_fault("https://api.example.com/x", AllowedHosts()) is None
    listed = AllowedHosts(("api.example.com", "k:9092"))
    assert url_fault("https://api.example.com/x", listed) is None
    assert "not a host that" in (url_fault("https://other.example.com/x", listed) or "")
    assert "not a host that" in (url_fault("https://10.1.1.1/x", listed) or "")
    assert hosts_fault("SASL_SSL://k:9092", 9092, listed) is None
    assert "not a host that" in (hosts_fault("k:9092,k:9093", 9092, listed) or "")
    # such a name may be in the network
    assert url_fault("https://other/x", AllowedHosts(("10.0.0.0/8",))) is None


@pytest.mark.parametrize("url", ["", "x", "http://", "http://a:b/", "http://[::1/", "ftp://a"])
def test_a_url_without_a_host_is_refused(url: str) -> None:
    assert "must be a URL" in (url_fault(url, AllowedHosts()) or "")


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254\\@api.example.com/",
        "http://%31%36%39.254.169.254/",
        "http://169.254.169.254 @api.example.com/",
        "http://169.254.169.254\t@api.example.com/",
        "http://api.example.com\n.evil.example/",
    ],
)
def test_a_url_in_which_clients_find_different_hosts_is_refused(url: str) -> None:
    allowed = AllowedHosts(("api.example.com",))
    assert "clients read different hosts" in (url_fault(url, allowed) or "")
    with pytest.raises(ValueError, match=HOSTS_VARIABLE):
        check_url(url, allowed)


def test_clients_that_parse_urls_themselves_get_no_user_info() -> None:
    for url in ("http://169.254.169.254@a/", "http://169.254.169.254:80@a/", "http://@a/"):
        with pytest.raises(ValueError, match="without user info"):
            plain_host_of(url)
    assert plain_host_of("https://a:1/x@y?z=%20@#@") == ("a", 1)


def test_lists_of_hosts() -> None:
    assert split_hosts("a:1, [::1]:2,b,", 9092) == [("a", 1), ("::1", 2), ("b", 9092)]
    for text in ("a:x", "a/b:1", "u:p@a:1", ":1"):
        assert "must list host:port" in (hosts_fault(text, 1, AllowedHosts()) or "")


def test_a_url_is_resolved_before_a_library_calls_it() -> None:
    check_url("http://localhost:1/x", AllowedHosts(("localhost",)))
    with pytest.raises(ForbiddenHostError):
        check_url("http://localhost:1/x", AllowedHosts(("other",)))
    with pytest.raises(OSError, match=r"."):
        check_url("http://nothing.invalid/", AllowedHosts())
    with pytest.raises(OSError, match="host name"):
        check_url(f"http://{'a' * 70}.x/", AllowedHosts())


def test_a_rejection_is_found_in_a_librarys_error() -> None:
    def library() -> None:
        try:
            AllowedHosts(()).check("a", 1, "10.1.1.1")
        except PermissionError as error:
            raise ConnectionError("cannot connect") from error

    with pytest.raises(ConnectionError) as caught:
        library()
    assert "not a host that" in str(forbidden_host(caught.value))
    assert forbidden_host(ValueError()) is None
