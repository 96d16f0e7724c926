"""What `drover doctor` finds on machines and in clusters with one fault."""

import json
import re
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import drover as library
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.console import Output
from drover.cli.doctor import kafka as doctor_kafka
from drover.cli.doctor.certificates import look_at_certificates, of_command
from drover.cli.doctor.cluster import Answer, answer_findings, connector_findings
from drover.cli.doctor.command import print_findings
from drover.cli.doctor.finding import Finding, Level
from drover.cli.doctor.kafka import look_at_brokers
from drover.codec.failures import encode_failures
from drover.java_plugins import install
from drover.local.state import ClusterState, ProcessState
from drover.model.failures import Failure, FailureCause, FailureHistory
from drover.security.certificates import TlsFiles
from tests.support.addresses import free_address, free_ports
from tests.support.compiled_plugins import compiled, jar, source_code
from tests.support.fake_cluster import FakeCluster, Run

Key = ec.EllipticCurvePrivateKey


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides this machine's own clusters and sets ports on which no process listens."""
    monkeypatch.chdir(tmp_path)
    names = ("COORDINATOR", "CONFIG_STORE", "STATUS_STORE", "WORKER", "GATEWAY")
    for name, port in zip(names, free_ports(len(names)), strict=True):
        monkeypatch.setenv(f"DROVER_{name}_LISTEN", f"127.0.0.1:{port}")


def found(drover: Run, *arguments: str) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    code, out, _ = drover("doctor", "-o", "json", *arguments)
    by_check: dict[str, list[dict[str, Any]]] = {}
    for each in json.loads(out)["findings"]:
        by_check.setdefault(each["check"], []).append(each)
    return code, by_check


def info(**fields: Any) -> pb.GetClusterInfoResponse:
    answer = pb.GetClusterInfoResponse(
        version=library.__version__,
        worker_id=fields.pop("worker_id", "w"),
        leader_worker_id="w",
        spark_version="4.3.0",
    )
    answer.current_time.FromDatetime(datetime.now(UTC) + fields.pop("ahead", timedelta()))
    for name, value in fields.items():
        setattr(answer, name, value)
    return answer


@pytest.mark.spark
def test_a_sound_machine_without_a_cluster(drover: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DROVER_ADDRESS", raising=False)
    code, checks = found(drover)
    assert code == 0, checks
    for check in ("java", "versions", "spark", "ports", "cluster"):
        assert [each["level"] for each in checks[check]] == ["ok"], checks[check]
    code, out, _ = drover("doctor")
    assert code == 0
    assert "0 errors" in out


def test_a_machine_without_java(
    drover: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    code, checks = found(drover)
    assert code == 1
    assert checks["java"][0]["level"] == "error"
    assert "install Java" in checks["java"][0]["advice"]


@pytest.fixture
def java_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The class of an installed Java plugin."""
    home = tmp_path / "plugins"
    monkeypatch.setenv("DROVER_PLUGIN_HOME", str(home))
    classes = compiled(tmp_path / "java", {"org.acme.Orders": source_code("Orders")})
    install.add(str(jar(tmp_path / "acme-1.0.jar", classes)), home, host=None)
    return "org.acme.Orders"


@pytest.mark.parametrize(
    ("variables", "level", "words"),
    [
        ({}, "ok", ("acme@1.0 can be used", "")),
        ({"DROVER_JAVA_HOST": "/none"}, "error", ("is not installed", "make java-host")),
        (
            {"DROVER_JAVA_PLUGINS": "org.other.*"},
            "warning",
            ("such as org.acme.Orders", "DROVER_JAVA_PLUGINS"),
        ),
        ({"DROVER_JAVA_PLUGINS": "a b"}, "error", ("is not a class", "DROVER_JAVA_PLUGINS")),
    ],
)
def test_a_machine_with_java_plugins(
    drover: Run,
    java_plugin: str,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    level: str,
    words: tuple[str, str],
) -> None:
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    _, checks = found(drover)
    (finding,) = checks["java plugins"]
    assert finding["level"] == level
    assert words[0] in finding["found"]
    assert words[1] in finding.get("advice", "")


def test_a_port_that_somebody_has(drover: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv("DROVER_STATUS_STORE_LISTEN", f"127.0.0.1:{port}")
        code, checks = found(drover)
    assert code == 1
    (finding,) = checks[f"port {port}"]
    assert "status-store would listen there" in finding["found"]
    assert "DROVER_STATUS_STORE_LISTEN" in finding["advice"]


def test_ports_are_looked_at_above_their_base(drover: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DROVER_STATUS_STORE_LISTEN")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv("DROVER_PORT_BASE", str(port - 3))
        _, checks = found(drover)
    # only a warning, because `drover up` picks another port
    assert [each["level"] for each in checks[f"port {port}"]] == ["warning"]


def test_a_directory_that_is_none(drover: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DROVER_STORAGE_URL", "sqlite://relative/path")
    code, checks = found(drover)
    assert code == 1
    assert checks["disk"][0]["level"] == "error"


@pytest.mark.spark
def test_a_sound_cluster(cluster: FakeCluster, drover: Run) -> None:
    cluster.answers["GetClusterInfo"] = info()
    cluster.answers["ListConnectors"] = pb.ListConnectorsResponse()
    code, checks = found(drover)
    assert code == 0, checks
    assert checks["leader"][0]["level"] == "ok"
    assert checks["connectors"][0]["found"] == "0, none failed"


@pytest.mark.parametrize(("hours", "told"), [(1, "ahead of"), (-1, "behind")])
def test_a_clock_that_is_an_hour_off(
    cluster: FakeCluster, drover: Run, hours: int, told: str
) -> None:
    cluster.answers["GetClusterInfo"] = info(ahead=timedelta(hours=hours))
    cluster.answers["ListConnectors"] = pb.ListConnectorsResponse()
    code, checks = found(drover)
    assert code == 1
    (finding,) = [each for name, (each,) in checks.items() if name.startswith("worker ")]
    assert finding["level"] == "error"
    said = re.fullmatch(rf"its clock is (\d+) s {told} this machine's", finding["found"])
    assert said is not None, finding
    # the call's own duration is less than half a minute
    assert round(int(said[1]) / 60) == 60


def test_an_engine_that_is_not_there_and_another_version(cluster: FakeCluster, drover: Run) -> None:
    cluster.answers["GetClusterInfo"] = info(spark_version="", version="0.0.9")
    cluster.answers["ListConnectors"] = pb.ListConnectorsResponse()
    code, checks = found(drover)
    assert code == 1
    (findings,) = [each for name, each in checks.items() if name.startswith("worker ")]
    # a busy machine may add a warning about clocks
    assert {each["level"] for each in findings} == {"warning", "error"}
    assert any("0.0.9" in each["found"] for each in findings)


def test_a_worker_that_does_not_answer(
    cluster: FakeCluster, drover: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = free_address()
    answer = info()
    answer.workers.add(worker_id=away)
    cluster.answers["GetClusterInfo"] = answer
    cluster.answers["ListConnectors"] = pb.ListConnectorsResponse()
    code, checks = found(drover)
    assert code == 1
    assert "does not answer" in checks[f"worker {away}"][0]["found"]


def test_a_worker_that_is_starting_is_listed_once() -> None:
    here, other = "127.0.0.1:7411", "127.0.0.1:7412"
    running = ClusterState(
        1,
        1.0,
        {"worker-1": ProcessState(7, here, "log"), "worker-2": ProcessState(8, other, "log")},
    )
    starts = Finding("worker-1", Level.ERROR, f"{here} is NOT_SERVING: its engine is starting")
    serves = Finding("worker-2", Level.OK, f"{other} serves")
    starting = Answer(info(spark_version="", leader_worker_id=""), 0.0)
    found = answer_findings(running, [starts], {here: starting})
    assert found == [starts]
    silent = Finding(f"worker {here}", Level.ERROR, "does not answer: connection refused")
    assert answer_findings(running, [starts], {here: silent}) == [starts]
    found = answer_findings(running, [starts, serves], {here: starting, other: Answer(info(), 0.0)})
    assert [each.check for each in found] == ["worker-1", "worker-2", f"worker {other}", "leader"]
    old = Answer(info(spark_version="", version="0.0.9"), 0.0)
    assert "0.0.9" in answer_findings(running, [starts], {here: old})[1].found
    assert len(answer_findings(None, [], {here: starting})) == 1, "a remote cluster"


def test_no_leader_and_a_failed_task(cluster: FakeCluster, drover: Run) -> None:
    cluster.answers["GetClusterInfo"] = info(leader_worker_id="")
    status = pb.ConnectorStatus(name="c", tasks=[pb.TaskState(state=pb.RUN_STATE_FAILED)])
    entry = pb.ListConnectorsResponse.Entry(name="c", status=status)
    cluster.answers["ListConnectors"] = pb.ListConnectorsResponse(connectors=[entry])
    code, checks = found(drover)
    assert code == 1
    assert checks["leader"][0]["level"] == "warning"
    assert checks["connectors"][0]["advice"].startswith("`drover connector status c` shows")


@pytest.mark.parametrize("of_task", [True, False])
def test_connectors_that_no_worker_runs_are_shown_with_the_reason(of_task: bool) -> None:
    reason = "no worker runs it: its worker w:1 is not in the group"
    status = pb.ConnectorStatus(
        name="shop-copy",
        connector=pb.ConnectorState(
            state=pb.RUN_STATE_RUNNING if of_task else pb.RUN_STATE_UNASSIGNED,
            trace="" if of_task else reason,
        ),
    )
    # without a trace: a rebalance is about to assign it
    fresh = pb.ConnectorStatus(
        name="new", connector=pb.ConnectorState(state=pb.RUN_STATE_UNASSIGNED)
    )
    status.tasks.add(task=0, state=pb.RUN_STATE_UNASSIGNED, trace=reason if of_task else "")
    assert connector_findings([fresh, status], now_ms=0) == [
        Finding(
            "connectors", Level.WARNING, "UNASSIGNED, or with UNASSIGNED tasks: shop-copy", reason
        )
    ]
    (found,) = connector_findings([fresh], now_ms=0)
    assert found.level is Level.OK


def test_a_connector_that_found_nothing_to_read_is_shown() -> None:
    running = pb.ConnectorState(state=pb.RUN_STATE_RUNNING)
    idle = pb.ConnectorStatus(name="shop", connector=running)
    busy = pb.ConnectorStatus(name="copy", connector=running, tasks=[pb.TaskState()])
    paused = pb.ConnectorStatus(name="old", connector=pb.ConnectorState(state=pb.RUN_STATE_PAUSED))
    (found,) = connector_findings([idle, busy, paused], now_ms=0)
    assert (found.level, found.found) == (Level.WARNING, "RUNNING without tasks: shop")


def test_connectors_that_wait_for_their_engine_are_shown_with_the_reason_of_its_end(
    cluster: FakeCluster, drover: Run
) -> None:
    cluster.answers["GetClusterInfo"] = info()
    why = "the worker's engine ended while tickets was at work: exit code 3"
    history = FailureHistory(1, (Failure(1, FailureCause.ENGINE, "w:1", why),), 1)
    entries = []
    for name in ("good", "other"):
        task = pb.TaskState(state=pb.RUN_STATE_FAILED, trace=why)
        task.failures.CopyFrom(encode_failures(history))
        status = pb.ConnectorStatus(name=name, tasks=[task])
        entries.append(pb.ListConnectorsResponse.Entry(name=name, status=status))
    cluster.answers["ListConnectors"] = pb.ListConnectorsResponse(connectors=entries)
    _, checks = found(drover)
    (finding,) = checks["connectors"]
    assert finding["found"] == "FAILED until their engine has restarted: good, other"
    assert finding["advice"] == why
    tickets = pb.TaskState(state=pb.RUN_STATE_FAILED, trace="its own fault")
    status = pb.ConnectorStatus(name="tickets", tasks=[tickets])
    entries.append(pb.ListConnectorsResponse.Entry(name="tickets", status=status))
    cluster.answers["ListConnectors"] = pb.ListConnectorsResponse(connectors=entries)
    _, checks = found(drover)
    failed, waiting = checks["connectors"]
    assert failed["found"] == "FAILED, or with FAILED tasks: tickets", "not its victims"
    assert waiting["found"] == "FAILED until their engine has restarted: good, other"


def test_a_connector_in_quarantine_is_named_with_the_reason(
    cluster: FakeCluster, drover: Run
) -> None:
    cluster.answers["GetClusterInfo"] = info()
    why = "runs in quarantine since 2026-11-28T21:00:00Z: the engine ended 2 times while it alone"
    status = pb.ConnectorStatus(
        name="tickets",
        connector=pb.ConnectorState(state=pb.RUN_STATE_RUNNING),
        tasks=[pb.TaskState(state=pb.RUN_STATE_RUNNING, trace=f"{why} was at work: exit code 3")],
    )
    entry = pb.ListConnectorsResponse.Entry(name="tickets", status=status)
    cluster.answers["ListConnectors"] = pb.ListConnectorsResponse(connectors=[entry])
    _, checks = found(drover)
    assert checks["connectors"][0]["found"] == "1, none failed"
    (finding,) = checks["connector tickets"]
    assert finding["level"] == "warning"
    assert finding["found"] == f"{why} was at work: exit code 3"
    assert "drover connector restart tickets" in finding["advice"]


def test_brokers_that_are_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_kafka, "TIMEOUT_S", 0.3)
    address = free_address()
    (finding,) = look_at_brokers(f"kafka://{address}", '{"sasl.password": "hidden"}')
    assert finding.level is Level.ERROR
    assert f"none of {address} answers" in finding.found
    assert "hidden" not in finding.found + finding.advice


@pytest.mark.parametrize("config", ["{", '{"no.such.setting": "x"}', "[]"])
def test_settings_of_brokers_that_are_wrong(config: str) -> None:
    (finding,) = look_at_brokers("kafka://127.0.0.1:9092", config)
    assert finding.level is Level.ERROR


# certificates


def certificate(
    directory: Path,
    name: str,
    *,
    first: timedelta = timedelta(days=-1),
    last: timedelta = timedelta(days=90),
    signer: tuple[x509.Certificate, Key] | None = None,
) -> tuple[x509.Certificate, Key]:
    """Issues a certificate and writes NAME.pem and NAME.key; self-signed without a signer."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signer[0].subject if signer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + first)
        .not_valid_after(now + last)
    )
    made = builder.sign(signer[1] if signer else key, hashes.SHA256())
    (directory / f"{name}.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (directory / f"{name}.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return made, key


def named(directory: Path, own: str = "own", ca: str = "ca", key: str = "own") -> Any:
    """Checks the TLS files that the environment variables name."""
    files = TlsFiles(*(str(directory / each) for each in (f"{ca}.pem", f"{own}.pem", f"{key}.key")))
    environ = {"DROVER_TLS_CA": files.ca, "DROVER_TLS_CERT": files.cert}
    return of_command(files, {**environ, "DROVER_TLS_KEY": files.key})


def levels(findings: Any) -> list[str]:
    return [each.level for each in findings]


def test_certificates_that_fit(tmp_path: Path) -> None:
    certificate(tmp_path, "own", signer=certificate(tmp_path, "ca"))
    assert levels(look_at_certificates(named(tmp_path))) == ["ok", "ok"]


@pytest.mark.parametrize(
    ("first", "last", "level", "told"),
    [
        (timedelta(days=-9), timedelta(days=-1), "error", "expired"),
        (timedelta(days=1), timedelta(days=9), "error", "not valid before"),
        (timedelta(days=-9), timedelta(days=3), "warning", "valid until"),
    ],
)
def test_certificates_at_another_time(
    tmp_path: Path, first: timedelta, last: timedelta, level: str, told: str
) -> None:
    ca = certificate(tmp_path, "ca")
    certificate(tmp_path, "own", first=first, last=last, signer=ca)
    finding = look_at_certificates(named(tmp_path))[0]
    assert (finding.level, told in finding.found) == (level, True)
    assert finding.advice


def test_a_key_and_an_authority_of_others(tmp_path: Path) -> None:
    certificate(tmp_path, "own", signer=certificate(tmp_path, "ca"))
    certificate(tmp_path, "other")
    findings = look_at_certificates(named(tmp_path, key="other", ca="other"))
    assert levels(findings) == ["ok", "ok", "error", "error"]
    assert "does not match" in findings[2].found
    assert "no CA in the file signed CN=own" in findings[3].found
    assert (findings[0].check, findings[3].check) == ("DROVER_TLS_CERT", "DROVER_TLS_CA")


def test_a_certificate_of_a_person_may_be_of_an_authority_that_only_servers_know(
    tmp_path: Path,
) -> None:
    certificate(tmp_path, "own")
    certificate(tmp_path, "ca")
    given = of_command(named(tmp_path).files, {})
    findings = look_at_certificates(given)
    assert [(each.check, each.level) for each in findings] == [
        ("--tls-cert", "ok"),
        ("--tls-ca", "ok"),
    ]


def test_files_that_are_no_certificates(tmp_path: Path) -> None:
    (tmp_path / "own.pem").write_text("nothing of the kind")
    findings = look_at_certificates(named(tmp_path))
    assert levels(findings) == ["error", "error"]
    assert "no certificate in PEM form" in findings[0].found
    assert "No such file" in findings[1].found


def test_the_same_advice_for_a_connector_and_its_tasks_is_printed_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    advice = "`drover connector describe shop` shows the last failures"
    failed = [
        Finding("connectors", Level.WARNING, f"shop: {each} failed once", advice)
        for each in ("the connector", "task 0")
    ]
    print_findings(
        [*failed, Finding("disk", Level.ERROR, "full", "delete something")], Output.TABLE
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[-5:] == [
        "",
        f"connectors: {advice}",
        "disk: delete something",
        "",
        "1 error, 2 warnings",
    ]
