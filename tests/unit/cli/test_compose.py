"""docker-compose.yml and the Dockerfiles against the code they start."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from drover.rpc.settings import ServiceSettings, split_address

ROOT = Path(__file__).parents[3]
SERVICES = {"coordinator": 7401, "config-store": 7402, "status-store": 7403}
WORKERS = ["worker-1", "worker-2"]


#: What runs only when its profile is asked for.
OBSERVABILITY = ["grafana", "prometheus"]


@pytest.fixture(scope="module")
def everything() -> dict[str, Any]:
    loaded = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


@pytest.fixture(scope="module")
def compose(everything: dict[str, Any]) -> dict[str, Any]:
    """The cluster itself."""
    own = {n: each for n, each in everything["services"].items() if n not in OBSERVABILITY}
    return {**everything, "services": own}


def settings_fields(module: str) -> set[str]:
    """The names of the variables that a service reads."""
    found = __import__(f"drover_{module}.settings", fromlist=["settings"])
    return {
        f"DROVER_{field.upper()}"
        for value in vars(found).values()
        if isinstance(value, type) and issubclass(value, ServiceSettings)
        for field in value.model_fields
    }


def test_the_cluster_is_three_services_and_two_workers(compose: dict[str, Any]) -> None:
    assert set(compose["services"]) == {*SERVICES, *WORKERS}
    for service in compose["services"].values():
        assert "data:/var/drover" in service["volumes"]
        assert (ROOT / service["build"]["dockerfile"]).is_file()


def test_each_is_healthy_when_its_own_port_serves(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        kind = "WORKER" if name in WORKERS else name.upper().replace("-", "_")
        address = service["environment"][f"DROVER_{kind}_LISTEN"]
        _, port = split_address(address)
        assert port == SERVICES.get(name, 7411)
        assert service["healthcheck"]["test"] == [
            *("CMD", "python", "-m", "drover.cli.health", f"127.0.0.1:{port}")
        ]


def test_the_addresses_lead_to_the_services(compose: dict[str, Any]) -> None:
    for name in WORKERS:
        environment = compose["services"][name]["environment"]
        for service, port in SERVICES.items():
            variable = f"DROVER_{service.upper().replace('-', '_')}_ADDRESS"
            assert environment[variable] == f"{service}:{port}"
        assert environment["DROVER_WORKER_ADVERTISED"] == f"{name}:7411"
        assert environment["DROVER_WORKER_INTERNAL_LISTEN"] == "0.0.0.0:7421"
        assert environment["DROVER_WORKER_INTERNAL_ADVERTISED"] == f"{name}:7421"


def test_workers_wait_for_healthy_services(compose: dict[str, Any]) -> None:
    for name in WORKERS:
        assert compose["services"][name]["depends_on"] == {
            service: {"condition": "service_healthy"} for service in SERVICES
        }


@pytest.mark.parametrize("name", [*SERVICES, *WORKERS])
def test_every_variable_is_a_setting_of_the_service(compose: dict[str, Any], name: str) -> None:
    service = compose["services"][name]
    module = service["build"].get("args", {}).get("SERVICE", "worker")
    assert (
        ROOT / "services" / module.replace("_", "-") / f"drover_{module}" / "__main__.py"
    ).is_file()
    own = settings_fields(module)
    everyone = own | settings_fields("worker")
    for variable in service["environment"]:
        assert variable in everyone, f"{variable} is no setting"
        assert variable in own or variable.endswith("_ADDRESS"), f"{variable} is not for {name}"


def test_the_images_hold_what_they_start() -> None:
    service = (ROOT / "deploy/service.Dockerfile").read_text(encoding="utf-8")
    worker = (ROOT / "deploy/worker.Dockerfile").read_text(encoding="utf-8")
    for text in (service, worker):
        for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
            for source in sources.split():
                assert (ROOT / source).exists(), f"{source} is copied but not there"
        assert text.count("--constraint") == 2
    assert "drover_$DROVER_SERVICE" in service
    assert "java" not in service.partition("\n")[2].lower()
    assert '"drover_worker"' in worker


def test_old_and_new_versions_of_compose_can_read_it(compose: dict[str, Any]) -> None:
    # docker-compose 1.29 refuses the whole file for a newer key, such as start_interval
    for service in compose["services"].values():
        assert set(service["healthcheck"]) <= {
            *("test", "interval", "timeout", "retries", "start_period")
        }


def test_only_workers_are_published_and_only_on_loopback(compose: dict[str, Any]) -> None:
    published = {n: s["ports"] for n, s in compose["services"].items() if "ports" in s}
    assert published == {
        "worker-1": ["127.0.0.1:7411:7411"],
        "worker-2": ["127.0.0.1:7412:7411"],
    }


def test_workers_share_one_volume_for_files_that_the_images_let_them_write(
    compose: dict[str, Any],
) -> None:
    for name in WORKERS:
        assert "${DROVER_FILES:-files}:/files" in compose["services"][name]["volumes"]
    for service in compose["services"].values():
        for mount in service["volumes"]:
            volume, _, directory = mount.rpartition(":")
            assert volume.removeprefix("${DROVER_FILES:-").rstrip("}") in compose["volumes"]
            dockerfile = (ROOT / service["build"]["dockerfile"]).read_text(encoding="utf-8")
            assert re.search(rf"install -d -o drover .*{directory}\b", dockerfile)


def test_every_build_argument_is_known_to_its_dockerfile(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        dockerfile = (ROOT / service["build"]["dockerfile"]).read_text(encoding="utf-8")
        for argument in service["build"]["args"]:
            assert re.search(rf"^ARG {argument}\b", dockerfile, re.MULTILINE)


def test_the_images_are_of_the_same_wheels() -> None:
    build_stages = []
    for name in ("service", "worker"):
        text = (ROOT / f"deploy/{name}.Dockerfile").read_text(encoding="utf-8")
        steps = [line for line in text.splitlines() if not line.startswith("#")]
        build_stages.append(steps[: steps.index("FROM ${PYTHON_IMAGE}") + 1])
    assert build_stages[0] == build_stages[1]
    assert any("python -m build" in step for step in build_stages[0])


@pytest.mark.parametrize("name", ["service", "worker"])
def test_a_process_runs_as_drover_and_is_told_to_stop(name: str) -> None:
    text = (ROOT / f"deploy/{name}.Dockerfile").read_text(encoding="utf-8")
    assert re.findall(r"^USER (\S+)", text, re.MULTILINE) == ["drover"]
    (command,) = re.findall(r"^CMD (.+)", text, re.MULTILINE)
    words = json.loads(command)  # a list: with a bare command the shell would get the signal
    assert words[0] == "python" or words[2].startswith("exec python ")


def test_the_build_context_is_what_a_clean_clone_has_and_the_images_copy() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert lines.index("*") < min(n for n, line in enumerate(lines) if line.startswith("!"))
    allowed = {line[1:] for line in lines if line.startswith("!")}
    copied: set[str] = set()
    for name in ("service", "worker"):
        text = (ROOT / f"deploy/{name}.Dockerfile").read_text(encoding="utf-8")
        for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
            copied |= {source.split("/")[0] for source in sources.split()}
    assert copied == allowed
    assert "shared/drover/api/*/" in lines


def test_the_settings_that_the_deploy_guide_lists_exist() -> None:
    guide = (ROOT / "deploy/README.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(DROVER_[A-Z_]+)`", guide, re.MULTILINE))
    known: set[str] = set()
    for module in ("coordinator", "config_store", "status_store", "worker"):
        known |= settings_fields(module)
    assert listed <= known
    assert len(listed) > 15


def test_prometheus_asks_every_process(compose: dict[str, Any]) -> None:
    text = (ROOT / "deploy/observability/prometheus-compose.yml").read_text(encoding="utf-8")
    config = yaml.safe_load(text)
    (job,) = config["scrape_configs"]
    asked = {target for each in job["static_configs"] for target in each["targets"]}
    _, port = split_address(compose["x-service"]["environment"]["DROVER_METRICS_LISTEN"])
    assert asked == {f"{name}:{port}" for name in compose["services"]}
    for service in compose["services"].values():
        assert service["environment"]["DROVER_METRICS_LISTEN"] == f"0.0.0.0:{port}"
    other = yaml.safe_load((ROOT / "deploy/observability/prometheus.yml").read_text("utf-8"))
    # but for where the processes are, as for a cluster of `drover up`
    for each in (job, other["scrape_configs"][0]):
        each.pop("static_configs", None)
        each.pop("file_sd_configs", None)
    assert config == other


def test_prometheus_and_grafana_run_when_asked_for_with_what_we_ship(
    everything: dict[str, Any],
) -> None:
    for name in OBSERVABILITY:
        service = everything["services"][name]
        assert service["profiles"] == ["observability"]
        assert [each.startswith("127.0.0.1:") for each in service["ports"]] == [True]
        for mount in service["volumes"]:
            source = mount.split(":")[0]
            if source.startswith("./"):
                assert mount.endswith(":ro")
                assert (ROOT / source).exists(), source
            else:
                assert source in everything["volumes"]
    provider = yaml.safe_load(
        (ROOT / "deploy/observability/grafana/provisioning/dashboards/drover.yml").read_text(
            "utf-8"
        )
    )
    path = provider["providers"][0]["options"]["path"]
    mounts = everything["services"]["grafana"]["volumes"]
    assert f"./deploy/observability/grafana/dashboards:{path}:ro" in mounts
