"""The pod that Spark makes of deploy/kubernetes/executor.yaml, and its command."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kubernetes_validate
import pytest
import yaml

from drover_worker.engine.spark_protection import protection
from tests.contract.test_kubernetes import FOLDER, RELEASES, named
from tests.support.addresses import HOST

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

MASTER = "k8s://https://kubernetes.default.svc"
#: Nothing listens there.
DRIVER_PORT = "1"
_TIMEOUT_S = 300


@pytest.fixture
def pod(spark: "SparkSession") -> dict[str, Any]:
    """The pod of the first executor of an engine, as Spark would send it to Kubernetes."""
    jvm: Any = spark._jvm
    conf = jvm.org.apache.spark.SparkConf(False)
    settings = {
        "spark.master": MASTER,
        "spark.app.name": "drover",
        "spark.driver.host": HOST,
        "spark.driver.port": DRIVER_PORT,
        "spark.authenticate.secret": "secret",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.kubernetes.namespace": "default",
        "spark.kubernetes.container.image": "drover-worker:latest",
        "spark.kubernetes.executor.podTemplateFile": str(FOLDER / "executor.yaml"),
        **protection(MASTER, {}),
    }
    for name, value in settings.items():
        conf.set(name, value)
    none = jvm.scala.Option.empty()
    profiles = getattr(getattr(jvm.org.apache.spark.resource, "ResourceProfile$"), "MODULE$")
    security = jvm.org.apache.spark.SecurityManager
    default = getattr(security, "$lessinit$greater$default$3")()
    made = jvm.org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBuilder().buildFromFeatures(
        jvm.org.apache.spark.deploy.k8s.KubernetesExecutorConf(conf, "app-1", "1", none, 0),
        security(conf, none, default),
        jvm.io.fabric8.kubernetes.client.KubernetesClientBuilder().build(),
        profiles.getOrCreateDefaultProfile(conf),
    )
    texts = jvm.io.fabric8.kubernetes.client.utils.Serialization
    found: dict[str, Any] = yaml.safe_load(texts.asYaml(made.pod().pod()))
    found["spec"]["containers"] = [yaml.safe_load(texts.asYaml(made.pod().container()))]
    return found


@pytest.mark.parametrize("release", RELEASES)
def test_the_pod_that_spark_makes_of_the_template_is_valid(
    pod: dict[str, Any], release: str
) -> None:
    kubernetes_validate.validate(pod, release, strict=True)
    (container,) = pod["spec"]["containers"]
    (template,) = named("Pod")["spec"]["containers"]
    assert container["command"] == template["command"]
    assert container["securityContext"] == template["securityContext"]
    assert not pod["spec"]["automountServiceAccountToken"]


def test_the_command_of_an_executor_starts_one_that_looks_for_its_driver(
    pod: dict[str, Any], tmp_path: Path
) -> None:
    (container,) = pod["spec"]["containers"]
    values: Mapping[str, str] = {each["name"]: each.get("value", HOST) for each in container["env"]}
    environment = {
        **{name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        **values,
        "SPARK_LOCAL_DIRS": str(tmp_path),
        "SPARK_LOCAL_IP": HOST,
    }
    ended = subprocess.run(
        [*container["command"], *container["args"]],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert ended.returncode
    # not a class that is missing, or an argument that Spark does not have
    assert f"Failed to connect to /{HOST}:{DRIVER_PORT}" in ended.stderr, ended.stderr[-3_000:]
