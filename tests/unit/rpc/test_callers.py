"""The principal that requests a change."""

import pytest

from drover.rpc.callers import PRINCIPAL_MAX_CHARS, unverified_principal


class Call:
    """The part of gRPC's context that the code needs."""

    def __init__(self, peer: str, *metadata: tuple[str, str | bytes]) -> None:
        self._peer = peer
        self._metadata = metadata

    def invocation_metadata(self) -> tuple[tuple[str, str | bytes], ...] | None:
        return self._metadata or None

    def peer(self) -> str:
        return self._peer


def test_the_caller_says_who_it_is() -> None:
    assert (
        unverified_principal(Call("ipv4:10.0.0.1:5", ("drover-author", " ann@host "))).name
        == "ann@host"
    )


@pytest.mark.parametrize(
    ("peer", "author"),
    [
        ("ipv4:10.0.0.1:53112", "10.0.0.1"),
        ("ipv6:%5B::1%5D:53112", "::1"),
        ("ipv6:[fe80::1]:53112", "fe80::1"),
        ("unix:/run/drover.sock", "unix:/run/drover.sock"),
    ],
)
def test_else_it_is_its_address_without_the_port(peer: str, author: str) -> None:
    assert unverified_principal(Call(peer, ("other", "x"))).name == author
    assert unverified_principal(Call(peer, ("drover-author", "  "))).name == author


def test_what_cannot_be_shown_or_is_too_long_is_left_out() -> None:
    assert unverified_principal(Call("", ("drover-author", "a\x1b[31mb"))).name == "a[31mb"
    assert (
        len(unverified_principal(Call("", ("drover-author", "x" * 1_000))).name)
        == PRINCIPAL_MAX_CHARS
    )
