"""Spark's settings for an engine."""

import socket
import tempfile
import uuid
from pathlib import Path

import pytest

from drover.log.storage import EmbeddedStorage
from drover_worker.engine.session import spark_conf
from drover_worker.engine.settings import AUTHENTICATE, EngineSettings
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


def test_spark_authenticates_clients_of_its_ports_on_this_machine() -> None:
    assert spark_conf(EngineSettings(storage=STORAGE), Path("/tmp/engine"))[AUTHENTICATE] == "true"
    elsewhere = EngineSettings(storage=STORAGE, spark_master="spark://m:7077")
    assert AUTHENTICATE not in spark_conf(elsewhere, Path("/tmp/engine"))


def test_executors_import_nothing_from_their_working_directory() -> None:
    elsewhere = EngineSettings(storage=STORAGE, spark_master="spark://m:7077")
    assert spark_conf(elsewhere, Path("/tmp/engine"))["spark.executorEnv.PYTHONSAFEPATH"] == "1"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (AUTHENTICATE, "false"),
        (AUTHENTICATE, " False "),
        (AUTHENTICATE, "no"),
        ("spark.ui.enabled", "true"),
        ("spark.ui.enabled", "TRUE"),
        ("spark.network.crypto.enabled", "false"),
        ("spark.authenticate.enableSaslEncryption", "false"),
        ("spark.network.sasl.serverAlwaysEncrypt", "false"),
        ("spark.io.encryption.enabled", "false"),
    ],
)
def test_a_secure_worker_refuses_settings_that_open_spark(name: str, value: str) -> None:
    (fault,) = spark_faults({name: value}, "local[*]", secure=True, plaintext_allowed=True)
    assert f"DROVER_SPARK_CONF must not set {name}={value}" in fault
    assert "DROVER_ACCESS_FILE" in fault
    assert not spark_faults({name: value}, "local[*]", secure=False, plaintext_allowed=False)


def test_a_secure_worker_takes_settings_that_do_not() -> None:
    conf = {
        AUTHENTICATE: "True",
        "spark.ui.enabled": "false",
        "spark.network.crypto.enabled": "true",
        "spark.driver.memory": "4g",
    }
    assert not spark_faults(conf, "local[*]", secure=True, plaintext_allowed=False)


@pytest.mark.parametrize("master", ["spark://m:7077", "yarn", "k8s://m", "local-cluster[2,1,512]"])
def test_a_remote_master_needs_authentication_or_a_trusted_network(master: str) -> None:
    (fault,) = spark_faults({}, master, secure=False, plaintext_allowed=False)
    for part in ("spark.authenticate=true", master, "DROVER_ALLOW_PLAINTEXT=true"):
        assert part in fault
    assert not spark_faults({}, master, secure=True, plaintext_allowed=True)
    conf = {AUTHENTICATE: "true"}
    assert not spark_faults(conf, master, secure=True, plaintext_allowed=False)
