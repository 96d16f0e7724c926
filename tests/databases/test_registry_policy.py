"""Converters against hostile schema registries: hosts, responses, files."""

import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from drover.convert.registered.registry import registry_at
from drover.convert.registry import converter_config_def
from drover.policy.egress import HOSTS_VARIABLE
from drover.policy.files import ROOTS_VARIABLE
from drover.record.errors import PassError, RetriableError, RowsError
from tests.support.http_api import Reply, Request, running_api
from tests.support.registry_converters import converter_at, topics

AVRO = "io.confluent.connect.avro.AvroConverter"
VALUES = pa.array([struct.pack(">bI", 0, 1) + b"x"], pa.binary())


@pytest.fixture(autouse=True)
def _no_cached_clients() -> Iterator[None]:
    registry_at.cache_clear()
    yield
    registry_at.cache_clear()


def error_of(url: str, kind: type[Exception] = Exception, **settings: str) -> str:
    """What decoding a record says, with the causes that a log shows."""
    with pytest.raises(kind) as caught:
        converter_at(AVRO, url, max_retries="0", **settings).decode(VALUES, topics("t"))
    texts: list[str] = []
    error: BaseException | None = caught.value
    while error is not None:
        texts.append(str(error))
        if isinstance(error, RowsError):
            texts += [str(each) for each in error.rows.values()]
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\n".join(texts)


@pytest.mark.parametrize(
    ("reply", "kind", "told"),
    [
        (Reply({"error_code": 40403, "message": "CANARY"}, 404), RowsError, "40403: the schema"),
        (Reply({"error_code": "CANARY", "message": "CANARY"}, 404), PassError, "answered 404"),
        (Reply(b"CANARY", 404), PassError, "Check schema.registry.url"),
        (Reply(b"CANARY", 500), RetriableError, "answered 500"),
        (Reply({"error_code": 42201, "message": "CANARY"}, 422), RowsError, "invalid schema"),
        (Reply(b"CANARY", 200), PassError, "is no schema registry"),
        (Reply(b"CANARY", 401), PassError, "basic.auth"),
        (Reply(b"CANARY", 302, {"location": "http://169.254.169.254/"}), PassError, "302"),
        (Reply(b"CANARY", 200, {"content-encoding": "gzip"}), PassError, "is compressed"),
    ],
)
def test_a_registrys_response_is_not_told(reply: Reply, kind: type[Exception], told: str) -> None:
    with running_api(lambda _: reply) as api:
        text = error_of(api.url, kind)
    assert told in text
    assert "CANARY" not in text


def test_what_answers_without_http_is_not_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"SSH-2.0-CANARY\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        text = error_of(f"http://127.0.0.1:{server.getsockname()[1]}", RetriableError)
        thread.join()
    assert "does not speak HTTP" in text
    assert "CANARY" not in text


def test_hosts_are_checked_when_the_registry_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    with running_api(lambda _: Reply(b"", 404)) as api, running_api(lambda _: Reply()) as proxy:
        name = api.url.replace("127.0.0.1", "localhost")
        for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(variable, proxy.url)
        assert "answered 404" in error_of(name, PassError)
        registry_at.cache_clear()
        converter = converter_at(AVRO, name)
        monkeypatch.setenv(HOSTS_VARIABLE, "api.example.com")
        count = len(api.requests)
        with pytest.raises(PassError, match="not a host that connectors may call"):
            converter.decode(VALUES, topics("t"))
        assert len(api.requests) == count
        assert not proxy.proxied_to(replace(api, url=name))


def test_the_issuer_of_tokens_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(request: Request) -> Reply:
        return Reply({"error": "CANARY", "error_description": "CANARY"}, 400)

    with running_api(answer) as issuer, running_api(lambda _: Reply(b"", 404)) as api:
        login = {
            "bearer_auth_credentials_source": "OAUTHBEARER",
            # the token is requested before the registry is called
            "bearer_auth_issuer_endpoint_url": issuer.url.replace("127.0.0.1", "localhost"),
            "bearer_auth_client_id": "id",
            "bearer_auth_client_secret": "hidden",
            "bearer_auth_scope": "all",
        }
        text = error_of(api.url, RetriableError, **login)
        assert "bearer.auth.issuer.endpoint.url" in text
        assert "CANARY" not in text
        registry_at.cache_clear()
        asked = len(issuer.requests)
        assert asked
        converter = converter_at(AVRO, api.url, max_retries="0", **login)
        monkeypatch.setenv(HOSTS_VARIABLE, "other")
        with pytest.raises(PassError, match=r"localhost.* is not a host"):
            converter.decode(VALUES, topics("t"))
        assert len(issuer.requests) == asked


def test_settings_are_checked_without_a_resolver(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def faults(**settings: Any) -> dict[str, str]:
        raw: dict[str, str | None] = {"value.converter": "AvroConverter"}
        raw |= {f"value.converter.{name.replace('_', '.')}": settings[name] for name in settings}
        found = converter_config_def("value.converter", raw).parse(raw).violations
        return {each.field.removeprefix("value.converter."): each.description for each in found}

    for url in ("http://169.254.169.254/latest", "http://[64:ff9b::a9fe:a9fe]:80"):
        assert "must not call" in faults(schema_registry_url=url)["schema.registry.url"]
        issuer = {"schema_registry_url": "http://r", "bearer_auth_issuer_endpoint_url": url}
        assert "must not call" in faults(**issuer)["bearer.auth.issuer.endpoint.url"]
    monkeypatch.setenv(HOSTS_VARIABLE, "registry")
    assert faults(schema_registry_url="http://registry:1") == {}
    assert "is not a host" in faults(schema_registry_url="http://other")["schema.registry.url"]
    monkeypatch.setenv(ROOTS_VARIABLE, str(tmp_path / "root"))
    for side in ("truststore", "keystore"):
        name = f"schema.registry.ssl.{side}.location"
        told = {
            faults(schema_registry_url="http://registry", **{name.replace(".", "_"): path})[name]
            for path in ("/etc/passwd", "/etc/nothing")
        }
        assert len(told) == 1
        assert "must be below" in told.pop()
