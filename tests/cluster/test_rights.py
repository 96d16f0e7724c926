"""Every RPC of the docker-compose.yml cluster requires authorization."""

import hashlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest

from drover.rpc.roles import ACCESS
from drover.security.certificates import Certificate, TlsFiles, read_certificate
from drover.security.development_ca import Authority, files_of
from drover.security.principal import Role
from tests.support.compose import WAIT_S, ComposeCluster
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.faults("cluster"), pytest.mark.timeout(3600)]

#: The service and port of each API.
DOORS: Mapping[str, tuple[str, int]] = {
    "drover.api.connect.v1.ConnectService": ("worker", 7411),
    "drover.api.coordinator.v1.CoordinatorService": ("coordinator", 7401),
    "drover.api.config_store.v1.ConfigStoreService": ("config-store", 7402),
    "drover.api.status_store.v1.StatusStoreService": ("status-store", 7403),
    "drover.api.worker.v1.WorkerService": ("worker", 7421),
}
DENIED = (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED)


@pytest.fixture(scope="module")
def stranger(cluster: ComposeCluster, tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """A certificate of the cluster's own authority for a name without any grant."""
    directory = tmp_path_factory.mktemp("stranger")
    cluster.copy_out("certs", "/authority", directory / "authority")
    now = datetime.now(UTC)
    cert, key = Authority.read(directory / "authority").issue(
        "stranger", hosts=(), begins=now - timedelta(hours=1), ends=now + timedelta(days=1)
    )
    files = TlsFiles(
        str(directory / "authority/ca.pem"), str(directory / "cert.pem"), str(directory / "key.pem")
    )
    Path(files.cert).write_bytes(cert)
    Path(files.key).write_bytes(key)
    return read_certificate(files)


@pytest.fixture(scope="module")
def viewer(cluster: ComposeCluster) -> Certificate:
    return read_certificate(files_of(cluster.certs, "viewer"))


def answers(
    cluster: ComposeCluster, own: Certificate | None, *, token: str = "", least: Role = Role.VIEWER
) -> Iterator[tuple[str, grpc.StatusCode]]:
    """The response of each RPC that requires a role to an empty request, sent from inside."""
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    ca = (cluster.certs / "ca.pem").read_bytes()
    key, cert = (own.key_pem, own.cert_pem) if own else (None, None)
    for api, rpcs in ACCESS.items():
        service, port = DOORS[api]
        address = f"{cluster.containers(service)[0].ip}:{port}"
        with grpc.secure_channel(
            address,
            grpc.ssl_channel_credentials(ca, key, cert),
            [("grpc.ssl_target_name_override", service)],
        ) as channel:
            for rpc in (name for name, access in rpcs.items() if access.role >= least):
                call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
                    f"/{api}/{rpc}"
                )
                with pytest.raises(grpc.RpcError) as refused:
                    call(b"", metadata=metadata, timeout=60)
                yield rpc, refused.value.code()


def test_no_rpc_is_for_whom_nobody_knows(cluster: ComposeCluster, stranger: Certificate) -> None:
    said = list(answers(cluster, stranger))
    assert len(said) == sum(len(rpcs) for rpcs in ACCESS.values())
    assert {rpc: code for rpc, code in said if code not in DENIED} == {}


def test_no_rpc_is_for_a_token_that_nobody_gave(
    cluster: ComposeCluster, viewer: Certificate
) -> None:
    said = list(answers(cluster, viewer, token="made up"))
    assert {rpc: code for rpc, code in said if code is not grpc.StatusCode.UNAUTHENTICATED} == {}


def test_nobody_without_a_certificate_gets_as_far_as_an_rpc(cluster: ComposeCluster) -> None:
    assert {code for _, code in answers(cluster, None)} == {grpc.StatusCode.UNAVAILABLE}


def test_a_viewer_may_only_look(cluster: ComposeCluster, viewer: Certificate) -> None:
    said = list(answers(cluster, viewer, least=Role.OPERATOR))
    wrong = {rpc: code for rpc, code in said if code is not grpc.StatusCode.PERMISSION_DENIED}
    assert wrong == {}


def test_a_token_is_let_in_until_it_is_taken_out(cluster: ComposeCluster, tmp_path: Path) -> None:
    cluster.copy_out("certs", "/certs/access.yaml", tmp_path / "access.yaml")
    before = (tmp_path / "access.yaml").read_text(encoding="utf-8")
    token = {"DROVER_TOKEN": "a token of the test"}
    digest = hashlib.sha256(token["DROVER_TOKEN"].encode()).hexdigest()
    grant = f"  - {{token_sha256: {digest}, name: ci, role: viewer}}\n"

    def said(*words: str) -> str:
        done = cluster.try_drover(*words, env=token)
        return f"{done.returncode} {done.stderr}"

    assert "the token is rejected" in said("connector", "list")
    cluster.write_access(before + grant)
    wait_until(lambda: said("connector", "list").startswith("0 "), timeout_s=WAIT_S)
    assert "needs the role operator" in said("connector", "pause", "none-such")
    cluster.write_access(before)
    wait_until(lambda: "the token is rejected" in said("connector", "list"), timeout_s=WAIT_S)
