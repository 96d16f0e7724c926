"""Object stores and Delta tables at hosts and files that connectors may not access."""

import json
from pathlib import Path

import pytest

from drover.connector import Password, RetriableError
from drover.connector.settings import parse_config
from drover.connectors.files.files_source import FilesSource
from drover.connectors.files.storage.object_store import (
    ObjectPlace,
    ObjectStoreError,
    place_of,
    safe_text,
    translated_errors,
)
from drover.connectors.lakehouse.delta_sink import DeltaSink, settings_of
from drover.connectors.lakehouse.delta_table import DeltaWriter
from drover.connectors.lakehouse.fitted_rows import TableError
from drover.policy.egress import HOSTS_VARIABLE
from drover.policy.files import ROOTS_VARIABLE
from tests.support.error_texts import logged
from tests.support.http_api import Reply, running_api
from tests.support.lake_records import orders

LOGIN = {"aws.access.key.id": "a", "s3.region": "eu-west-1"}
SECRET = json.dumps({"AccessKeyId": "CANARY", "SecretAccessKey": "CANARY"}).encode()
XML = b"<Error><Code>AccessDenied</Code><Message>CANARY</Message></Error>"


def faults(**changed: str) -> dict[str, str]:
    raw = {
        "name": "a",
        "connector.class": "FilesSource",
        "topic": "t",
        "path": "s3://bucket/x",
        **LOGIN,
        "aws.secret.access.key": "hidden",
        **changed,
    }
    return {each.field: each.description for each in parse_config(FilesSource, raw).violations}


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (Reply(SECRET), "Got invalid list response"),
        (Reply(SECRET, 404), "status code: 404"),
        (Reply(SECRET, 400), "status code: 400"),
        (Reply(XML, 403), "AccessDenied"),
    ],
)
def test_the_response_of_a_store_is_not_told(reply: Reply, told: str) -> None:
    import obstore

    with running_api(lambda _: reply) as api:
        found = faults(**{"store.url": api.url})["path"]
        assert told in found
        assert "CANARY" not in found
        place = ObjectPlace(
            "s3://bucket/y",
            (
                ("endpoint", api.url),
                ("access_key_id", "a"),
                ("secret_access_key", "hidden"),
                ("region", "eu"),
            ),
        )
        with (
            pytest.raises((ObjectStoreError, RetriableError)) as caught,
            translated_errors(place, "listing"),
        ):
            list(obstore.list(place.store()))
    assert "CANARY" not in logged(caught.value)


def test_the_text_of_an_error_ends_before_the_response() -> None:
    start = "Generic S3 error: Error performing GET http://h/b?sig=hidden in 1ms"
    for known in ("status code: 404", "Got invalid list response"):
        told = safe_text(Exception(f"{start} - {known} Not Found: CANARY\nDebug source: CANARY"))
        assert known in told
        assert "CANARY" not in told
        assert "hidden" not in told
    assert safe_text(ValueError("CANARY")) == "ValueError"


@pytest.mark.parametrize("url", ["http://169.254.169.254/latest", "http://[64:ff9b::a9fe:a9fe]"])
def test_metadata_addresses_are_refused_without_a_connection(url: str) -> None:
    assert "must not call" in faults(**{"store.url": url})["store.url"]
    with pytest.raises(ObjectStoreError, match="must not call"):
        place_of("s3://b/x", {"store.url": url}).store()


def test_hosts_are_checked_when_a_store_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    with running_api(lambda _: Reply(SECRET)) as api:
        name = api.url.replace("127.0.0.1", "localhost")
        monkeypatch.setenv(HOSTS_VARIABLE, "10.0.0.0/8")
        with pytest.raises(ObjectStoreError, match="not a host that connectors may call"):
            place_of("s3://b/x", {"store.url": name, **LOGIN}).store()
        delta = {"table.uri": "s3://b/t", "store.url": name, **LOGIN}
        raw = {"name": "a", "connector.class": "DeltaSink", "topics": "orders", **delta}
        found = {each.field: each.description for each in parse_config(DeltaSink, raw).violations}
        assert "not a host that connectors may call" in found["table.uri"]
        assert not api.requests


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("s3://b/x", "s3.eu-west-1.amazonaws.com"),
        ("gs://b/x", "storage.googleapis.com"),
        ("az://c/x", "own.blob.core.windows.net"),
    ],
)
def test_a_providers_address_needs_to_be_listed(
    url: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "drover.policy.egress._resolved", lambda host, port, flags=0: ["93.184.216.34"]
    )
    config = {**LOGIN, "azblob.account.name": "own", "azblob.account.key": Password("YQ==")}
    monkeypatch.setenv(HOSTS_VARIABLE, "other.example")
    with pytest.raises(ObjectStoreError, match=rf"{host}:443 is not a host"):
        place_of(url, config).store()


def test_addresses_in_a_login_of_google_are_checked() -> None:
    login = json.dumps({"type": "service_account", "gcs_base_url": "http://169.254.169.254/"})
    place = ObjectPlace("gs://b/x", (("service_account_key", login),))
    with pytest.raises(ObjectStoreError, match="must not call"):
        place.store()


def test_a_table_that_became_a_link_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    monkeypatch.setenv(ROOTS_VARIABLE, str(root))
    (root / "orders").symlink_to(tmp_path / "outside")
    raw = {
        "name": "a",
        "connector.class": "DeltaSink",
        "topics": "orders",
        "table.uri": f"{root}/${{topic}}",
    }
    settings = settings_of(DeltaSink.config_def().parse(raw).values)
    with pytest.raises((TableError, PermissionError), match="leads out of the allowed"):
        list(DeltaWriter("a", settings)([orders(0, 3)]))
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize(("status", "told"), [(200, "Got invalid: list"), (403, "code: 403")])
def test_the_response_of_a_tables_store_is_not_told(status: int, told: str) -> None:
    config = {
        "name": "a",
        "connector.class": "DeltaSink",
        "topics": "orders",
        "table.uri": "s3://b/t",
        **LOGIN,
        "aws.secret.access.key": "hidden",
    }
    with running_api(lambda _: Reply(SECRET, status)) as api:
        values = DeltaSink.config_def().parse({**config, "store.url": api.url}).values
        with pytest.raises(TableError if status == 403 else RetriableError, match=told) as caught:
            list(DeltaWriter("a", settings_of(values))([orders(0, 3)]))
    assert "CANARY" not in logged(caught.value)
