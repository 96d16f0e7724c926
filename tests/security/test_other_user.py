"""Another user of the machine cannot use files and ports of a cluster."""

import os
import struct
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from drover.local.supervisor import Supervisor
from drover.security.development_ca import init_certificates
from drover_worker.engine.process_constants import DIRECTORY_VARIABLE
from tests.spark.engine.harness import Harness
from tests.support.idle_worker import idle_stages
from tests.support.other_user import answers, readable_files

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act as another user")

_LENGTH_BYTES = 8
_RPC_REQUEST, _RPC_FAILURE = 3, 5
_OPEN_BLOCKS = 0
_TLS_ALERT = 0x15
#: The start of a gRPC connection: the preface and an empty SETTINGS frame.
HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))


def open_blocks() -> bytes:
    """Spark's request for blocks, from a client that does not authenticate."""

    def text(value: bytes) -> bytes:
        return struct.pack(">i", len(value)) + value

    body = struct.pack(">b", _OPEN_BLOCKS) + text(b"app") + text(b"0")
    body += struct.pack(">i", 1) + text(b"broadcast_0_piece0")
    message = struct.pack(">bqi", _RPC_REQUEST, 1, len(body)) + body
    return struct.pack(">q", len(message) + 8) + message


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def descendants() -> set[psutil.Process]:
    """The descendants of this process; some belong to fixtures of other tests."""
    return set(psutil.Process().children(recursive=True))


def listening_ports(processes: Iterable[psutil.Process]) -> Iterator[int]:
    """The TCP ports on which processes listen."""
    for each in processes:
        with suppress(psutil.NoSuchProcess):
            for connection in each.net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN:
                    yield connection.laddr.port


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that every user of the machine can enter; pytest's own are private."""
    umask = os.umask(0o022)
    with tempfile.TemporaryDirectory(prefix="drover-test-") as place:
        folder = Path(place)
        folder.chmod(0o755)
        (folder / "public").write_text("every user can read this")
        yield folder
    os.umask(umask)


def below(directory: Path) -> list[Path]:
    return [directory, *directory.rglob("*")]


@pytest.mark.e2e
async def test_another_user_reaches_nothing_of_a_secure_cluster(shared_folder: Path) -> None:
    directory = shared_folder / "cluster"
    directory.mkdir()
    init_certificates(directory / "certs")
    others = descendants()
    stages = idle_stages(directory, workers=1, certificates=directory / "certs")
    supervisor = Supervisor(directory, stages, certificates=directory / "certs")
    await supervisor.start()
    try:
        files = below(directory)
        names = {str(path.relative_to(directory)) for path in files}
        assert names >= {
            *("cluster.json", "supervisor.lock", "certs/service-key.pem", "logs/worker-1.log"),
            *("data/config.db", "data/config.db-wal", "data/data.db", "data/status.db"),
            *("data/groups-0.db", "data/coordinator.lock"),
        }
        public = shared_folder / "public"
        assert readable_files([public, *files]) == [str(public)]
        # the files stay closed if the directory is opened later
        for path in (*below(directory / "data"), *below(directory / "logs")):
            assert path.stat().st_mode & 0o077 == 0, path
        metrics = {port_of(p.spec.metrics_address) for p in supervisor.processes.values()}
        ports = set(listening_ports(descendants() - others)) - metrics
        assert ports >= {port_of(p.spec.address) for p in supervisor.processes.values()}
        requests = dict.fromkeys(ports, HTTP2_PREFACE)
        assert set(answers(requests, tls=True).values()) == {b""}
        for port, answer in answers(requests).items():
            assert answer == b"" or answer[0] == _TLS_ALERT, (port, answer)
    finally:
        await supervisor.stop()


def engine_environments(processes: Iterable[psutil.Process]) -> list[dict[str, str]]:
    """The environments of the processes of an engine."""
    found = []
    for process in processes:
        with suppress(psutil.Error):  # it may have ended
            found.append(process.environ())
    return [each for each in found if DIRECTORY_VARIABLE in each]


@pytest.mark.spark
@pytest.mark.e2e
@pytest.mark.timeout(1200)
async def test_the_ports_of_spark_reject_clients_without_its_secret(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    others = descendants()
    harness = Harness(tmp_path_factory.mktemp("engine"))
    try:
        await harness.start()
        ports = set(listening_ports(descendants() - others))
        found = answers(dict.fromkeys(ports, open_blocks()))
        environments = engine_environments(descendants() - others)
        directory = Path(environments[0][DIRECTORY_VARIABLE])
        assert (directory / "spark.properties").exists()
        assert readable_files(below(directory)) == []
        safe = {each.get("PYTHONSAFEPATH") for each in environments}
        assert safe == {"1"}, "no module is imported from the working directory"
    finally:
        await harness.close()
    of_spark = [answer for answer in found.values() if answer]
    assert len(of_spark) >= 2, "the driver and the block manager"
    for answer in of_spark:
        assert answer[_LENGTH_BYTES] == _RPC_FAILURE
        assert b"Expected SaslMessage" in answer
