"""The environment of an engine: the policies of files and hosts, and no proxies."""

from pathlib import Path

import pytest

from drover.log.storage import EmbeddedStorage
from drover_worker.engine.settings import EngineSettings
from drover_worker.shell.engine_child import EngineChild


def test_an_engine_has_the_policies_and_no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTPS_PROXY", "ALL_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "http://proxy:3128")
    monkeypatch.setenv("DROVER_ALLOWED_HOSTS", "inherited")
    settings = EngineSettings(
        storage=EmbeddedStorage(Path("/nowhere")),
        file_roots="",
        denied_files=("/keys/a.pem",),
        allowed_hosts="api.example.com",
    )
    child = EngineChild(settings, on_report=lambda _: None, on_log_line=lambda _: None)
    found = child._environment()
    assert not {name for name in found if name.lower().endswith("_proxy")}
    assert found["DROVER_ALLOWED_HOSTS"] == "api.example.com"
    assert found["DROVER_FILE_ROOTS"] == ","
    assert found["DROVER_DENIED_FILES"] == '["/keys/a.pem"]'
