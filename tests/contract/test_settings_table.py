"""deploy/README.md has every setting of every service, with its default."""

import os
import re

import pytest

from drover.rpc.settings import ENV_PREFIX, ProcessSettings
from drover_config_store.settings import ConfigStoreSettings
from drover_coordinator.settings import CoordinatorSettings
from drover_gateway.settings import GatewaySettings
from drover_status_store.settings import StatusStoreSettings
from drover_worker.settings import WorkerSettings
from tests.support.repository import REPOSITORY

SETTINGS: list[type[ProcessSettings]] = [
    ConfigStoreSettings,
    CoordinatorSettings,
    GatewaySettings,
    StatusStoreSettings,
    WorkerSettings,
]
ROW = re.compile(r"^\| (?P<names>(?:`DROVER_\w+`(?:, )?)+) \| (?P<defaults>[^|]*) \|", re.M)


def told() -> dict[str, str]:
    """The table's defaults, by variable."""
    text = (REPOSITORY / "deploy/README.md").read_text(encoding="utf-8")
    defaults: dict[str, str] = {}
    for row in ROW.finditer(text):
        names = re.findall(r"`(\w+)`", row["names"])
        values = row["defaults"].split(", ") if len(names) > 1 else [row["defaults"]]
        defaults.update(zip(names, values, strict=True))
    return defaults


@pytest.mark.parametrize("settings", SETTINGS)
def test_every_setting_stands_there_with_its_default(settings: type[ProcessSettings]) -> None:
    table = told()
    for name, field in settings.model_fields.items():
        variable = ENV_PREFIX + name.upper()
        assert variable in table, variable
        default = field.get_default(call_default_factory=True)
        if default is None:  # it depends, or there is no text for it
            assert table[variable] in (
                "listen address",
                "by listen address",
                "most hosts",
                "by topic",
                "user's cache folder",
                "user's data folder",
                "by access file",
            ), variable
        else:
            assert table[variable] == (f"`{default}`" if default != "" else "none"), variable


def test_the_table_tells_of_no_setting_that_is_gone() -> None:
    known = {ENV_PREFIX + name.upper() for each in SETTINGS for name in each.model_fields}
    assert set(told()) == known


@pytest.mark.parametrize("settings", SETTINGS)
def test_every_process_accepts_the_settings_of_three_machines(
    settings: type[ProcessSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (REPOSITORY / "docs/machines.md").read_text(encoding="utf-8")
    given = dict(re.findall(r"^(DROVER_\w+)=(.*)$", page, re.M))
    assert len(given) > 15
    for name in given.keys() | {name for name in os.environ if name.startswith(ENV_PREFIX)}:
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value.strip("'"))
    settings()
    known = {ENV_PREFIX + name.upper() for each in SETTINGS for name in each.model_fields}
    assert given.keys() <= known
