"""``drover migrate`` against a scripted Kafka Connect and, where named, a scripted cluster."""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.errors import NotFoundError, Reason
from tests.support.fake_cluster import FakeCluster, Run
from tests.support.http_api import Api, Reply
from tests.support.kafka_connect_api import FILE_SOURCE, ScriptedConnect, scripted_connect
from tests.unit.migrate.test_checks import SINK, SOURCE, WORKER


@pytest.fixture
def script() -> ScriptedConnect:
    found = ScriptedConnect()
    found.add("in", SOURCE)
    found.add("out", SINK, kind="sink")
    return found


@pytest.fixture
def old(script: ScriptedConnect, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Api]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("DROVER_ADDRESS", raising=False)
    # a cluster of this machine must not validate
    monkeypatch.setattr("drover.cli.cluster_choice.DEFAULT_WORKER_ADDRESS", "127.0.0.1:1")
    with scripted_connect(script) as api:
        yield api


def test_the_table_has_a_row_for_each_connector(old: Api, drover: Run) -> None:
    code, out, err = drover("migrate", old.url)
    assert (code, err) == (0, "")
    assert "FileStreamSource" in out
    assert "2 connectors: 2 unchanged; checked by the library" in out


def test_a_connector_that_drover_lacks_is_exit_code_1(
    old: Api, script: ScriptedConnect, drover: Run
) -> None:
    script.add("own", {"connector.class": "com.example.Own"})
    code, out, _ = drover("migrate", old.url, "-o", "json")
    document = json.loads(out)
    assert code == 1
    assert document["counts"] == {
        "unchanged": 2,
        "differs": 0,
        "needs_java_host": 0,
        "missing": 1,
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ["http://127.0.0.1:1"],
        ["ftp://127.0.0.1"],
        ["http://user:pa55@127.0.0.1:1"],
        ["http://169.254.169.254"],
        ["{url}/elsewhere"],
        ["{url}", "--user", "a"],
        ["{url}", "--password-file", "{file}"],
        ["{url}", "--user", "a", "--password-file", "{file}", "--token-file", "{file}"],
        ["{url}", "--token-file", "nowhere"],
        ["{url}", "--worker-properties", "{file}"],
        ["{url}", "--ca", "{file}"],
        ["{url}", "--out", "a:b"],
        ["{url}", "--out", "full"],
        ["{url}", "--address", "127.0.0.1:1"],
    ],
)
def test_what_cannot_be_read_is_exit_code_2(
    arguments: list[str], old: Api, drover: Run, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("pa55\n")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    code, out, err = drover("migrate", *(each.format(url=old.url, file=file) for each in arguments))
    assert (code, out) == (2, "")
    assert err.startswith("drover: ")
    assert "pa55" not in err


def test_credentials_are_sent_and_never_printed(old: Api, drover: Run, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("pa55-word\n")
    arguments = ("--user", "me", "--password-file", "secret", "--out", "move")
    code, out, err = drover("migrate", old.url, *arguments)
    assert code == 0
    assert {each.headers["authorization"] for each in old.requests} == {"Basic bWU6cGE1NS13b3Jk"}
    drover("migrate", old.url, "--token-file", "secret")
    assert old.requests[-1].headers["authorization"] == "Bearer pa55-word"
    texts = [each.read_text() for each in (tmp_path / "move").rglob("*") if each.is_file()]
    assert not [each for each in (*texts, out, err) if "pa55" in each]


def test_all_files_of_the_move_are_written(
    old: Api, script: ScriptedConnect, drover: Run, tmp_path: Path
) -> None:
    script.add("a/b", {**SOURCE, "x.password": "pa55-word"})
    (tmp_path / "worker.properties").write_text(WORKER)
    arguments = ("--worker-properties", "worker.properties", "--out", "move", "-o", "json")
    code, out, _ = drover("migrate", old.url, *arguments)
    assert code == 0
    move = tmp_path / "move"
    written = {str(each.relative_to(move)) for each in move.rglob("*") if each.is_file()}
    assert written == {
        *("report.json", "report.md", "to-drover.sh", "back.sh", "same-topics.sh"),
        *("same-topics-back.sh", "secrets.properties"),
        *("connectors/in.yaml", "connectors/out.yaml", "connectors/a%2Fb.yaml"),
    }
    assert json.loads((move / "report.json").read_text()) == json.loads(out)
    assert set(json.loads(out)["files"]) == written
    assert "pa55" not in "".join(each.read_text() for each in move.rglob("*") if each.is_file())
    modes = {stat.S_IMODE(each.stat().st_mode) for each in (move, *move.rglob("*"))}
    assert modes == {0o700, 0o600}


def test_a_repeated_report_keeps_the_secrets(
    old: Api, script: ScriptedConnect, drover: Run, tmp_path: Path
) -> None:
    script.add("db", {**SOURCE, "x.password": "pa55-word"})
    assert drover("migrate", old.url, "--out", "move")[0] == 0
    secrets = tmp_path / "move" / "secrets.properties"
    secrets.write_text("db.x.password=mine\n")
    assert drover("migrate", old.url, "--out", "move")[0] == 0
    assert secrets.read_text() == "db.x.password=mine\n"
    (tmp_path / "move" / "done").mkdir()
    (tmp_path / "move" / "done" / "db").touch()
    code, _, err = drover("migrate", old.url, "--out", "move")
    assert (code, "were moved" in err) == (2, True)


def test_the_target_cluster_validates(
    cluster: FakeCluster, script: ScriptedConnect, drover: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = os.environ["DROVER_ADDRESS"]
    cluster.answers["ListPlugins"] = pb.ListPluginsResponse(
        plugins=[
            pb.Plugin(
                class_name="drover.x.FileStreamSource",
                aliases=[FILE_SOURCE],
                guarantee_kafka=pb.GUARANTEE_EXACTLY_ONCE,
            )
        ]
    )
    cluster.answers["ListConnectors"] = pb.ListConnectorsResponse(
        connectors=[pb.ListConnectorsResponse.Entry(name="in")]
    )
    valid = pb.ValidateConfigResponse(
        values=[pb.ConfigValue(key=pb.ConfigKey(name="file"), warnings=["is odd"])]
    )
    missing = NotFoundError(Reason.PLUGIN_NOT_FOUND, "no connector is installed")
    cluster.answers["ValidateConfig"] = [valid, missing]
    del script.connectors["out"]
    with scripted_connect(script) as api:
        arguments = ("migrate", api.url, "--address", address, "-o", "json")
        code, out, _ = drover(*arguments)
        document = json.loads(out)
        (found,) = document["connectors"]
        assert (code, document["checked_by"]) == (0, {"kind": "cluster", "address": address})
        assert [each["kind"] for each in found["differences"]] == ["warning", "name"]
        after = found["delivery"]["after"]
        assert (found["runs_as"], after) == ("FileStreamSource", "exactly once")
        code, out, _ = drover(*arguments)
    assert (code, json.loads(out)["connectors"][0]["verdict"]) == (1, "needs_java_host")


def test_text_of_the_server_does_not_control_the_terminal(
    old: Api, script: ScriptedConnect, drover: Run, tmp_path: Path
) -> None:
    script.add("red\x1b[31m", SOURCE, task_traces=("E: \x1b]0;title\x07 \x9b31m",))
    script.add("two\nlines \u202e", {**SOURCE, "\x9b": "\x1b[2J"}, topics=("\x1b",))
    script.replies["/connector-plugins"] = [Reply({}, 404)]
    script.replies["/"] = [Reply({"version": "4\x9b2J\x1b[2J", "kafka_cluster_id": "\x07"})]
    printed = []
    for output in ("table", "json", "yaml"):
        code, out, err = drover("migrate", old.url, "-o", output, "--out", output)
        assert code == 0
        printed += [out, err]
    written = [each.read_text() for each in tmp_path.rglob("*") if each.is_file()]
    for text in printed + written:
        assert text.replace("\n", "").isprintable()
    assert {each.name for each in (tmp_path / "json" / "connectors").iterdir()} == {
        *("in.yaml", "out.yaml", "red%1B%5B31m.yaml", "two%0Alines%20%E2%80%AE.yaml")
    }


def _tree(directory: Path) -> dict[str, str]:
    return {
        str(each.relative_to(directory)): each.read_text()
        for each in directory.rglob("*")
        if each.is_file() and not each.is_symlink()
    }


@pytest.mark.parametrize(
    "name",
    [
        *("../../evil", "/etc/cron.d/evil", "..", ".", "a/../../b", "~root", "-rf", "*", "a\\b"),
        *("x" * 5_000, "con", "$(touch evil)", "`touch evil`", "a;touch evil", "'; touch evil '"),
        *('"; touch evil; "', "a\ntouch evil\n", "a\r", "a\x00b", "${IFS}", "%2e%2e%2fevil"),
    ],
)
def test_a_name_changes_nothing_outside_of_the_directory(
    name: str, old: Api, script: ScriptedConnect, drover: Run, tmp_path: Path
) -> None:
    script.add(name, SOURCE)
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    code, out, err = drover("migrate", old.url, "--out", str(inner / "move"))
    assert (code, err) == (0, "")
    (found,) = [each for each in _document(inner / "move")["connectors"] if each["name"] == name]
    outside = [each for each in tmp_path.rglob("*") if inner / "move" not in each.parents]
    assert sorted(outside) == [tmp_path / "a", inner, inner / "move"]
    assert len(list((inner / "move" / "connectors").iterdir())) == 3
    assert (inner / "move" / found["definition"]).is_file()
    for script_name in ("to-drover.sh", "back.sh"):
        calls = [
            line
            for line in (inner / "move" / script_name).read_text().splitlines()
            if line.startswith(("move ", "give_back "))
        ]
        assert len(calls) == 2 + found["can_move"]
    assert out.replace("\n", "").isprintable()


def _document(move: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((move / "report.json").read_text())
    return found


def test_links_in_the_directory_are_not_followed(
    old: Api, script: ScriptedConnect, drover: Run, tmp_path: Path
) -> None:
    script.add("db", {**SOURCE, "x.password": "pa55-word"})
    assert drover("migrate", old.url, "--out", "move")[0] == 0
    precious = tmp_path / "precious"
    precious.write_text("mine")
    move = tmp_path / "move"
    names = ("connectors/in.yaml", "to-drover.sh", "report.md", "report.json")
    for name in names:
        (move / name).unlink()
        (move / name).symlink_to(precious)
    (move / "secrets.properties").unlink()
    (move / "secrets.properties").symlink_to(tmp_path / "nowhere")
    assert drover("migrate", old.url, "--out", "move")[0] == 0
    assert precious.read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()
    assert not [each for each in move.rglob("*") if each.is_symlink()]


def test_a_link_in_place_of_the_definitions_is_refused(
    old: Api, drover: Run, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir(mode=0o755)
    (tmp_path / "move").mkdir()
    (tmp_path / "move" / "report.json").write_text("{}")
    (tmp_path / "move" / "connectors").symlink_to(tmp_path / "other")
    code, _, err = drover("migrate", old.url, "--out", "move")
    assert (code, "is a link" in err) == (2, True)
    assert list((tmp_path / "other").iterdir()) == []
    assert stat.S_IMODE((tmp_path / "other").stat().st_mode) == 0o755


@pytest.mark.parametrize("name", ["connectors/in.yaml", "report.md", "back.sh"])
def test_a_directory_in_place_of_a_file_is_an_error(
    name: str, old: Api, drover: Run, tmp_path: Path
) -> None:
    assert drover("migrate", old.url, "--out", "move")[0] == 0
    (tmp_path / "move" / name).unlink()
    (tmp_path / "move" / name).mkdir()
    code, _, err = drover("migrate", old.url, "--out", "move")
    assert (code, "cannot write" in err) == (2, True)
    assert not list((tmp_path / "move").rglob(".new-*"))


def test_a_directory_with_files_of_an_earlier_move_is_refused_unchanged(
    old: Api, drover: Run, tmp_path: Path
) -> None:
    assert drover("migrate", old.url, "--out", "move")[0] == 0
    for name in ("created", "done", "returned"):
        mark = tmp_path / "move" / name / "in"
        mark.parent.mkdir()
        mark.touch()
        before = _tree(tmp_path)
        code, _, err = drover("migrate", old.url, "--out", "move")
        assert (code, "were moved" in err) == (2, True)
        assert _tree(tmp_path) == before
        mark.unlink()


def test_300_connectors_of_all_kinds_are_reported(
    old: Api, script: ScriptedConnect, drover: Run, tmp_path: Path
) -> None:
    for at in range(100):
        secret = {"db.password": f"pa55-{at}-word"}
        script.add(f"secret-{at}", {**SOURCE, **secret})
        script.add(f"unknown-{at}", {"connector.class": f"com.example.Unknown{at}", **secret})
        failed = (f"E: no login with pa55-{at}-word",) * 3
        script.add(f"failed-{at}", {**SINK, **secret}, kind="sink", task_traces=failed)
    code, out, _ = drover("migrate", old.url, "--out", "move")
    document = _document(tmp_path / "move")
    counts = {"unchanged": 2, "differs": 200, "needs_java_host": 0, "missing": 100}
    assert (code, document["counts"]) == (1, counts)
    assert len(document["files"]) == 302 + 5
    texts = [each.read_text() for each in (tmp_path / "move").rglob("*") if each.is_file()]
    assert len(texts) == 302 + 5
    assert not [each for each in (out, *texts) if "pa55" in each]


def test_a_connector_that_cannot_be_read_is_exit_code_1(
    old: Api, script: ScriptedConnect, drover: Run
) -> None:
    script.replies["/connectors"] = [Reply(["in", "out"])]
    script.replies["/connectors/in"] = [Reply({}, 401)]
    script.replies["/connectors/out"] = [Reply(script.connectors["out"]["info"])]
    code, out, _ = drover("migrate", old.url)
    assert code == 1
    assert "1 connectors: 1 unchanged; 1 more could not be read" in out
    assert "/connectors/in returned 401" in out
