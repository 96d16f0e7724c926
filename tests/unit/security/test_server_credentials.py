"""TLS credentials of a listener, and their renewal."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from drover.rpc.security import PLAINTEXT, Security
from drover.security import renewed
from drover.security.certificates import renewed_certificate
from tests.support.certificates import files_of, init_certificates


def test_plaintext_needs_no_credentials() -> None:
    assert PLAINTEXT.server_credentials(client_certificates=True) is None


def test_a_configuration_is_given_once_for_each_renewal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC swaps the configuration while connections arrive, so a listener rarely changes it."""
    given: list[Callable[[], Any]] = []

    def credentials(_first: Any, fetch: Callable[[], Any], **_: Any) -> None:
        given.append(fetch)

    monkeypatch.setattr(grpc, "dynamic_ssl_server_credentials", credentials)
    monkeypatch.setattr(renewed, "CHECK_EVERY_S", 0.0)
    init_certificates(tmp_path)
    security = Security(renewed_certificate(files_of(tmp_path, "service")))
    security.server_credentials(client_certificates=True)
    security.server_credentials(client_certificates=False)
    assert [fetch() for fetch in given] == [None, None]
    init_certificates(tmp_path, renew=True)
    assert [fetch() is None for fetch in given] == [False, False], "each listener takes the new one"
    assert [fetch() for fetch in given] == [None, None]
