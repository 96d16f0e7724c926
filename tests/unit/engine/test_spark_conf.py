"""Spark's settings for an engine."""

import socket
import tempfile
import uuid
from pathlib import Path

import pytest

from drover.log.storage import EmbeddedStorage
from drover_worker.engine.session import spark_conf
from drover_worker.engine.settings import EngineSettings
from drover_worker.engine.spark_protection import (
    AUTHENTICATE,
    CIPHER,
    ENCRYPT_CONNECTIONS,
    ENCRYPT_FILES,
    OLD_ENCRYPTION,
    SAFE_CIPHER,
    SECRET,
)
from drover_worker.spark_security import spark_faults

ENABLED = "spark.python.unix.domain.socket.enabled"
FOLDER = "spark.python.unix.domain.socket.dir"
STORAGE = EmbeddedStorage(Path("/nowhere"))


def folder_of(length: int) -> Path:
    return Path("/" + "d" * (length - 1))


def test_python_workers_of_this_machine_talk_through_unix_sockets() -> None:
    conf = spark_conf(EngineSettings(storage=STORAGE), Path("/tmp/engine"))
    assert (conf[ENABLED], conf[FOLDER]) == ("true", "/tmp/engine")


def test_a_folder_whose_sockets_would_have_too_long_a_path_has_none() -> None:
    settings = EngineSettings(storage=STORAGE)
    assert ENABLED in spark_conf(settings, folder_of(60))
    assert ENABLED not in spark_conf(settings, folder_of(61))


def test_the_longest_folder_takes_a_socket_of_sparks_name() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as parent:
        folder = Path(parent) / ("d" * (60 - len(parent) - 1))
        folder.mkdir()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
            server.bind(str(folder / f".{uuid.uuid4()}.sock"))


def test_executors_of_other_machines_have_none() -> None:
    settings = EngineSettings(storage=STORAGE, spark_master="spark://elsewhere:7077")
    assert ENABLED not in spark_conf(settings, Path("/tmp/engine"))


def test_the_jvm_of_this_machine_does_without_its_second_compiler_unless_the_user_says() -> None:
    options = "spark.driver.extraJavaOptions"
    conf = spark_conf(EngineSettings(storage=STORAGE), Path("/tmp/engine"))
    assert "-XX:TieredStopAtLevel=1" in conf[options].split()
    settings = EngineSettings(storage=STORAGE, spark_conf={options: "-XX:+UseSerialGC"})
    assert spark_conf(settings, Path("/tmp/engine"))[options] == "-XX:+UseSerialGC"


def test_remote_executors_get_the_policies() -> None:
    settings = EngineSettings(
        storage=STORAGE,
        spark_master="spark://a:1",
        file_roots="/files",
        client_override_policy="none",
    )
    conf = spark_conf(settings, Path("/tmp/engine"))
    assert conf["spark.executorEnv.DROVER_FILE_ROOTS"] == "/files"
    assert conf["spark.executorEnv.DROVER_CLIENT_OVERRIDE_POLICY"] == "none"


def test_a_users_setting_wins() -> None:
    settings = EngineSettings(storage=STORAGE, spark_conf={ENABLED: "false"})
    assert spark_conf(settings, Path("/tmp/engine"))[ENABLED] == "false"


def test_executors_elsewhere_call_the_driver_where_spark_finds_it_to_be() -> None:
    host = "spark.driver.host"
    here = spark_conf(EngineSettings(storage=STORAGE), Path("/tmp/engine"))
    assert here[host] == here["spark.driver.bindAddress"] == "127.0.0.1"
    elsewhere = EngineSettings(storage=STORAGE, spark_master="spark://m:7077")
    assert not {host, "spark.driver.bindAddress"} & set(spark_conf(elsewhere, Path("/tmp/engine")))
    told = EngineSettings(
        storage=STORAGE, spark_master="spark://m:7077", spark_conf={host: "w.example.com"}
    )
    assert spark_conf(told, Path("/tmp/engine"))[host] == "w.example.com"


def test_executors_elsewhere_have_the_policies_of_files_and_hosts() -> None:
    settings = EngineSettings(
        storage=STORAGE,
        spark_master="spark://m:7077",
        file_roots="/files",
        denied_files=("/files/key",),
        allowed_hosts="a",
    )
    conf = spark_conf(settings, Path("/tmp/engine"))
    assert conf["spark.executorEnv.DROVER_FILE_ROOTS"] == "/files"
    assert conf["spark.executorEnv.DROVER_DENIED_FILES"] == '["/files/key"]'
    assert conf["spark.executorEnv.DROVER_ALLOWED_HOSTS"] == "a"


ENCRYPTED = {
    AUTHENTICATE: "true",
    ENCRYPT_CONNECTIONS: "true",
    OLD_ENCRYPTION: "false",
    CIPHER: SAFE_CIPHER,
    ENCRYPT_FILES: "true",
}


def protected(master: str, **conf: str) -> dict[str, str]:
    """The engine's settings of authentication and encryption."""
    settings = EngineSettings(storage=STORAGE, spark_master=master, spark_conf=conf)
    found = spark_conf(settings, Path("/tmp/engine"))
    return {name: found[name] for name in (*ENCRYPTED, SECRET) if name in found}


def test_spark_authenticates_clients_of_its_ports_on_this_machine() -> None:
    assert protected("local[*]") == {AUTHENTICATE: "true"}


@pytest.mark.parametrize("master", ["yarn", "k8s://https://m"])
def test_connections_and_files_of_a_cluster_that_generates_secrets_are_encrypted(
    master: str,
) -> None:
    assert protected(master) == ENCRYPTED


def test_each_engine_with_executors_in_other_processes_has_its_own_secret() -> None:
    first, second = (protected("local-cluster[2,1,1024]") for _ in range(2))
    secret = first.pop(SECRET)
    assert first == ENCRYPTED
    assert len(secret) == 64
    assert secret != second[SECRET]


def test_a_standalone_cluster_is_encrypted_with_its_secret_and_not_at_all_without() -> None:
    assert protected("spark://m:7077", **{SECRET: "s"}) == {**ENCRYPTED, SECRET: "s"}
    file = {f"{SECRET}.file": "/run/secret"}
    assert protected("spark://m:7077", **file) == ENCRYPTED
    assert protected("spark://m:7077") == {}


@pytest.mark.parametrize(("memory", "limit"), [("1g", "512m"), ("6000m", "3000m"), ("?", "512m")])
def test_what_executors_send_takes_at_most_half_of_the_drivers_heap(
    memory: str, limit: str
) -> None:
    settings = EngineSettings(
        storage=STORAGE, spark_master="yarn", spark_conf={"spark.driver.memory": memory}
    )
    assert spark_conf(settings, Path("/tmp/engine"))["spark.driver.maxResultSize"] == limit


def test_executors_import_nothing_from_their_working_directory() -> None:
    elsewhere = EngineSettings(storage=STORAGE, spark_master="spark://m:7077")
    assert spark_conf(elsewhere, Path("/tmp/engine"))["spark.executorEnv.PYTHONSAFEPATH"] == "1"


OPENING = [
    (AUTHENTICATE, "false"),
    (AUTHENTICATE, " False "),
    (AUTHENTICATE, "no"),
    ("spark.ui.enabled", "true"),
    ("spark.ui.enabled", "TRUE"),
    (ENCRYPT_CONNECTIONS, "false"),
    ("spark.authenticate.enableSaslEncryption", "false"),
    ("spark.network.sasl.serverAlwaysEncrypt", "false"),
    (OLD_ENCRYPTION, "true"),
    (CIPHER, "AES/CTR/NoPadding"),
    (ENCRYPT_FILES, "false"),
    ("spark.network.crypto.config.any", "value"),
]


@pytest.mark.parametrize(("name", "value"), OPENING)
def test_a_secure_worker_refuses_settings_that_open_spark(name: str, value: str) -> None:
    (fault,) = spark_faults({name: value}, "local[*]", secure=True, plaintext_allowed=True)
    assert f"DROVER_SPARK_CONF must not set {name}" in fault
    assert "DROVER_ACCESS_FILE" in fault
    assert not spark_faults({name: value}, "local[*]", secure=False, plaintext_allowed=False)


@pytest.mark.parametrize(("name", "value"), OPENING)
def test_a_remote_master_refuses_them_unless_the_network_is_trusted(name: str, value: str) -> None:
    conf, master = {name: value, SECRET: "s"}, "spark://m:7077"
    (fault,) = spark_faults(conf, master, secure=False, plaintext_allowed=False)
    assert f"DROVER_SPARK_CONF must not set {name}" in fault
    assert master in fault
    assert not spark_faults(conf, master, secure=False, plaintext_allowed=True)


def test_a_secure_worker_takes_settings_that_do_not() -> None:
    conf = {**ENCRYPTED, AUTHENTICATE: "True", "spark.ui.enabled": "false"}
    conf |= {SECRET: "s", "spark.driver.memory": "4g"}
    assert not spark_faults(conf, "local[*]", secure=True, plaintext_allowed=False)


@pytest.mark.parametrize("name", ["spark.authenticate false", "spark.a\nspark.b", "x", "spark.a:b"])
def test_a_name_that_spark_would_read_as_another_one_is_refused(name: str) -> None:
    (fault,) = spark_faults({name: "true"}, "local[*]", secure=False, plaintext_allowed=True)
    assert repr(name) in fault


def test_a_standalone_cluster_needs_a_secret_or_a_trusted_network() -> None:
    master = "spark://m:7077"
    (fault,) = spark_faults({}, master, secure=False, plaintext_allowed=False)
    for part in (SECRET, master, "DROVER_ALLOW_PLAINTEXT=true"):
        assert part in fault
    assert not spark_faults({}, master, secure=True, plaintext_allowed=True)
    conf = {SECRET: "s"}
    assert not spark_faults(conf, master, secure=True, plaintext_allowed=False)


@pytest.mark.parametrize("master", ["yarn", "k8s://m", "local-cluster[2,1,512]"])
def test_a_cluster_that_generates_secrets_needs_none(master: str) -> None:
    assert not spark_faults({}, master, secure=False, plaintext_allowed=False)
