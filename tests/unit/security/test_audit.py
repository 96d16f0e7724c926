import json
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
import structlog

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.model.secrets import MASK
from drover.rpc import audit as audit_module
from drover.rpc.audit import UNKNOWN_LINES_MAX, AuditLog, summarize
from tests.support.waiting import wait_until_async


def tell(
    audit: AuditLog, request: pb.CreateConnectorRequest | None = None, *, known: bool = True
) -> bool:
    return audit.write(
        method="/drover.api.connect.v1.ConnectService/CreateConnector",
        principal="ann",
        peer="ipv4:127.0.0.1:1",
        request_id="r1",
        request=request,
        outcome="OK",
        reason="",
        known=known,
    )


def test_a_line_tells_who_what_and_how_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    audit = AuditLog(str(path))
    tell(audit, pb.CreateConnectorRequest(name="c"))
    line = json.loads(path.read_text())
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "principal": "ann",
        "call": "CreateConnector",
        "service": "drover.api.connect.v1.ConnectService",
        "request": {"name": "c"},
        "outcome": "OK",
        "peer": "ipv4:127.0.0.1:1",
        "request_id": "r1",
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.rename(tmp_path / "audit.log.1")
    tell(audit)
    assert len(path.read_text().splitlines()) == 1, "after rotation the log starts a new file"


def test_settings_are_named_and_their_values_are_not_told() -> None:
    request = pb.CreateConnectorRequest(
        name="c",
        config={"connector.class": "A", "topics": "t", "url": "x://u:hunter2@h", "password": "p"},
    )
    assert summarize(request) == {
        "name": "c",
        "config": {"connector.class": "A", "topics": "t", "url": MASK, "password": MASK},
    }


def test_what_is_long_is_cut_and_counted() -> None:
    request = pb.PatchConnectorConfigRequest(name="x" * 5_000, remove=["a", "b"])
    assert summarize(request) == {"name": "x" * 200 + "…", "remove": ["a", "b"]}
    offsets = pb.AlterConnectorOffsetsRequest(name="c")
    offsets.offsets.add(partition_json='{"token": "hunter2"}')
    assert summarize(offsets) == {"name": "c", "offsets": "1 entries"}


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\x85", "\n", "\r", "\x0b", "\x1e", "\u202e"])
def test_a_name_cannot_add_a_line(end: str, tmp_path: Path) -> None:
    name = f'a{end}{{"principal": "admin"}}'
    tell(AuditLog(str(tmp_path / "audit.log")), pb.CreateConnectorRequest(name=name))
    (line,) = (tmp_path / "audit.log").read_text().splitlines()
    assert end not in line
    assert json.loads(line)["request"]["name"] == name


def test_a_line_that_cannot_be_written_is_told_of_and_does_no_harm() -> None:
    audit = AuditLog("/dev/full")
    with structlog.testing.capture_logs() as events:
        assert not tell(audit)
        assert not tell(audit)
    assert {event["event"] for event in events} == {"a line of the audit log cannot be written"}
    assert "No space left" in events[0]["why"]


async def test_lines_about_unknown_callers_are_limited_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_module, "UNKNOWN_COUNT_EVERY_S", 0.01)
    monkeypatch.setattr(audit_module, "time", SimpleNamespace(monotonic=lambda: 7.5))
    audit = AuditLog(str(tmp_path / "audit.log"))
    for _ in range(100):
        assert tell(audit, known=False)
    assert tell(audit)

    def lines() -> list[dict[str, object]]:
        return [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]

    assert len(lines()) == UNKNOWN_LINES_MAX + 1
    await wait_until_async(lambda: len(lines()) == UNKNOWN_LINES_MAX + 2)
    assert lines()[-1]["left_out_calls_of_unknown_callers"] == 100 - UNKNOWN_LINES_MAX


def test_stdout_is_a_place_too(capsys: pytest.CaptureFixture[str]) -> None:
    tell(AuditLog("stdout"))
    assert json.loads(capsys.readouterr().out)["principal"] == "ann"
