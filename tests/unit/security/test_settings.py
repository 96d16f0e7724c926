"""A service's security settings, and the faults that prevent its start."""

from pathlib import Path
from typing import Any

import pytest

from drover.errors import InvalidArgumentError
from drover.rpc.settings import load_settings
from drover.security.development_ca import Authority
from drover_coordinator.settings import CoordinatorSettings
from drover_status_store.settings import StatusStoreSettings
from drover_worker.settings import WorkerSettings
from tests.support.certificates import DAY, init_certificates, issue, tls_settings

TLS = {"tls_cert": "c", "tls_key": "k", "tls_ca": "a", "access_file": "f"}


def fault_of(kind: Any = CoordinatorSettings, **settings: Any) -> str:
    with pytest.raises(InvalidArgumentError) as caught:
        load_settings(kind, **settings)
    assert "\n" not in caught.value.message
    return caught.value.message


@pytest.mark.parametrize("address", ["0.0.0.0:7401", "10.0.0.1:7401", "[::]:7401", "a.example:1"])
def test_a_listener_that_others_reach_needs_tls_or_a_word(address: str) -> None:
    fault = fault_of(coordinator_listen=address)
    assert f"DROVER_COORDINATOR_LISTEN={address} can be reached from other machines" in fault
    assert "DROVER_TLS_CERT" in fault
    assert "DROVER_ALLOW_PLAINTEXT=true" in fault
    load_settings(CoordinatorSettings, coordinator_listen=address, allow_plaintext=True)
    load_settings(CoordinatorSettings, coordinator_listen=address, **TLS)


@pytest.mark.parametrize("address", ["127.0.0.1:0", "127.0.0.2:7401", "[::1]:1", "localhost:1"])
def test_loopback_needs_nothing(address: str) -> None:
    load_settings(CoordinatorSettings, coordinator_listen=address)


def test_each_listener_of_a_worker_is_looked_at() -> None:
    fault = fault_of(
        WorkerSettings, worker_internal_listen="10.0.0.1:1", worker_internal_advertised="w:1"
    )
    assert "DROVER_WORKER_INTERNAL_LISTEN=10.0.0.1:1" in fault


@pytest.mark.parametrize("missing", TLS)
def test_half_of_the_files_is_nothing(missing: str) -> None:
    fault = fault_of(**{name: path for name, path in TLS.items() if name != missing})
    assert "must be set together" in fault


def test_tokens_that_are_signed_need_an_audience() -> None:
    assert "DROVER_JWT_AUDIENCE" in fault_of(**TLS, jwks="keys.json")
    assert "DROVER_ACCESS_FILE" in fault_of(jwks="keys.json", jwt_audience="drover")


def test_authorities_of_users_are_others_than_those_of_services(tmp_path: Path) -> None:
    assert "DROVER_TLS_CERT" in fault_of(tls_client_ca="ca.pem")
    init_certificates(tmp_path / "certs")
    good = tls_settings(tmp_path / "certs")
    settings = load_settings(CoordinatorSettings, **good, tls_client_ca=good["tls_ca"])
    with pytest.raises(InvalidArgumentError, match="use a separate authority for users"):
        settings.open_security()


def test_an_audit_log_that_is_required_needs_a_place() -> None:
    assert "DROVER_AUDIT_LOG" in fault_of(audit_required=True)
    load_settings(CoordinatorSettings, audit_required=True, audit_log="stdout")


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    init_certificates(tmp_path / "certs")
    good = tls_settings(tmp_path / "certs")
    load_settings(CoordinatorSettings, **good).open_security()
    old = issue(tmp_path / "old", Authority.make(), begins=-2 * DAY, ends=-DAY)
    for changed, fault in (
        ({"tls_cert": old.cert, "tls_key": old.key, "tls_ca": old.ca}, "cert.pem expired on"),
        ({"access_file": "/nowhere"}, "/nowhere cannot be read"),
        ({"audit_log": "/nowhere/audit.log"}, "DROVER_AUDIT_LOG: /nowhere/audit.log cannot"),
        ({"jwks": "/nowhere", "jwt_audience": "x"}, "/nowhere cannot be read"),
    ):
        with pytest.raises(InvalidArgumentError, match=fault):
            load_settings(CoordinatorSettings, **{**good, **changed}).open_security()


HERE, THERE, INSIDE = "w.example.com", "elsewhere.example.com", "w.internal.example.com"


@pytest.mark.parametrize(
    ("kind", "settings", "wanted"),
    [
        (WorkerSettings, {}, {"DROVER_WORKER_LISTEN", "DROVER_WORKER_INTERNAL_LISTEN"}),
        (
            WorkerSettings,
            {
                "worker_advertised": f"{THERE}:1",
                "worker_internal_listen": "127.0.0.1:0",
                "worker_internal_advertised": f"{INSIDE}:1",
            },
            {"DROVER_WORKER_ADVERTISED", "DROVER_WORKER_INTERNAL_ADVERTISED"},
        ),
        (
            CoordinatorSettings,
            {"coordinator_advertised": f"{THERE}:1"},
            {"DROVER_COORDINATOR_ADVERTISED"},
        ),
        (
            CoordinatorSettings,
            {"coordinators": "127.0.0.1:7401,127.0.0.2:7401"},
            {"DROVER_COORDINATOR_LISTEN"},
        ),
        # only its clients' settings name its address
        (CoordinatorSettings, {}, set()),
        (StatusStoreSettings, {}, set()),
    ],
)
def test_a_certificate_has_to_be_for_where_the_service_has_others_look_for_it(
    tmp_path: Path, kind: Any, settings: dict[str, Any], wanted: set[str]
) -> None:
    init_certificates(tmp_path / "certs")
    tls = {**tls_settings(tmp_path / "certs"), **settings}
    authority = Authority.read(tmp_path / "certs")
    good = issue(tmp_path / "good", authority, hosts=("127.0.0.1", "*.example.com", INSIDE))
    load_settings(kind, **{**tls, "tls_cert": good.cert, "tls_key": good.key}).open_security()
    bad = issue(tmp_path / "bad", authority, hosts=(HERE,))
    made = load_settings(kind, **{**tls, "tls_cert": bad.cert, "tls_key": bad.key})
    if not wanted:
        made.open_security()
        return
    with pytest.raises(
        InvalidArgumentError, match=f"{bad.cert} is valid for .*{HERE}, not for"
    ) as told:
        made.open_security()
    for setting in wanted:
        assert setting in told.value.message
