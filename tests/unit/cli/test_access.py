"""How commands connect to a cluster over TLS, and which error they print if they cannot."""

import json
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.api.connect.v1 import connect_service_pb2_grpc as pb_grpc
from drover.local.state import DEFAULT_DIRECTORY, ClusterState, ProcessState, write_state
from drover.rpc.security import Security
from drover.security.certificates import TlsFiles, renewed_certificate
from drover.security.development_ca import Authority
from tests.support.certificates import DAY, files_of, init_certificates, issue
from tests.support.fake_cluster import FakeCluster, Run


@pytest.fixture
def certs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    init_certificates(tmp_path / "certs")
    return tmp_path / "certs"


class Server:
    """A fake worker that commands reach over TLS."""

    def __init__(self, files: TlsFiles, *, client_certificates: bool = True) -> None:
        fake = FakeCluster()  # type: ignore[abstract]  # its RPCs come from __getattribute__
        fake.answers["ListConnectors"] = pb.ListConnectorsResponse()
        self.seen: list[str] = []
        self.server = grpc.server(
            ThreadPoolExecutor(max_workers=2), interceptors=[_SeesTokens(self.seen)]
        )
        pb_grpc.add_ConnectServiceServicer_to_server(fake, self.server)
        credentials = Security(renewed_certificate(files)).server_credentials(
            client_certificates=client_certificates
        )
        assert credentials is not None
        self.address = f"127.0.0.1:{self.server.add_secure_port('127.0.0.1:0', credentials)}"
        self.server.start()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop(None).wait()


class _SeesTokens(grpc.ServerInterceptor):
    def __init__(self, seen: list[str]) -> None:
        self._seen = seen

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        self._seen += [v for k, v in details.invocation_metadata if k == "authorization"]
        return continuation(details)


@pytest.fixture
def server(certs: Path) -> Iterator[Server]:
    with Server(files_of(certs, "service")) as running:
        yield running


def options(files: TlsFiles) -> list[str]:
    return ["--tls-ca", files.ca, "--tls-cert", files.cert, "--tls-key", files.key]


def test_a_command_shows_the_certificate_that_it_is_given(
    certs: Path, server: Server, drover: Run
) -> None:
    admin = files_of(certs, "admin")
    assert drover(*options(admin), "connector", "list", "-a", server.address)[:2] == (
        *(0, "no connectors\n"),
    )


def test_a_context_is_used_until_it_is_removed(
    certs: Path, server: Server, drover: Run, tmp_path: Path
) -> None:
    files = ["--tls-ca", "certs/ca.pem", "--tls-cert", "certs/admin.pem"]
    files += ["--tls-key", "certs/admin-key.pem"]
    code, out, _ = drover("context", "add", "prod", "-a", server.address, *files)
    kept = tmp_path / "config/drover/contexts.yaml"
    assert (code, out) == (0, f"the current context is prod; it is stored in {kept}\n")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    assert drover("connector", "list")[:2] == (0, "no connectors\n")
    drover("context", "add", "other", "-a", "127.0.0.1:1")
    assert drover("connector", "list")[0] == 1
    assert drover("--context", "prod", "connector", "list")[0] == 0
    assert drover("context", "use", "prod")[1] == "the current context is prod\n"
    assert drover("connector", "list")[0] == 0
    assert [row["name"] for row in json.loads(drover("context", "list", "-o", "json")[1])] == [
        *("other", "prod"),
    ]
    assert drover("context", "remove", "prod")[1] == "removed prod\n"
    code, _, err = drover("connector", "list", "-a", server.address)
    assert (code, err.count("\n")) == (1, 1)
    assert "requires TLS; give --tls-ca" in err


def test_a_token_goes_with_each_call_and_is_not_shown(
    certs: Path, drover: Run, tmp_path: Path
) -> None:
    with Server(files_of(certs, "service"), client_certificates=False) as server:
        ca = ["--tls-ca", str(certs / "ca.pem")]
        assert drover(*ca, "--token", "t1", "connector", "list", "-a", server.address)[0] == 0
        drover("context", "add", "ci", "-a", server.address, *ca, "--token", "hunter2")
        assert drover("connector", "list")[0] == 0
        assert server.seen == ["Bearer t1", "Bearer hunter2"]
        assert "hunter2" not in drover("context", "list")[1]
        assert "token" in drover("context", "list")[1]


def test_the_cluster_that_runs_here_is_used_as_its_admin(
    certs: Path, server: Server, drover: Run, tmp_path: Path
) -> None:
    directory = tmp_path / DEFAULT_DIRECTORY
    directory.mkdir(parents=True)
    processes = {"worker-1": ProcessState(1, server.address, "log")}
    write_state(directory, ClusterState(1, 1.0, processes, str(certs)))
    assert drover("connector", "list")[:2] == (0, "no connectors\n")


def fault_of(drover: Run, files: TlsFiles, address: str) -> str:
    code, out, err = drover(*options(files), "connector", "list", "-a", address)
    assert (code, out, err.count("\n")) == (1, "", 1)
    return err.removeprefix("drover: ").rstrip("\n")


def test_one_line_says_what_a_server_has_against_a_client(
    certs: Path, server: Server, drover: Run, tmp_path: Path
) -> None:
    code, _, err = drover(
        "--tls-ca", str(certs / "ca.pem"), "connector", "list", "-a", server.address
    )
    where = f"the worker at {server.address}"
    assert (code, err) == (
        *(1, f"drover: {where} requires a client certificate; give --tls-cert and --tls-key\n"),
    )
    authority = Authority.read(certs)
    foreign = issue(tmp_path / "foreign", Authority.make(), trusted=authority)
    assert fault_of(drover, foreign, server.address).startswith(
        f"{where} does not accept your certificate: another CA signed it"
    )
    expired = issue(tmp_path / "expired", authority, begins=-2 * DAY, ends=-DAY)
    assert "cert.pem expired on" in fault_of(drover, expired, server.address)


def test_one_line_says_what_a_client_has_against_a_server(
    certs: Path, drover: Run, tmp_path: Path
) -> None:
    authority = Authority.read(certs)
    admin = files_of(certs, "admin")
    elsewhere = issue(tmp_path / "elsewhere", authority, hosts=("a.example.com",))
    with Server(elsewhere) as server:
        said = fault_of(drover, admin, server.address)
        assert "presents a certificate for drover-admin, a.example.com, not for 127.0.0.1; " in said
    with Server(issue(tmp_path / "foreign", Authority.make())) as server:
        said = fault_of(drover, admin, server.address)
        assert f"presents a certificate that no CA in {admin.ca} signed" in said


def test_a_plaintext_server_is_told_from_one_that_is_away(
    certs: Path, cluster: FakeCluster, drover: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.answers["ListConnectors"] = pb.ListConnectorsResponse()
    assert drover("connector", "list")[0] == 0
    admin = files_of(certs, "admin")
    code, _, err = drover(*options(admin), "connector", "list")
    assert code == 1
    assert "fails the TLS handshake" in err
    monkeypatch.delenv("DROVER_ADDRESS")
    code, _, err = drover(*options(admin), "connector", "list", "-a", "127.0.0.1:1")
    assert err == (
        "drover: no worker answers at 127.0.0.1:1; `drover up` starts a cluster here; "
        "for another cluster set DROVER_ADDRESS, --address or --dir\n"
    )


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (["--token", "x"], "--token needs TLS: give the cluster's CA by --tls-ca"),
        (["--tls-cert", "x"], "--tls-cert and --tls-key need each other: give both"),
        (["--tls-cert", "x", "--tls-key", "y"], "--tls-cert needs TLS"),
        (["--tls-ca", "/nowhere"], "/nowhere cannot be read: No such file or directory"),
        (
            ["--context", "x"],
            "there is no context 'x': `drover context add` makes one; known: none",
        ),
    ],
)
def test_what_cannot_be_used_is_one_line(drover: Run, given: list[str], fault: str) -> None:
    code, out, err = drover(*given, "connector", "list")
    assert code != 0
    assert (out, err.count("\n")) == ("", 1)
    assert fault in err


@pytest.mark.parametrize("text", ["{", "3", "current: 3\nnothing: 4", "contexts: {a: {b: c}}"])
def test_a_broken_file_of_contexts_is_named_and_stops_only_what_needs_it(
    drover: Run, tmp_path: Path, text: str
) -> None:
    path = tmp_path / "config/drover/contexts.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    code, _, err = drover("connector", "list")
    assert (code, err.count("\n")) == (1, 1)
    assert str(path) in err
    assert drover("version")[0] == 0


def test_a_context_of_files_that_cannot_be_used_is_not_added(
    drover: Run, certs: Path, tmp_path: Path
) -> None:
    code, _, err = drover("context", "add", "x", "-a", "a:1", "--tls-ca", "/nowhere")
    assert (code, "/nowhere cannot be read" in err) == (1, True)
    assert drover("context", "add", "a b", "-a", "a:1")[0] == 2
    assert drover("context", "list")[1] == "no contexts\n"


def test_certificates_are_made_once_and_renewed_on_demand(
    drover: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = drover("certs", "init", "c", "--host", "w.example.com", "--days", "30")
    assert code == 0
    assert "made service.pem, admin.pem, operator.pem, viewer.pem, gateway.pem in c, valid" in out
    access = yaml.safe_load((tmp_path / "c/access.yaml").read_text())
    assert {grant["role"] for grant in access["grants"]} == {
        *("internal", "admin", "operator", "viewer"),
    }
    assert drover("certs", "init", "c")[0] == 1
    assert drover("certs", "init", "c", "--renew")[0] == 0
    assert drover("certs", "init", "/proc/x")[0] == 1
    code, _, err = drover("up", "--certs", "nowhere", "--dir", "d")
    assert (code, "`drover certs init nowhere` makes them" in err) == (1, True)
