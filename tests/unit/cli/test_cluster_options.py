import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from drover.cli.commands.cluster import given_addresses
from drover.local import ports
from drover.local.cluster import (
    DEFAULT_PORT_BASE,
    ClusterOptions,
    addresses_above,
    cluster_stages,
    default_listen,
    kafka_url,
    listen_from_environment,
)
from drover.local.state import ClusterError
from drover.rpc.settings import load_settings
from drover.security.development_ca import init_certificates
from drover_worker.settings import WorkerSettings


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield holder.getsockname()[1]


def test_workers_start_after_the_services_and_know_their_addresses(tmp_path: Path) -> None:
    stores, workers = cluster_stages(ClusterOptions(tmp_path, worker_count=3))
    assert [spec.name for spec in stores] == ["coordinator", "config-store", "status-store"]
    assert [spec.name for spec in workers] == ["worker-1", "worker-2", "worker-3"]
    for spec in [*stores, *workers]:
        assert spec.env["DROVER_STORAGE_URL"] == f"sqlite://{tmp_path}/data"
        assert spec.env["DROVER_COORDINATOR_ADDRESS"] == stores[0].address
        assert spec.env["DROVER_CONFIG_STORE_ADDRESS"] == stores[1].address
        assert spec.env["DROVER_STATUS_STORE_ADDRESS"] == stores[2].address
    assert stores[1].env["DROVER_CONFIG_STORE_LISTEN"] == stores[1].address
    assert workers[2].env["DROVER_WORKER_LISTEN"] == workers[2].address
    assert len({spec.address for spec in [*stores, *workers]}) == 6


def test_processes_are_the_services_modules(tmp_path: Path) -> None:
    stores, workers = cluster_stages(ClusterOptions(tmp_path))
    modules = [list(spec.argv[1:]) for spec in [*stores, workers[0]]]
    assert modules == [
        ["-P", "-m", "drover_coordinator"],
        ["-P", "-m", "drover_config_store"],
        ["-P", "-m", "drover_status_store"],
        ["-P", "-m", "drover_worker"],
    ]


def test_an_address_that_was_asked_for_is_used(tmp_path: Path) -> None:
    (port,) = ports.free_ports("127.0.0.1", 1)
    listen = listen_from_environment({"DROVER_WORKER_LISTEN": f"127.0.0.1:{port}"})
    _, workers = cluster_stages(ClusterOptions(tmp_path, listen=listen))
    assert workers[0].address == f"127.0.0.1:{port}"


def test_a_port_in_use_is_one_clear_line(tmp_path: Path, taken_port: int) -> None:
    listen = {"config-store": f"127.0.0.1:{taken_port}"}
    with pytest.raises(ClusterError, match=f"127.0.0.1:{taken_port} for config-store: the port is"):
        cluster_stages(ClusterOptions(tmp_path, listen=listen))


@pytest.mark.parametrize("address", ["7401", "localhost", "localhost:http", "localhost:70000"])
def test_a_malformed_address_is_one_clear_line(tmp_path: Path, address: str) -> None:
    with pytest.raises(ClusterError, match="is not host:port"):
        cluster_stages(ClusterOptions(tmp_path, listen={"coordinator": address}))


def test_the_default_ports_are_used_where_they_are_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "is_free", lambda _host, port: port != 7402)
    stores, workers = cluster_stages(ClusterOptions(tmp_path, port_base=7400))
    assert stores[0].address == "127.0.0.1:7401"
    assert stores[1].address != "127.0.0.1:7402"
    assert workers[1].address == "127.0.0.1:7412"


def test_free_ports_are_distinct_and_not_in_use(taken_port: int) -> None:
    found = ports.free_ports("127.0.0.1", 20)
    assert len(set(found)) == 20
    assert taken_port not in found
    assert not ports.is_free("127.0.0.1", taken_port)


def test_several_coordinators_are_told_of_each_other_and_everybody_of_all(tmp_path: Path) -> None:
    services, workers = cluster_stages(ClusterOptions(tmp_path, coordinator_count=3))
    names = ["coordinator", "coordinator-2", "coordinator-3"]
    assert [spec.name for spec in services] == [*names, "config-store", "status-store"]
    everyone = ",".join(spec.address for spec in services[:3])
    for spec in services[:3]:
        assert spec.env["DROVER_COORDINATORS"] == everyone
        assert spec.env["DROVER_COORDINATOR_LISTEN"] == spec.address
    for spec in [*services, *workers]:
        assert spec.env["DROVER_COORDINATOR_ADDRESS"] == everyone


@pytest.mark.parametrize(
    ("host", "internal"), [("127.0.0.1", "127.0.0.1:0"), ("0.0.0.0", "127.0.0.1:0")]
)
def test_workers_call_each_other_at_a_port_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, internal: str
) -> None:
    monkeypatch.setenv("DROVER_WORKER_INTERNAL_ADVERTISED", "elsewhere:1")
    monkeypatch.setenv("DROVER_ALLOW_PLAINTEXT", "true")
    _, workers = cluster_stages(ClusterOptions(tmp_path, host=host))
    for spec in workers:
        for name, value in spec.env.items():
            monkeypatch.setenv(name, value)
        settings = load_settings(WorkerSettings)
        assert settings.worker_internal_listen == internal
        assert settings.worker_internal_advertised is None


def test_a_coordinator_that_is_alone_is_told_of_no_others(tmp_path: Path) -> None:
    services, _ = cluster_stages(ClusterOptions(tmp_path))
    assert "DROVER_COORDINATORS" not in services[0].env


def test_on_kafka_everything_is_told_of_the_brokers_and_nothing_of_a_directory(
    tmp_path: Path,
) -> None:
    url = "kafka://a:9092,b:9092"
    services, workers = cluster_stages(ClusterOptions(tmp_path, storage_url=url))
    for spec in [*services, *workers]:
        assert spec.env["DROVER_STORAGE_URL"] == url
        assert str(tmp_path) not in str(spec.env)


def test_on_kafka_stores_stand_in_for_each_other(tmp_path: Path) -> None:
    options = ClusterOptions(
        tmp_path, storage_url="kafka://a:9092", config_store_count=2, status_store_count=3
    )
    services, workers = cluster_stages(options)
    by_name = {spec.name: spec for spec in services}
    assert list(by_name) == [
        *("coordinator", "config-store", "config-store-2"),
        *("status-store", "status-store-2", "status-store-3"),
    ]
    second = by_name["config-store-2"]
    assert list(second.argv[1:]) == ["-P", "-m", "drover_config_store"]
    assert second.env["DROVER_CONFIG_STORE_LISTEN"] == second.address
    assert workers[0].env["DROVER_CONFIG_STORE_ADDRESS"] == ",".join(
        by_name[name].address for name in ("config-store", "config-store-2")
    )
    assert len(workers[0].env["DROVER_STATUS_STORE_ADDRESS"].split(",")) == 3
    assert len({spec.address for spec in [*services, *workers]}) == 8


def test_several_stores_on_one_directory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="need Kafka"):
        cluster_stages(ClusterOptions(tmp_path, config_store_count=2))


def test_default_ports_are_given_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda _host, _port: True)
    options = ClusterOptions(
        tmp_path,
        storage_url="kafka://a:9092",
        coordinator_count=7,
        config_store_count=7,
        status_store_count=7,
        worker_count=3,
        port_base=7400,
    )
    specs = [spec for stage in cluster_stages(options) for spec in stage]
    assert len({spec.address for spec in specs}) == len(specs) == 24
    assert specs[-3].address == "127.0.0.1:7411"


def test_ports_are_counted_from_the_base_that_is_given(tmp_path: Path) -> None:
    assert addresses_above(ClusterOptions(tmp_path, coordinator_count=2), 8400) == {
        "coordinator": "127.0.0.1:8401",
        "coordinator-2": "127.0.0.1:8404",
        "config-store": "127.0.0.1:8402",
        "status-store": "127.0.0.1:8403",
        "worker-1": "127.0.0.1:8411",
        "worker-2": "127.0.0.1:8412",
    }


def test_kafka_is_asked_for_by_option_or_environment() -> None:
    environment = {"DROVER_STORAGE_URL": "kafka://a:9092"}
    assert kafka_url("", environment) == "kafka://a:9092"
    assert kafka_url("kafka://b:9092", environment) == "kafka://b:9092"
    assert kafka_url("", {"DROVER_STORAGE_URL": "sqlite:///var/drover"}) == ""
    assert kafka_url("", {}) == ""
    with pytest.raises(ClusterError, match="is not kafka://host:port"):
        kafka_url("sqlite:///var/drover", {})


def test_every_process_serves_metrics_at_a_port_of_its_own(tmp_path: Path) -> None:
    options = ClusterOptions(tmp_path, coordinator_count=2, port_base=DEFAULT_PORT_BASE)
    specs = [spec for stage in cluster_stages(options) for spec in stage]
    addresses = [address for spec in specs for address in (spec.address, spec.metrics_address)]
    assert len(set(addresses)) == 2 * len(specs)
    for spec in specs:
        assert spec.metrics_address.startswith("127.0.0.1:")
        assert spec.env["DROVER_METRICS_LISTEN"] == spec.metrics_address


def test_without_metrics_nobody_serves_any(tmp_path: Path) -> None:
    options = ClusterOptions(tmp_path, metrics=False)
    for spec in (spec for stage in cluster_stages(options) for spec in stage):
        # the setting overrides this process's own environment
        assert spec.env["DROVER_METRICS_LISTEN"] == spec.metrics_address == ""


def test_workers_get_the_file_roots_that_are_given(tmp_path: Path) -> None:
    roots = (tmp_path / "a", tmp_path / "b")
    services, workers = cluster_stages(ClusterOptions(tmp_path, file_roots=roots))
    for worker in workers:
        assert worker.env["DROVER_FILE_ROOTS"] == f"{tmp_path}/a,{tmp_path}/b"
    for spec in (*services, *cluster_stages(ClusterOptions(tmp_path))[1]):
        assert "DROVER_FILE_ROOTS" not in spec.env


def test_a_gateway_starts_after_the_workers_and_gets_nothing_but_their_addresses(
    tmp_path: Path,
) -> None:
    init_certificates(tmp_path / "certs")
    options = ClusterOptions(tmp_path, gateway_count=2, certificates=tmp_path / "certs")
    _, workers, gateways = cluster_stages(options)
    assert [spec.name for spec in gateways] == ["gateway", "gateway-2"]
    for spec in gateways:
        assert list(spec.argv[1:]) == ["-P", "-m", "drover_gateway"]
        assert spec.over_http
        assert spec.env["DROVER_GATEWAY_WORKERS"] == ",".join(each.address for each in workers)
        assert spec.env["DROVER_TLS_CERT"] == str(tmp_path / "certs/gateway.pem")
        assert "DROVER_ACCESS_FILE" not in spec.env
        assert "DROVER_STORAGE_URL" not in spec.env


def test_a_gateway_without_its_certificate_is_one_clear_line(tmp_path: Path) -> None:
    init_certificates(tmp_path / "certs")
    (tmp_path / "certs/gateway.pem").unlink()
    options = ClusterOptions(tmp_path, gateway_count=1, certificates=tmp_path / "certs")
    with pytest.raises(ClusterError, match="the gateway needs it: `drover certs init"):
        cluster_stages(options)


def test_the_gateway_is_counted_above_the_most_workers(tmp_path: Path) -> None:
    options = ClusterOptions(tmp_path, worker_count=64, gateway_count=2)
    addresses = addresses_above(options, 8400)
    assert addresses["gateway"] == "127.0.0.1:8483"
    assert addresses["gateway-2"] == "127.0.0.1:8484"
    assert len(set(addresses.values())) == len(addresses)
    assert default_listen(DEFAULT_PORT_BASE)["gateway"] == "127.0.0.1:8083"
    assert default_listen(8400)["gateway"] == "127.0.0.1:8483"


@pytest.mark.parametrize("port_base", [None, 9000])
def test_the_first_gateway_has_kafka_connects_port_if_it_is_free(
    monkeypatch: pytest.MonkeyPatch, port_base: int | None
) -> None:
    monkeypatch.delenv("DROVER_GATEWAY_LISTEN", raising=False)
    for is_free in (True, False):
        monkeypatch.setattr(ports, "is_free", lambda _host, _port, free=is_free: free)
        expected = "127.0.0.1:8083" if is_free and port_base is None else None
        assert given_addresses(port_base).get("gateway") == expected
    monkeypatch.setenv("DROVER_GATEWAY_LISTEN", "127.0.0.1:9999")
    assert given_addresses(port_base)["gateway"] == "127.0.0.1:9999"
