from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from drover.api.connect.v1 import connect_service_pb2_grpc as pb_grpc
from drover.api.coordinator.v1 import coordinator_service_pb2_grpc as group_grpc
from drover.cli.main import app
from tests.support.fake_cluster import FakeCluster, Run


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeCluster]:
    fake = FakeCluster()  # type: ignore[abstract]  # its RPCs come from __getattribute__
    server = grpc.server(ThreadPoolExecutor(max_workers=2))
    pb_grpc.add_ConnectServiceServicer_to_server(fake, server)
    group_grpc.add_CoordinatorServiceServicer_to_server(fake, server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DROVER_ADDRESS", address)
    monkeypatch.setenv("DROVER_COORDINATOR_ADDRESS", address)
    monkeypatch.setenv("COLUMNS", "200")
    yield fake
    server.stop(None).wait()


@pytest.fixture(autouse=True)
def _no_contexts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def drover(capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> Run:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = app(arguments)
        output = capsys.readouterr()
        # a failed test shows the message, which most tests do not compare
        request.node.add_report_section("call", f"stderr of drover {arguments}", output.err)
        assert "Traceback (most recent" not in output.out + output.err
        return code, output.out, output.err

    return run
