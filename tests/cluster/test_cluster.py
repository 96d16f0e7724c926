"""The cluster of docker-compose.yml: a database's rows reach files under every fault."""

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from drover.client.secure import channel_credentials
from drover.metrics.table import CERTIFICATE_END
from drover.security.certificates import read_certificate
from drover.security.development_ca import files_of
from tests.support.compose import (
    FAULTS,
    WAIT_S,
    ComposeCluster,
    Container,
    bare_container,
    outlast_a_session,
)
from tests.support.prometheus import expressions
from tests.support.shared_cluster import FAILURES
from tests.support.shop_flow import Flow, running_flow
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.faults("cluster"), pytest.mark.timeout(3600)]

CONNECT = "drover.api.connect.v1.ConnectService"
SERVICES = ("coordinator", "config-store", "status-store")
#: `blocked` is a file, not a directory.
FAILING = """
name: failing
config:
  connector.class: FileStreamSink
  topics: shop.public.orders
  file: /files/blocked/lines.txt
  restart.policy: never
"""


@pytest.fixture(scope="module")
def flow(cluster: ComposeCluster) -> Iterator[Flow]:
    with running_flow(cluster) as made:
        yield made


def test_processes_are_nobody_special_and_cannot_write_their_images(
    cluster: ComposeCluster,
) -> None:
    for service in (*SERVICES, "worker", "forwarder", "gateway"):
        for container in cluster.containers(service):
            container.wait_until_healthy()
            assert container.execute("id", "-u").stdout == "1000\n"
            for directory in ("/", "/app", "/opt/drover"):
                refused = container.execute("touch", f"{directory}/written")
                assert "Read-only file system" in refused.stderr
            assert container.inspect()["HostConfig"]["CapDrop"] == ["ALL"]


def test_services_images_are_small(cluster: ComposeCluster) -> None:
    assert cluster.bytes_over_base("drover-service:latest") < 250_000_000


@pytest.mark.usefixtures("cluster")
def test_an_image_without_settings_says_what_it_lacks() -> None:
    with bare_container("drover-service:latest") as service:
        wait_until(lambda: service.inspect()["State"]["Status"] == "exited", timeout_s=WAIT_S)
        assert service.inspect()["State"]["ExitCode"] == 2
        (line,) = service.log()
        assert "DROVER_SERVICE: is to name the module of a service" in line
    with bare_container("drover-worker:latest") as worker:
        told = "127.0.0.1:7411 NOT_SERVING: the worker has not joined its group 'drover' yet: "
        (line,) = wait_until(
            partial(lines_with, worker, "the worker is NOT_SERVING"), timeout_s=WAIT_S
        )
        assert "127.0.0.1:7402 (default: DROVER_CONFIG_STORE_ADDRESS is not set)" in line
        checked = worker.execute("python", "-m", "drover.local.health", "127.0.0.1:7411")
        assert (checked.returncode, checked.stdout.startswith(told)) == (1, True), checked
        assert "DROVER_CONFIG_STORE_ADDRESS" in checked.stdout
        state = worker.inspect()
        assert (state["State"]["Status"], state["RestartCount"]) == ("running", 0)
        assert not lines_with(worker, "Traceback")


def lines_with(container: Container, words: str) -> list[str]:
    return [line for line in container.log() if words in line]


def test_a_client_that_knows_only_reflection_finds_its_way(cluster: ComposeCluster) -> None:
    own = read_certificate(files_of(cluster.certs, "viewer"))
    with grpc.secure_channel(cluster.address, channel_credentials(own, "")) as channel:
        known = ProtoReflectionDescriptorDatabase(channel)
        assert {CONNECT, "grpc.health.v1.Health"} <= set(known.get_services())
        method = DescriptorPool(known).FindServiceByName(CONNECT).FindMethodByName("GetClusterInfo")
        call: grpc.UnaryUnaryMultiCallable[Any, Any] = channel.unary_unary(
            f"/{CONNECT}/GetClusterInfo",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )
        stub: Any = health_pb2_grpc.HealthStub(channel)
        healthy = stub.Check(health_pb2.HealthCheckRequest(), timeout=60)
        assert healthy.status == health_pb2.HealthCheckResponse.SERVING
        answer = MessageToDict(call(GetMessageClass(method.input_type)(), timeout=60))
    workers = {each["workerId"] for each in answer["workers"]}
    assert workers == {
        f"{each.host}.drover-test.internal:7411" for each in cluster.containers("worker")
    }


def test_a_wrong_way_in_is_told_in_a_line(cluster: ComposeCluster) -> None:
    certs = cluster.certs
    elsewhere = {"XDG_CONFIG_HOME": str(cluster.directory / "elsewhere")}
    for words, why in (
        ([], "requires TLS"),
        (["--tls-ca", str(certs / "ca.pem")], "certificate"),
        (["--tls-ca", str(certs / "ca.pem"), "--token", "x"], "certificate"),
    ):
        list_them = ("connector", "list", "--address", cluster.address)
        refused = cluster.try_drover(*words, *list_them, env=elsewhere)
        assert (refused.returncode, len(refused.stderr.splitlines())) == (1, 1), refused
        assert why in refused.stderr
    viewer = ["--tls-cert", f"{certs}/viewer.pem", "--tls-key", f"{certs}/viewer-key.pem"]
    assert cluster.try_drover(*viewer, "connector", "list").returncode == 0
    refused = cluster.try_drover(*viewer, "connector", "pause", "files")
    assert "needs the role operator" in refused.stderr


def test_the_command_runs_inside_as_whom_one_says(cluster: ComposeCluster) -> None:
    told = cluster.do("run", "--rm", "-T", "drover", "group", "list", "--output", "json")
    assert [each["member_count"] for each in json.loads(told)] == [2]
    who = {"DROVER_AS": "viewer"}
    told = cluster.do("run", "--rm", "-T", "drover", "group", "offsets", "drover", env=who)
    assert "no offsets" in told
    with pytest.raises(AssertionError, match="needs the role operator"):
        cluster.do("run", "--rm", "-T", "drover", "connector", "pause", "files", env=who)


def test_rows_go_from_a_database_to_files(cluster: ComposeCluster, flow: Flow) -> None:
    flow.insert(500)
    flow.wait_until_all_are_there()
    cluster.wait_until_running("capture", "files")


@pytest.mark.parametrize("what", FAULTS)
@pytest.mark.parametrize("which", [*SERVICES, "worker", "worker 2", "shop"])
def test_nothing_is_lost_while_a_container_is(
    cluster: ComposeCluster, flow: Flow, which: str, what: str
) -> None:
    service, _, number = which.partition(" ")
    container = cluster.containers(service)[int(number or 1) - 1]
    flow.insert()
    with FAULTS[what](container):
        if service != "shop":
            flow.insert()
        if service == "worker" and what != "paused":
            # statuses name the new owner, and rows keep arriving
            cluster.wait_until_running("capture", "files", not_on=container.host)
            flow.wait_until_all_are_there()
        elif service in ("config-store", "status-store"):
            flow.wait_until_all_are_there()  # the other services keep working
        else:
            outlast_a_session()
    container.wait_until_healthy()
    flow.insert()
    flow.wait_until_all_are_there()
    cluster.wait_until_running("capture", "files")
    cluster.wait_for_workers(2)


def test_workers_come_and_go(cluster: ComposeCluster, flow: Flow) -> None:
    scale(cluster, 5)
    flow.insert()
    flow.wait_until_all_are_there()
    scale(cluster, 2)
    flow.insert()
    flow.wait_until_all_are_there()
    cluster.wait_until_running("capture", "files")


def scale(cluster: ComposeCluster, count: int) -> None:
    cluster.do("up", "--detach", "--no-recreate", "--scale", f"worker={count}")
    cluster.wait_for_workers(count)
    assert len(cluster.containers("worker")) == count


def test_a_new_version_takes_over_step_by_step(cluster: ComposeCluster, flow: Flow) -> None:
    new = {"DROVER_TAG": "next"}
    for image in ("service", "worker"):
        cluster.make_image(f"drover-{image}:latest", f"drover-{image}:next")
    for service in SERVICES:
        cluster.do("up", "--detach", "--no-deps", service, env=new)
        (container,) = cluster.containers(service)
        container.wait_until_healthy()
        flow.insert()
    old = cluster.containers("worker")
    up = ("up", "--detach", "--no-deps", "--no-recreate", "--scale")
    cluster.do(*up, "worker=4", "worker", env=new)
    cluster.wait_for_workers(4)
    for container in old:
        flow.insert()
        container.stop()
    cluster.wait_for_workers(2)
    flow.wait_until_all_are_there()
    cluster.wait_until_running("capture", "files")
    for service in (*SERVICES, "worker"):
        for container in cluster.containers(service):
            assert container.inspect()["Config"]["Image"].endswith(":next")


def test_no_process_told_of_a_bug(cluster: ComposeCluster, flow: Flow) -> None:
    del flow
    for service in (*SERVICES, "worker", "forwarder", "gateway"):
        containers = cluster.containers(service)
        assert containers, f"{service} has no container"
        for container in containers:
            assert [line for line in container.log() if tells_of_a_bug(line)] == [], service


def tells_of_a_bug(line: str) -> bool:
    """Whether Drover's own code caught an exception that it did not expect.

    Traces of task failures and of Spark also occur while a database is down. The last line of a
    killed process may be truncated.
    """
    if not line.startswith("{"):
        return line.startswith("Traceback")
    try:
        told = json.loads(line)
    except ValueError:
        return False
    theirs = told.get("service") == "spark" or told.get("logger") == FAILURES
    return "Traceback" in str(told.get("exception", "")) and not theirs


def test_every_panel_of_the_dashboards_has_data_in_the_end(
    cluster: ComposeCluster, flow: Flow
) -> None:
    prometheus = cluster.prometheus
    # the targets are exactly the running processes
    hosts = [*SERVICES, "gateway", *(each.ip for each in cluster.containers("worker"))]
    wanted = {f"http://{host}:7500/metrics": "up" for host in hosts}
    wait_until(
        lambda: prometheus.targets() == wanted, timeout_s=WAIT_S, describe=prometheus.targets
    )
    # Prometheus keeps a removed target's series for some scrapes
    wait_until(
        lambda: len(prometheus.query(CERTIFICATE_END.name)) == len(hosts),
        timeout_s=WAIT_S,
        describe=lambda: prometheus.query(CERTIFICATE_END.name),
    )

    (cluster.files / "blocked").write_text("in the way")
    cluster.drover("connector", "create", "-f", "-", stdin=FAILING)

    def failed() -> bool:
        status = cluster.ask("connector", "status", "failing")
        return status is not None and [t["state"] for t in status["tasks"]] == ["FAILED"]

    wait_until(failed, timeout_s=WAIT_S)
    left = {query: place for place, query in expressions("1m")}

    def fed() -> bool:
        flow.insert()  # rates need data
        for query in [each for each in left if prometheus.query(each)]:
            del left[query]
        return not left

    wait_until(fed, timeout_s=WAIT_S, describe=lambda: f"no data: {left}")
    cluster.drover("connector", "delete", "failing")
    flow.wait_until_all_are_there()
