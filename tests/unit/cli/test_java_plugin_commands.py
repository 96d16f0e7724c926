"""``drover plugin add``, ``list --local``, ``upgrade`` and ``remove``: no cluster is called."""

import json
import zipfile
from pathlib import Path

import pytest

from drover.api.connect.v1 import connect_service_pb2 as pb
from tests.support.compiled_plugins import compiled, jar, require_mvn, source_code
from tests.support.fake_cluster import FakeCluster, Run
from tests.support.repository import REPOSITORY


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    code = {"org.acme.Orders": source_code("Orders", version="7.1")}
    return compiled(tmp_path_factory.mktemp("commands"), code)


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("DROVER_PLUGIN_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DROVER_PLUGIN_PATH", raising=False)
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
    assert [each.name for each in home.iterdir()] == [".scanned"], "only the kept results"


def test_the_commands_of_the_readme_bring_a_connector(
    cluster: FakeCluster, home: Path, drover: Run
) -> None:
    """The plugin comes from Maven; `reload` calls a cluster."""
    require_mvn()
    cluster.answers["ListPlugins"] = pb.ListPluginsResponse(worker_ids=["w:1"])
    cluster.answers["ReloadPlugins"] = pb.ReloadPluginsResponse(worker_id="w:1")
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    section = text.partition("## Bring your connectors")[2].partition("```console")[2]
    lines = section.partition("```")[0].split("\n")
    commands = [each.removeprefix("$ drover ") for each in lines if each.startswith("$ ")]
    assert len(commands) == 3
    results = [drover(*each.split()) for each in commands]
    assert [code for code, *_ in results] == [0, 0, 0], results
    assert "installed connect-file@4.3.1" in results[0][1]
    assert "org.apache.kafka.connect.file.FileStreamSourceConnector" in results[1][1]
    names = sorted(each.name for each in (home / "connect-file@4.3.1" / "jars").iterdir())
    assert names == ["connect-file-4.3.1.jar"]  # without Kafka's own jars
    assert cluster.requests[-1].worker_id == "w:1"


@pytest.mark.parametrize(
    ("mvn", "message"),
    [
        (None, "no mvn in PATH to fetch org.acme:acme:1 with: install Maven"),
        (
            "echo '[ERROR] Could not find artifact org.acme:acme:jar:1' && exit 1",
            "mvn could not fetch org.acme:acme:1: Could not find artifact org.acme:acme:jar:1",
        ),
        ("exit 0", "mvn could not fetch org.acme:acme:1: it copied no file"),
    ],
)
def test_an_artifact_that_cannot_be_fetched_is_refused_with_the_reason(
    tmp_path: Path,
    home: Path,
    drover: Run,
    monkeypatch: pytest.MonkeyPatch,
    mvn: str | None,
    message: str,
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    if mvn is not None:
        (folder / "mvn").write_text(f"#!/bin/sh\n{mvn}\n")
        (folder / "mvn").chmod(0o700)
    monkeypatch.setenv("PATH", str(folder))
    code, _, error = drover("plugin", "add", "org.acme:acme:1")
    assert code == 1
    assert message in " ".join(error.split())
    assert [each.name for each in home.iterdir()] == [".lock"]
