"""Error messages about a server whose certificate a client cannot trust."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from drover.local.tls_check import shown_certificate, why_refused
from drover.security.certificates import TlsFiles
from tests.support.addresses import free_address
from tests.support.certificates import DAY, Authority, issue


@contextmanager
def showing(files: TlsFiles) -> Iterator[str]:
    """A server with this certificate; Drover's own servers refuse to start with it."""
    key, cert, ca = (Path(path).read_bytes() for path in (files.key, files.cert, files.ca))
    credentials = grpc.ssl_server_credentials([(key, cert)], ca, require_client_auth=True)
    server = grpc.server(ThreadPoolExecutor(max_workers=1))
    address = f"127.0.0.1:{server.add_secure_port('127.0.0.1:0', credentials)}"
    server.start()
    try:
        yield address
    finally:
        server.stop(None).wait()


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        ({"begins": -2 * DAY, "ends": -DAY}, "presents a certificate that expired "),
        ({"begins": DAY}, "presents a certificate that is not valid before "),
        (
            {"hosts": ("w.example.com",)},
            "presents a certificate for s, w.example.com, not for 127.0",
        ),
    ],
)
def test_what_is_wrong_with_a_servers_certificate_is_told(
    tmp_path: Path, shown: dict[str, Any], why: str
) -> None:
    authority = Authority.make()
    mine = issue(tmp_path / "mine", authority)
    with showing(issue(tmp_path / "s", authority, name="s", **shown)) as address:
        refusal = why_refused(address, mine)
        assert refusal is not None
        assert refusal.why.startswith(why)
        assert refusal.remedy


def test_a_foreign_authority_of_the_same_name_is_told_from_ones_own(tmp_path: Path) -> None:
    mine = issue(tmp_path / "mine", Authority.make())
    with showing(issue(tmp_path / "s", Authority.make())) as address:
        refusal = why_refused(address, mine)
    assert refusal is not None
    assert f"no CA in {mine.ca} signed; its issuer is CN=" in refusal.why


def test_who_is_let_in_or_finds_nobody_is_told_nothing(tmp_path: Path) -> None:
    mine = issue(tmp_path / "mine", Authority.make())
    with showing(mine) as address:
        assert why_refused(address, mine) is None
        assert shown_certificate(address) is not None
    assert why_refused(free_address(), mine) is None
    assert shown_certificate(free_address()) is None
