"""How an operator configures a coordinator's peers."""

import pytest

from drover.errors import InvalidArgumentError
from drover.rpc.settings import load_settings, split_addresses
from drover_coordinator.settings import CoordinatorSettings


@pytest.fixture(autouse=True)
def _networks_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DROVER_ALLOW_PLAINTEXT", "true")


def violations(**settings: object) -> list[str]:
    with pytest.raises(InvalidArgumentError) as raised:
        load_settings(CoordinatorSettings, **settings)
    return [f"{each.field}: {each.description}" for each in raised.value.violations]


@pytest.mark.parametrize(
    "own",
    [
        {"coordinator_listen": "127.0.0.1:7401"},
        {"coordinator_listen": "0.0.0.0:7401", "coordinator_advertised": "127.0.0.1:7401"},
    ],
)
def test_the_own_address_is_the_advertised_one_or_else_the_listening_one(
    own: dict[str, str],
) -> None:
    settings = load_settings(
        CoordinatorSettings, coordinators="127.0.0.1:7401, 127.0.0.1:7404", **own
    )
    assert split_addresses(settings.coordinators) == ["127.0.0.1:7401", "127.0.0.1:7404"]


def test_a_list_without_the_own_address_is_refused() -> None:
    [fault] = violations(coordinators="b:1,c:2", coordinator_listen="a:1")
    assert "must include this coordinator's own address, a:1" in fault


@pytest.mark.parametrize("text", ["a:1,b", "a:1,b:0", ",", "a:1,http://b:2"])
def test_what_is_no_list_of_addresses_is_refused(text: str) -> None:
    [fault] = violations(coordinators=text, coordinator_listen="a:1")
    assert fault.startswith("DROVER_COORDINATORS: ")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("coordinator_lease_ms", 299),
        ("coordinator_lease_ms", 60_001),
        ("group_shards", 0),
        ("group_shards", 257),
    ],
)
def test_numbers_out_of_range_are_refused(name: str, value: int) -> None:
    [fault] = violations(**{name: value})
    assert fault.startswith(f"DROVER_{name.upper()}: ")
