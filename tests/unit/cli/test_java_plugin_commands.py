"""``drover plugin add``, ``list --local``, ``upgrade`` and ``remove``: no cluster is called."""

import json
import zipfile
from pathlib import Path

import pytest

from tests.support.compiled_plugins import compiled, jar, source_code
from tests.support.fake_cluster import Run


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    code = {"org.acme.Orders": source_code("Orders", version="7.1")}
    return compiled(tmp_path_factory.mktemp("commands"), code)


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("DROVER_PLUGIN_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DROVER_PLUGIN_PATH", raising=False)
    monkeypatch.setenv("DROVER_ADDRESS", "127.0.0.1:1")
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path / "home"


def test_a_plugin_is_added_listed_upgraded_and_removed(
    classes: Path, tmp_path: Path, home: Path, drover: Run
) -> None:
    old = jar(tmp_path / "acme-orders-1.0.jar", classes)
    new = jar(tmp_path / "acme-orders-2.0.jar", classes)
    assert drover("plugin", "list", "--local")[1] == "no Java plugins\n"
    code, out, _ = drover("plugin", "add", str(old))
    assert (code, out.splitlines()) == (
        0,
        [
            "installed acme-orders@1.0",
            "  source org.acme.Orders",
            "`drover plugin reload` makes running workers use it",
        ],
    )
    assert "acme-orders@1.0 is installed: nothing changed" in drover("plugin", "add", str(old))[1]
    header, row = drover("plugin", "list", "--local")[1].splitlines()
    assert header.split() == ["CLASS", "TYPE", "VERSION", "PLUGIN", "NEEDS", "KAFKA", "PATH"]
    path = str(home / "acme-orders@1.0" / "jars")
    assert row.split() == ["org.acme.Orders", "source", "7.1", "acme-orders@1.0", "no", path]
    out = drover("plugin", "upgrade", str(new))[1]
    assert out.startswith("installed acme-orders@2.0 instead of acme-orders@1.0\n")
    (document,) = json.loads(drover("plugin", "list", "--local", "-o", "json")[1])
    assert (document["plugin"], document["source"]) == ("acme-orders@2.0", str(new))
    assert len(document["jars"][0]["sha256"]) == 64
    assert drover("plugin", "remove", "acme-orders")[:2] == (
        0,
        "removed acme-orders@2.0; `drover plugin reload` makes workers notice it\n",
    )
    assert drover("plugin", "list", "--local")[1] == "no Java plugins\n"


def test_what_is_refused_ends_with_the_reason(tmp_path: Path, home: Path, drover: Run) -> None:
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as archive:
        archive.writestr("../evil.jar", "text")
    code, out, error = drover("plugin", "add", str(tmp_path / "evil.zip"))
    assert (code, out) == (1, "")
    assert "has a path that leaves its folder: '../evil.jar'" in error
    assert drover("plugin", "remove", "none")[0] == 1


def test_folders_of_a_plugin_path_are_listed_with_their_problems(
    classes: Path,
    tmp_path: Path,
    home: Path,
    drover: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "plugins"
    jar(folder / "acme" / "acme.jar", classes)
    (folder / "broken.jar").write_text("text")
    monkeypatch.setenv("DROVER_PLUGIN_PATH", f"{folder}, {tmp_path / 'none'}")
    code, out, error = drover("plugin", "list", "--local")
    assert code == 0
    assert out.splitlines()[1].split()[0] == "org.acme.Orders"
    assert "broken.jar is no zip archive" in error
    assert "none in DROVER_PLUGIN_PATH cannot be read" in error
    assert not home.exists()
