import re
from pathlib import Path

import pytest

from drover.errors import InvalidArgumentError
from drover.rpc.settings import load_settings
from drover.security.development_ca import GATEWAY, files_of, init_certificates
from drover_gateway.settings import GatewaySettings


def fault(monkeypatch: pytest.MonkeyPatch, **variables: str) -> str:
    """The violation of settings, DROVER_… of each name."""
    for name, value in variables.items():
        monkeypatch.setenv(f"DROVER_{name}", value)
    with pytest.raises(InvalidArgumentError) as caught:
        load_settings(GatewaySettings)
    return "; ".join(f"{each.field} {each.description}" for each in caught.value.violations)


def test_the_defaults_are_kafka_connects_address_and_a_local_worker() -> None:
    settings = load_settings(GatewaySettings)
    assert settings.gateway_listen == "127.0.0.1:8083"
    assert settings.workers == ["127.0.0.1:7411"]
    assert settings.https_files is None


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({"GATEWAY_LISTEN": "0.0.0.0:8083"}, "can be reached from other machines"),
        ({"GATEWAY_WORKERS": "worker:7411"}, "tokens would be sent over a network in plain text"),
        ({"GATEWAY_WORKERS": "worker"}, "DROVER_GATEWAY_WORKERS"),
        ({"GATEWAY_ADMIN_LISTEN": "8084"}, "DROVER_GATEWAY_ADMIN_LISTEN"),
        ({"GATEWAY_ADMIN_LISTEN": "127.0.0.1:8083"}, "must be another address"),
        ({"GATEWAY_ADMIN_LISTEN": "0.0.0.0:8084"}, "can be reached from other machines"),
        ({"GATEWAY_RESPONSE_HEADERS": "set Content-Length: 0"}, "only the server can set"),
        ({"GATEWAY_RESPONSE_HEADERS": "add transfer-encoding: chunked"}, "only the server can"),
        ({"GATEWAY_RESPONSE_HEADERS": "set X: a\r\nY: b"}, "RESPONSE_HEADERS"),
        ({"GATEWAY_SESSION_KEYS": "k" * 31}, "at least 32"),
        ({"GATEWAY_ALLOW_ORIGINS": "console.example"}, "must be an origin such as"),
        ({"GATEWAY_ALLOW_METHODS": "get"}, "must be an HTTP method in upper case"),
        ({"GATEWAY_TRUSTED_PROXIES": "proxy"}, "DROVER_GATEWAY_TRUSTED_PROXIES"),
        ({"GATEWAY_TOPICS": "maybe"}, "DROVER_GATEWAY_TOPICS"),
        ({"TLS_CERT": "a.pem"}, "must be set together"),
        ({"TLS_CERT": "a.pem", "TLS_KEY": "b.pem"}, "needs DROVER_TLS_CA"),
        ({"GATEWAY_TLS_KEY": "b.pem"}, "must be set together"),
    ],
)
def test_a_wrong_setting_is_named(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], found: str
) -> None:
    assert found in fault(monkeypatch, **variables)


def test_a_key_that_is_too_short_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "s3cret" not in fault(monkeypatch, GATEWAY_SESSION_KEYS="s3cret," + "k" * 32)


def test_the_tools_need_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drover_gateway.settings.find_spec", lambda _: None)
    assert "pip install 'drover-gateway[mcp]'" in fault(monkeypatch, GATEWAY_MCP="read")
    monkeypatch.setenv("DROVER_GATEWAY_MCP", "off")
    assert load_settings(GatewaySettings).gateway_mcp == "off"


def test_the_hosts_of_the_certificate_are_accepted(tmp_path: Path) -> None:
    init_certificates(tmp_path, hosts=["connect.example"])
    files = files_of(tmp_path, GATEWAY)
    settings = GatewaySettings(
        tls_ca=files.ca, tls_cert=files.cert, tls_key=files.key, gateway_listen="0.0.0.0:8083"
    )
    certificate = settings.https_certificate()
    assert certificate is not None
    rules = settings.origin_rules(certificate.present())
    assert rules.host_fault([(b"host", b"connect.example:8083")]) is None
    assert rules.host_fault([(b"host", b"other.example:8083")])
    assert settings.connect()("localhost:1") is not None


OIDC = {"gateway_oidc_issuer": "https://id.example.com/", "gateway_oidc_client_id": "drover"}


def test_sign_in_by_openid_connect_needs_an_issuer_and_a_client(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s: %\r\n")
    given = {**OIDC, "gateway_oidc_client_secret_file": str(secret)}
    settings = load_settings(GatewaySettings, **given, gateway_url="https://drover.example.com/")
    assert settings.gateway_oidc_issuer == "https://id.example.com/"
    assert settings.gateway_url == "https://drover.example.com"
    assert settings.client_secret()() == "s: %"
    assert load_settings(GatewaySettings, **OIDC).client_secret()() == ""


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"gateway_oidc_issuer": ""}, "CLIENT_ID: set DROVER_GATEWAY_OIDC_ISSUER too"),
        ({"gateway_oidc_client_id": ""}, "needs DROVER_GATEWAY_OIDC_CLIENT_ID"),
        ({"gateway_console": "off"}, "needs DROVER_GATEWAY_CONSOLE=on"),
        ({"gateway_oidc_issuer": "http://id.example.com"}, "must be an https URL"),
        ({"gateway_oidc_issuer": "id.example.com"}, "must be a URL such as"),
        ({"gateway_oidc_issuer": "https://u:p@id.example.com"}, "without user info"),
        ({"gateway_oidc_issuer": "https://id.example.com/?a=b"}, "must have no query"),
        ({"gateway_oidc_issuer": "https://id.example.com/#a"}, "must have no fragment"),
        ({"gateway_oidc_client_id": "dröver"}, "printable ASCII"),
        ({"gateway_oidc_scopes": "profile"}, "must have the scope openid"),
        ({"gateway_oidc_scopes": 'openid "a"'}, "must be scopes separated by spaces"),
        ({"gateway_oidc_token": "refresh"}, "'id' or 'access'"),
        ({"gateway_oidc_client_secret_file": "/no/such"}, "cannot be read: No such file"),
        ({"gateway_oidc_ca": "/no/such"}, "/no/such cannot be used: No such file"),
        ({"gateway_oidc_ca": __file__}, "it is no PEM file"),
        ({"gateway_url": "https://drover.example.com/ui"}, "must be a scheme and a host"),
        ({"gateway_url": "drover.example.com"}, "must be a scheme and a host"),
    ],
    ids=str,
)
def test_settings_of_the_sign_in_that_cannot_be_used_are_named(
    changed: dict[str, str], why: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(why)):
        load_settings(GatewaySettings, **{**OIDC, **changed})


@pytest.mark.parametrize("content", [b"", b"\n", b"a\nb", b"\xff", b"x" * 5_000])
def test_a_file_without_a_secret_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content)
    with pytest.raises(InvalidArgumentError) as raised:
        load_settings(GatewaySettings, **OIDC, gateway_oidc_client_secret_file=str(file))
    assert "xxx" not in str(raised.value)
