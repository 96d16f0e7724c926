"""``drover migrate`` against a scripted Kafka Connect and, where named, a scripted cluster."""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

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
    old: Api, script: ScriptedConnect, drover: Run
) -> None:
    script.add("red\x1b[31m", SOURCE, task_traces=("E: \x1b]0;title\x07",))
    script.replies["/connector-plugins"] = [Reply({}, 404)]
    _, out, err = drover("migrate", old.url)
    assert "\x1b" not in out + err
