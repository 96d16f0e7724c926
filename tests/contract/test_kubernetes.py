"""deploy/kubernetes: valid by the schemas of Kubernetes, and with settings that Drover has."""

import json
import re
from typing import Any

import kubernetes_validate
import pytest
import yaml

from drover_worker.engine.spark_protection import needs_given_secret
from tests.support.repository import REPOSITORY

FOLDER = REPOSITORY / "deploy" / "kubernetes"
#: The oldest and the newest release that is checked.
RELEASES = ("1.30", "1.36")


def documents() -> list[dict[str, Any]]:
    """All objects of the folder."""
    found = []
    for file in sorted(FOLDER.glob("*.yaml")):
        found += list(yaml.safe_load_all(file.read_text(encoding="utf-8")))
    return found


def named(kind: str) -> dict[str, Any]:
    """The only object of a kind."""
    (found,) = (each for each in documents() if each["kind"] == kind)
    return found


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("document", documents(), ids=lambda each: each["kind"])
def test_each_object_is_valid(document: dict[str, Any], release: str) -> None:
    kubernetes_validate.validate(document, release, strict=True)


def test_an_object_with_an_unknown_field_is_refused() -> None:
    wrong = named("Pod")
    wrong["spec"]["contaners"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, RELEASES[1], strict=True)


def test_workers_have_settings_that_exist() -> None:
    (container,) = named("StatefulSet")["spec"]["template"]["spec"]["containers"]
    environment = {each["name"]: each.get("value", "") for each in container["env"]}
    own = {name for name in environment if name.startswith("DROVER_")}
    files = (REPOSITORY / "docker-compose.yml", *(REPOSITORY / "docs").glob("*.md"))
    known = set[str]().union(*(re.findall(r"DROVER_[A-Z_]+", each.read_text()) for each in files))
    assert own <= known
    conf = json.loads(environment["DROVER_SPARK_CONF"])
    assert {type(each) for each in conf.values()} == {str}
    for variable in re.findall(r"\$\((\w+)\)", environment["DROVER_SPARK_CONF"]):
        assert variable in environment
    assert not needs_given_secret(environment["DROVER_SPARK_MASTER"])
    template = conf["spark.kubernetes.executor.podTemplateFile"]
    mounts = {each["mountPath"] for each in container["volumeMounts"]}
    assert template.rpartition("/")[0] in mounts
    assert template.rpartition("/")[2] == "executor.yaml"
    assert conf["spark.kubernetes.container.image"] == container["image"]
