from pathlib import Path

import pytest

from drover.errors import InvalidArgumentError
from drover.rpc.settings import load_settings, split_addresses
from drover_worker.engine.settings import EngineSettings
from drover_worker.settings import WorkerSettings


@pytest.fixture(autouse=True)
def _networks_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DROVER_ALLOW_PLAINTEXT", "true")


def test_the_defaults_are_those_of_one_machine() -> None:
    settings = load_settings(WorkerSettings)
    assert settings.worker_listen == "127.0.0.1:7411"
    assert settings.worker_advertised is None
    assert settings.worker_internal_listen == "127.0.0.1:0"
    assert settings.coordinator_address == "127.0.0.1:7401"
    assert settings.config_store_address == "127.0.0.1:7402"
    assert settings.status_store_address == "127.0.0.1:7403"
    assert (settings.group_id, settings.spark_master) == ("drover", "local[*]")


def test_variables_reach_herder_and_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DROVER_SESSION_TIMEOUT_MS", "7000")
    monkeypatch.setenv("DROVER_HEARTBEAT_INTERVAL_MS", "1000")
    monkeypatch.setenv("DROVER_COUNTS_INTERVAL_MS", "250")
    monkeypatch.setenv("DROVER_SPARK_CONF", '{"spark.driver.memory": "2g"}')
    providers_json = '{"vault": {"class": "acme.Vault"}, "env": {"allowlist.pattern": "A_.*"}}'
    monkeypatch.setenv("DROVER_CONFIG_PROVIDERS", providers_json)
    monkeypatch.setenv("DROVER_PLUGIN_CALL_TIMEOUT_MS", "4000")
    monkeypatch.setenv("DROVER_PLUGIN_POLL_TIMEOUT_MS", "5000")
    monkeypatch.setenv("DROVER_PLUGIN_STOP_TIMEOUT_MS", "2000")
    settings = load_settings(WorkerSettings)
    limits = settings.engine_settings().limits
    assert (limits.start_ms, limits.validate_ms, limits.task_configs_ms) == (4000, 4000, 4000)
    assert (limits.poll_ms, limits.stop_ms) == (5000, 2000)
    herder = settings.herder_settings("w:1")
    assert (herder.worker_id, herder.session_timeout_ms) == ("w:1", 7000)
    assert (herder.heartbeat_interval_ms, herder.counts_interval_ms) == (1000, 250)
    providers = settings.engine_settings().config_providers
    assert providers == {"vault": {"class": "acme.Vault"}, "env": {"allowlist.pattern": "A_.*"}}
    engine = settings.engine_settings()
    assert EngineSettings.from_json(engine.to_json()) == engine
    assert settings.engine_settings().spark_conf == {"spark.driver.memory": "2g"}


@pytest.mark.parametrize(
    ("listen", "roots", "given"),
    [
        ("127.0.0.1:7411", None, "/"),
        ("0.0.0.0:7411", None, ""),
        ("10.0.0.1:7411", None, ""),
        ("10.0.0.1:7411", "/files,/data", "/files,/data"),
    ],
)
def test_a_worker_on_a_network_gives_connectors_no_files_unless_told(
    monkeypatch: pytest.MonkeyPatch, listen: str, roots: str | None, given: str
) -> None:
    monkeypatch.setenv("DROVER_WORKER_LISTEN", listen)
    monkeypatch.setenv("DROVER_WORKER_ADVERTISED", listen.replace("0.0.0.0", "w"))
    monkeypatch.setenv("DROVER_WORKER_INTERNAL_LISTEN", "127.0.0.1:7421")
    if roots is not None:
        monkeypatch.setenv("DROVER_FILE_ROOTS", roots)
    assert load_settings(WorkerSettings).engine_settings().file_roots == given


def test_a_providers_connectors_may_be_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    providers_json = '{"vault": {"connectors": ["orders-*", "b"]}}'
    monkeypatch.setenv("DROVER_CONFIG_PROVIDERS", providers_json)
    providers = load_settings(WorkerSettings).engine_settings().config_providers
    assert providers == {"vault": {"connectors": "orders-*,b"}}


@pytest.mark.parametrize("variable", ["DROVER_ALLOWED_HOSTS", "DROVER_HTTP_ALLOWED_HOSTS"])
def test_hosts_that_may_be_called_reach_the_engine(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    assert load_settings(WorkerSettings).engine_settings().allowed_hosts is None
    monkeypatch.setenv(variable, "a.example.com, 10.0.0.0/8")
    settings = load_settings(WorkerSettings).engine_settings()
    assert settings.allowed_hosts == "a.example.com, 10.0.0.0/8"
    assert settings.policy_variables()["DROVER_ALLOWED_HOSTS"] == settings.allowed_hosts


def test_both_names_of_the_allowed_hosts_must_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DROVER_ALLOWED_HOSTS", "a.example.com")
    monkeypatch.setenv("DROVER_HTTP_ALLOWED_HOSTS", "a.example.com")
    assert load_settings(WorkerSettings).hosts == "a.example.com"
    monkeypatch.setenv("DROVER_HTTP_ALLOWED_HOSTS", "b.example.com")
    with pytest.raises(InvalidArgumentError, match="set only DROVER_ALLOWED_HOSTS"):
        load_settings(WorkerSettings)


def test_a_secure_worker_gives_connectors_no_files_unless_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("TLS_CERT", "TLS_KEY", "TLS_CA", "ACCESS_FILE"):
        monkeypatch.setenv(f"DROVER_{name}", f"/certs/{name.lower()}")
    assert load_settings(WorkerSettings).engine_settings().file_roots == ""
    monkeypatch.setenv("DROVER_FILE_ROOTS", "/")
    monkeypatch.setenv("DROVER_PLUGIN_HOME", "/plugins/own")
    settings = load_settings(WorkerSettings).engine_settings()
    assert settings.file_roots == "/"
    assert set(settings.denied_files) == {
        *("/certs/tls_cert", "/certs/tls_key", "/certs/tls_ca", "/certs/access_file"),
        *("/var/drover", "/plugins/own"),
    }


def test_files_with_the_workers_identity_are_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DROVER_STORAGE_URL", "kafka://b:9092")
    monkeypatch.setenv("DROVER_AUDIT_LOG", "logs/audit.log")
    keys = '{"ssl.key.location": "/keys/a.pem", "ssl.ca.location": "/etc/ssl/ca.pem"}'
    monkeypatch.setenv("DROVER_KAFKA_CONFIG", keys)
    monkeypatch.setenv("DROVER_PLUGIN_HOME", "/plugins/own")
    found = load_settings(WorkerSettings).engine_settings().denied_files
    assert found == (f"{Path.cwd()}/logs/audit.log", "/keys/a.pem", "/plugins/own")


def test_the_policy_of_client_settings_reaches_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings(WorkerSettings).engine_settings().client_override_policy == "allowlist"
    monkeypatch.setenv("DROVER_CLIENT_OVERRIDE_POLICY", "none")
    assert load_settings(WorkerSettings).engine_settings().client_override_policy == "none"


@pytest.mark.parametrize(
    ("variable", "value", "fault"),
    [
        ("DROVER_WORKER_LISTEN", "nowhere", "host:port"),
        ("DROVER_CLIENT_OVERRIDE_POLICY", "some", "'none', 'allowlist' or 'all'"),
        ("DROVER_WORKER_LISTEN", "0.0.0.0:7411", "DROVER_WORKER_ADVERTISED must be given"),
        ("DROVER_WORKER_ADVERTISED", "host:0", "must not be 0"),
        ("DROVER_WORKER_ADVERTISED", "w:7411", "DROVER_WORKER_INTERNAL_LISTEN must be given"),
        ("DROVER_WORKER_LISTEN", "10.0.0.1:7411", "DROVER_WORKER_INTERNAL_LISTEN must be given"),
        (
            *("DROVER_WORKER_INTERNAL_LISTEN", "0.0.0.0:7421"),
            "DROVER_WORKER_INTERNAL_ADVERTISED must be given",
        ),
        ("DROVER_SESSION_TIMEOUT_MS", "2000", "must be below"),
        ("DROVER_SESSION_TIMEOUT_MS", "soon", "integer"),
        ("DROVER_SPARK_CONF", "not json", "DROVER_SPARK_CONF must be a JSON object"),
        ("DROVER_SPARK_CONF", '{"spark.cores.max": 2}', "DROVER_SPARK_CONF spark.cores.max: "),
        ("DROVER_FILE_ROOTS", "/files,data", "absolute paths, not 'data'"),
        ("DROVER_ALLOWED_HOSTS", "a.example.com,http://b", "not 'http://b'"),
        ("DROVER_HTTP_ALLOWED_HOSTS", "a.example.com,http://b", "not 'http://b'"),
        ("DROVER_PLUGIN_MODULES", "mine,its-other", "modules: 'its-other' is not a module name"),
        ("DROVER_CONFIG_PROVIDERS", '{"file": {}}', "file: allowed.paths is required"),
        ("DROVER_CONFIG_PROVIDERS", '{"file": "/run"}', "DROVER_CONFIG_PROVIDERS file: "),
        ("DROVER_CONFIG_PROVIDERS", '{"a": {"connectors": []}}', "a: connectors is required"),
        ("DROVER_CONFIG_PROVIDERS", '{"a": {"connectors": [1]}}', "valid string"),
        ("DROVER_GROUP_ID", "g" * 256, "255"),
    ],
)
def test_a_bad_variable_is_told(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, fault: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(InvalidArgumentError) as caught:
        load_settings(WorkerSettings)
    assert any(fault in f"{v.field} {v.description}" for v in caught.value.violations)


@pytest.mark.parametrize("advertised", ["localhost:7411", "127.0.0.2:7411", "[::1]:7411"])
def test_on_loopback_workers_find_each_other_by_themselves(advertised: str) -> None:
    settings = load_settings(WorkerSettings, worker_advertised=advertised)
    assert settings.worker_internal_listen == "127.0.0.1:0"


def test_elsewhere_the_internal_port_is_where_it_is_put() -> None:
    settings = load_settings(
        WorkerSettings,
        worker_listen="0.0.0.0:7411",
        worker_advertised="w:7411",
        worker_internal_listen="0.0.0.0:7421",
        worker_internal_advertised="w:7421",
    )
    assert settings.herder_settings("w:7411", "w:7421").internal_url == "w:7421"


def test_a_worker_may_be_told_of_several_coordinators() -> None:
    settings = load_settings(WorkerSettings, coordinator_address="a:1,b:2")
    assert split_addresses(settings.coordinator_address) == ["a:1", "b:2"]


@pytest.mark.parametrize("addresses", ["a:1,b", "", ",", "a:1;b:2"])
def test_what_names_no_coordinators_is_refused(addresses: str) -> None:
    with pytest.raises(InvalidArgumentError, match="DROVER_COORDINATOR_ADDRESS"):
        load_settings(WorkerSettings, coordinator_address=addresses)


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({}, ""),
        ({"DROVER_OFFSET_STORAGE_TOPIC": "connect-offsets"}, "by default"),
        (
            {
                "DROVER_OFFSET_STORAGE_TOPIC": "connect-offsets",
                "DROVER_EXACTLY_ONCE_SOURCE_SUPPORT": "enabled",
            },
            "",
        ),
        ({"DROVER_EXACTLY_ONCE_SOURCE_SUPPORT": "disabled"}, "is disabled on this worker"),
        ({"DROVER_EXACTLY_ONCE_SOURCE_SUPPORT": "preparing"}, "is preparing on this worker"),
        ({"DROVER_SPARK_MASTER": "spark://host:7077"}, ""),
    ],
)
def test_sources_are_exactly_once_unless_somebody_may_read_around_it(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], reason: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    told = load_settings(WorkerSettings).engine_settings().not_exactly_once
    assert reason in told
    assert bool(reason) == bool(told)


def test_spark_settings_that_open_its_ports_are_refused_all_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("TLS_CERT", "TLS_KEY", "TLS_CA", "ACCESS_FILE"):
        monkeypatch.setenv(f"DROVER_{name}", "/certs/file")
    monkeypatch.setenv("DROVER_ALLOW_PLAINTEXT", "false")
    monkeypatch.setenv("DROVER_SPARK_MASTER", "spark://m:7077")
    conf = '{"spark.authenticate": "false", "spark.ui.enabled": "true"}'
    monkeypatch.setenv("DROVER_SPARK_CONF", conf)
    with pytest.raises(InvalidArgumentError) as caught:
        load_settings(WorkerSettings)
    (violation,) = caught.value.violations
    for part in ("must not set spark.authenticate=false", "spark.ui.enabled=true", "must set"):
        assert part in violation.description
