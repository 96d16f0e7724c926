"""The principal that requests a change."""

from pathlib import Path

import pytest
import yaml

from drover.rpc.callers import Callers, unverified_principal
from drover.security.grants import renewed_grants
from drover.security.principal import PRINCIPAL_MAX_CHARS, Role


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


class Client(Call):
    """A caller with a certificate."""

    def __init__(self, **names: bytes) -> None:
        super().__init__("ipv4:10.0.0.1:1")
        self._names = names

    def auth_context(self) -> dict[str, list[bytes]]:
        return {key: [name] for key, name in self._names.items()}


@pytest.mark.parametrize(
    ("names", "name", "is_admin"),
    [
        ({"x509_common_name": b"ann@x"}, "ann@x", False),
        ({"x509_subject_alternative_name": b"ann@x", "peer_dns": b"ann@x"}, "ann@x", False),
        (
            {"x509_subject_alternative_name": b"ann@x", "peer_email": b"ann@x"},
            "email:ann@x",
            True,
        ),
        ({"x509_common_name": b"email:ann@x"}, "cn:email:ann@x", False),
        ({"x509_common_name": b"bob"}, "bob", True),
        ({"x509_subject_alternative_name": b"bob", "peer_dns": b"bob"}, "bob", True),
    ],
)
async def test_a_grant_may_name_the_kind_of_a_certificates_name(
    tmp_path: Path, names: dict[str, bytes], name: str, is_admin: bool
) -> None:
    access = tmp_path / "access.yaml"
    holders = ("email:ann@x", "bob")
    access.write_text(
        yaml.safe_dump({"grants": [{"certificate": each, "role": "admin"} for each in holders]})
    )
    principal = await Callers(renewed_grants(str(access))).identify(Client(**names))
    assert (principal.name, principal.may(Role.ADMIN)) == (name, is_admin)


def test_what_cannot_be_shown_or_is_too_long_is_left_out() -> None:
    assert unverified_principal(Call("", ("drover-author", "a\x1b[31mb"))).name == "a[31mb"
    assert (
        len(unverified_principal(Call("", ("drover-author", "x" * 1_000))).name)
        == PRINCIPAL_MAX_CHARS
    )
