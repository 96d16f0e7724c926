import socket

import pytest
from pydantic import Field

from drover.errors import InvalidArgumentError, Reason
from drover.rpc.settings import (
    AdvertisedAddress,
    JsonTexts,
    ListenAddress,
    PositiveMs,
    ServiceSettings,
    TargetAddress,
    load_settings,
    split_address,
)


class Settings(ServiceSettings):
    worker_advertised: AdvertisedAddress = "127.0.0.1:7411"
    coordinator_listen: ListenAddress = "127.0.0.1:7401"
    coordinator_address: TargetAddress = "127.0.0.1:7401"
    session_timeout_ms: PositiveMs = 10_000
    spark_conf: JsonTexts = Field(default_factory=dict)


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith("DROVER_"):
            monkeypatch.delenv(name)


def test_defaults() -> None:
    settings = load_settings(Settings)
    assert settings.storage_url == "sqlite:///var/drover"
    assert (settings.log_level, settings.log_format) == ("INFO", "json")


def test_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DROVER_SESSION_TIMEOUT_MS", "2500")
    monkeypatch.setenv("DROVER_LOG_LEVEL", "debug")
    monkeypatch.setenv("DROVER_SPARK_CONF", '{"spark.ui.enabled": "false"}')
    monkeypatch.setenv("DROVER_COORDINATOR_LISTEN", "")
    settings = load_settings(Settings)
    assert settings.session_timeout_ms == 2500
    assert settings.log_level == "DEBUG"
    assert settings.spark_conf == {"spark.ui.enabled": "false"}
    assert settings.coordinator_listen == "127.0.0.1:7401"


def test_an_advertised_address_may_have_the_machines_own_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DROVER_WORKER_ADVERTISED", "{hostname}.drover.internal:7411")
    address = load_settings(Settings).worker_advertised
    assert address == f"{socket.gethostname()}.drover.internal:7411"


def test_every_fault_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DROVER_SESSION_TIMEOUT_MS", "soon")
    monkeypatch.setenv("DROVER_LOG_FORMAT", "xml")
    monkeypatch.setenv("DROVER_COORDINATOR_LISTEN", "http://here")
    monkeypatch.setenv("DROVER_COORDINATOR_ADDRESS", "127.0.0.1:0")
    with pytest.raises(InvalidArgumentError) as caught:
        load_settings(Settings)
    assert caught.value.reason is Reason.INVALID_CONFIG
    texts = {v.field: v.description for v in caught.value.violations}
    assert set(texts) == {
        "DROVER_SESSION_TIMEOUT_MS",
        "DROVER_LOG_FORMAT",
        "DROVER_COORDINATOR_LISTEN",
        "DROVER_COORDINATOR_ADDRESS",
    }
    assert "'soon'" in texts["DROVER_SESSION_TIMEOUT_MS"]
    assert all("\n" not in text for text in texts.values())


@pytest.mark.parametrize("value", ["0", "-1", "86400001"])
def test_spans_have_bounds(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("DROVER_SESSION_TIMEOUT_MS", value)
    with pytest.raises(InvalidArgumentError, match="DROVER_SESSION_TIMEOUT_MS"):
        load_settings(Settings)


def test_json_that_cannot_be_parsed_is_told_with_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DROVER_SPARK_CONF", '{"spark.hadoop.secret": "hunter2",')
    monkeypatch.setenv("DROVER_SESSION_TIMEOUT_MS", "soon")
    with pytest.raises(InvalidArgumentError) as caught:
        load_settings(Settings)
    texts = {v.field: v.description for v in caught.value.violations}
    assert set(texts) == {"DROVER_SPARK_CONF", "DROVER_SESSION_TIMEOUT_MS"}
    assert texts["DROVER_SPARK_CONF"].startswith("must be a JSON object")
    assert "column" in texts["DROVER_SPARK_CONF"]
    assert "hunter2" not in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("value", ["3", "[]", '"text"', "null"])
def test_json_has_to_be_an_object(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("DROVER_SPARK_CONF", value)
    with pytest.raises(InvalidArgumentError, match="DROVER_SPARK_CONF: "):
        load_settings(Settings)


def test_a_fault_inside_json_names_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DROVER_SPARK_CONF", '{"spark.executor.cores": 2}')
    with pytest.raises(InvalidArgumentError) as caught:
        load_settings(Settings)
    (violation,) = caught.value.violations
    assert violation.field == "DROVER_SPARK_CONF"
    assert violation.description.startswith("spark.executor.cores: ")


def test_settings_cannot_be_changed() -> None:
    settings = load_settings(Settings)
    with pytest.raises(ValueError, match="frozen"):
        settings.log_level = "DEBUG"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:7401", ("127.0.0.1", 7401)),
        ("coordinator:1", ("coordinator", 1)),
        ("[::1]:65535", ("::1", 65535)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),
    ],
)
def test_addresses(address: str, expected: tuple[str, int]) -> None:
    assert split_address(address) == expected


@pytest.mark.parametrize(
    "address",
    [
        "",
        "host",
        ":7401",
        "host:",
        "host:x",
        "host:65536",
        "host:-1",
        "http://h:1",
        "::1:80",
        "a b:1",
    ],
)
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(ValueError):
        split_address(address)


@pytest.mark.parametrize("group_id", [" ", "\t", " orders"])
def test_a_group_that_the_kafka_client_would_change_is_refused(
    group_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DROVER_GROUP_ID", group_id)
    with pytest.raises(InvalidArgumentError) as refused:
        load_settings(ServiceSettings)
    assert [each.field for each in refused.value.violations] == ["DROVER_GROUP_ID"]
    monkeypatch.setenv("DROVER_GROUP_ID", "näme 😀")
    assert load_settings(ServiceSettings).group_id == "näme 😀"
