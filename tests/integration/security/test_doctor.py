"""`drover doctor` with a TLS cluster: findings about the caller's access and about workers."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf.internal import well_known_types

from drover.local.running_cluster import refuse_beside_another
from drover.local.state import ClusterError
from drover.security.certificates import TlsFiles
from drover.security.development_ca import ACCESS_FILE, Authority, files_of, init_certificates
from drover.security.grants import token_sha256
from tests.support.addresses import free_address
from tests.support.certificates import DAY, issue
from tests.support.cluster import run_drover
from tests.support.worker_cluster import RunningWorker, WorkerCluster

#: Findings by the name of their check.
Findings = dict[str, dict[str, Any]]


@pytest.fixture
def certs(tmp_path: Path) -> Path:
    init_certificates(tmp_path / "certs")
    return tmp_path / "certs"


@asynccontextmanager
async def one_worker(
    directory: Path, certs: Path, **settings: Any
) -> AsyncIterator[tuple[WorkerCluster, RunningWorker]]:
    async with WorkerCluster(directory, certificates=certs) as cluster:
        worker = await cluster.add_worker(**settings)
        await cluster.settled(worker)
        yield cluster, worker


async def doctor(directory: Path, address: str, *given: str) -> Findings:
    done = await run_drover(
        *(*given, "doctor", "--address", address, "-o", "json"),
        cwd=directory,
        env={"XDG_CONFIG_HOME": str(directory / "config")},
    )
    assert done.err == ""
    findings = json.loads(done.out)["findings"]
    assert done.exit_code == int(any(each["level"] == "error" for each in findings))
    return {each["check"]: each for each in findings}


def by(files: TlsFiles) -> tuple[str, ...]:
    return ("--tls-ca", files.ca, "--tls-cert", files.cert, "--tls-key", files.key)


async def test_each_way_that_does_not_get_in_is_told_for_what_it_is(
    tmp_path: Path, certs: Path
) -> None:
    authority, viewer = Authority.read(certs), files_of(certs, "viewer")
    foreign = issue(tmp_path / "foreign", Authority.make(), trusted=authority)
    stranger = issue(tmp_path / "stranger", authority, name="nobody")
    expired = issue(tmp_path / "expired", authority, begins=-2 * DAY, ends=-DAY)
    other = issue(tmp_path / "other", authority, trusted=Authority.make())
    cases: dict[str, tuple[tuple[str, ...], str, str]] = {
        "in plaintext": ((), "requires TLS", "give --tls-ca"),
        "without a certificate": (
            ("--tls-ca", viewer.ca),
            "requires a client certificate",
            "give --tls-cert and --tls-key",
        ),
        "of another authority": (
            by(foreign),
            "does not accept your certificate: another CA signed it",
            "give one that the cluster's CA signed",
        ),
        "expired": (by(expired), "cannot be checked: ", "correct that file"),
        "with another's authority": (
            by(other),
            f"presents a certificate that no CA in {other.ca} signed",
            "give the cluster's CA by --tls-ca",
        ),
        "without a role": (
            by(stranger),
            "answers, but refuses: GetClusterInfo needs the role viewer",
            "access file",
        ),
    }
    async with one_worker(tmp_path, certs) as (_, worker):
        name = f"worker {worker.address}"
        for case, (given, told, advice) in cases.items():
            found = await doctor(tmp_path, worker.address, *given)
            assert found[name]["level"] == "error", case
            assert found[name]["found"].startswith(told), case
            assert advice in found[name]["advice"], case
            assert "connectors" not in found, case
            if case == "expired":
                assert "expired" in found["--tls-cert"]["found"]
        found = await doctor(tmp_path, worker.address, *by(viewer))
        checks = ("--tls-cert", "--tls-ca", name, "leader", "connectors")
        assert {each: found[each]["level"] for each in checks} == dict.fromkeys(checks, "ok")


async def test_a_worker_that_takes_tokens_says_which_it_takes(tmp_path: Path, certs: Path) -> None:
    grants = yaml.safe_load((certs / ACCESS_FILE).read_text())
    grants["grants"].append({"token_sha256": token_sha256("ours"), "name": "ci", "role": "viewer"})
    (certs / ACCESS_FILE).write_text(yaml.safe_dump(grants))
    async with one_worker(tmp_path, certs, tls_client_auth="none") as (_, worker):
        name, ca = f"worker {worker.address}", ("--tls-ca", str(certs / "ca.pem"))
        assert (await doctor(tmp_path, worker.address, *ca, "--token", "ours"))[name][
            "level"
        ] == "ok"
        for given in (ca, (*ca, "--token", "theirs"), by(files_of(certs, "admin"))):
            found = (await doctor(tmp_path, worker.address, *given))[name]
            assert found["found"].startswith("answers, but refuses: "), given
            assert "give a valid token" in found["advice"]


async def test_a_context_is_looked_at_with_every_worker_of_its_cluster(
    tmp_path: Path, certs: Path
) -> None:
    """One worker's address has a host that its certificate lacks; another's expires soon."""
    authority = Authority.read(certs)
    name = "drover-service"
    ours = issue(tmp_path / "o", authority, name=name, hosts=("127.0.0.1",))
    ending = issue(tmp_path / "s", authority, name=name, ends=9 * DAY)
    async with one_worker(tmp_path, certs) as (cluster, first):
        second = await cluster.add_worker(tls_cert=ours.cert, tls_key=ours.key)
        third = await cluster.add_worker(tls_cert=ending.cert, tls_key=ending.key)
        await cluster.settled(first, second, third)
        env = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
        elsewhere = second.address.replace("127.0.0.1", "localhost")
        add = ("context", "add", "prod", "--address", f"{first.address},{elsewhere}")
        made = await run_drover(*add, *by(files_of(certs, "viewer")), cwd=tmp_path, env=env)
        assert made.exit_code == 0
        done = await run_drover("doctor", "-o", "json", cwd=tmp_path, env=env)
    found = {each["check"]: each for each in json.loads(done.out)["findings"]}
    assert found[f"worker {first.address}"]["level"] == "ok"
    assert found[f"worker {second.address}"]["level"] == "ok"
    bad = found[f"worker {elsewhere}"]
    assert bad["level"] == "error"
    assert "for drover-service, 127.0.0.1, not for localhost" in bad["found"]
    assert "--host localhost" in bad["advice"]
    soon = found[f"worker {third.address}"]
    assert soon["level"] == "warning"
    assert soon["found"].startswith("its certificate expires on ")


async def test_a_worker_whose_clock_is_an_hour_off_is_named(
    tmp_path: Path, certs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        well_known_types.Timestamp,
        "GetCurrentTime",
        lambda now: now.FromDatetime(datetime.now(UTC) + timedelta(hours=1)),
    )
    async with one_worker(tmp_path, certs) as (_, worker):
        found = await doctor(tmp_path, worker.address, *by(files_of(certs, "admin")))
    clock = found[f"worker {worker.address}"]
    assert clock["level"] == "error"
    assert " s ahead of this machine's" in clock["found"]
    assert "synchronise both" in clock["advice"]


async def test_a_cluster_that_starts_beside_one_over_tls_hears_of_it(
    tmp_path: Path, certs: Path
) -> None:
    async with one_worker(tmp_path, certs) as (cluster, worker):
        taken = {
            "coordinator": cluster.addresses["coordinator_address"],
            "worker-1": worker.address,
            "worker-2": free_address(),
        }
        with pytest.raises(ClusterError) as caught:
            await refuse_beside_another(taken)
    told = str(caught.value)
    both = f"{taken['coordinator']}, {worker.address}"
    assert told.startswith(f"a cluster seems to run at {both}, where a gRPC server uses TLS: ")
    assert "--port-base" in told
