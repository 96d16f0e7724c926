"""docker-compose.yml and the Dockerfiles against the code they start."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from drover.rpc.settings import ProcessSettings, split_address
from drover.security.certificates import is_for, read_certificate
from drover.security.development_ca import files_of
from drover_worker.engine.class_archive import INSTALLED_ARCHIVES

ROOT = Path(__file__).parents[3]
SERVICES = {"coordinator": 7401, "config-store": 7402, "status-store": 7403}
LISTENING = [*SERVICES, "worker"]
#: Services that run only with their profile.
PROFILES = {"drover": "cli", "grafana": "observability", "prometheus": "observability"}
NETWORK = "${DROVER_NETWORK:-drover.internal}"


@pytest.fixture(scope="module")
def everything() -> dict[str, Any]:
    loaded = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


@pytest.fixture(scope="module")
def compose(everything: dict[str, Any]) -> dict[str, Any]:
    """The file with the cluster's services alone."""
    own = {n: each for n, each in everything["services"].items() if n in LISTENING}
    return {**everything, "services": own}


@pytest.fixture(scope="module")
def ours(everything: dict[str, Any]) -> dict[str, Any]:
    """The services whose images are built here."""
    return {n: each for n, each in everything["services"].items() if "build" in each}


def settings_fields(module: str) -> set[str]:
    """The names of the variables that a service reads."""
    found = __import__(f"drover_{module}.settings", fromlist=["settings"])
    return {
        f"DROVER_{field.upper()}"
        for value in vars(found).values()
        if isinstance(value, type) and issubclass(value, ProcessSettings)
        for field in value.model_fields
    }


def test_the_cluster_is_three_services_and_two_workers(everything: dict[str, Any]) -> None:
    profiles = {n: each.get("profiles") for n, each in everything["services"].items()}
    always = {name for name, wanted in profiles.items() if wanted is None}
    assert always == {"certs", "forwarder", "gateway", *LISTENING}
    assert {n: wanted[0] for n, wanted in profiles.items() if wanted} == PROFILES
    assert everything["services"]["worker"]["scale"] == 2


def test_each_is_healthy_when_its_own_port_serves(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        address = service["environment"][f"DROVER_{name.upper().replace('-', '_')}_LISTEN"]
        _, port = split_address(address)
        assert port == SERVICES.get(name, 7411)
        assert service["healthcheck"]["test"] == [
            *("CMD", "python", "-m", "drover.local.health", f"127.0.0.1:{port}")
        ]


def test_the_addresses_lead_to_the_services(compose: dict[str, Any]) -> None:
    environment = compose["services"]["worker"]["environment"]
    for service, port in SERVICES.items():
        variable = f"DROVER_{service.upper().replace('-', '_')}_ADDRESS"
        assert environment[variable] == f"{service}:{port}"
    assert environment["DROVER_WORKER_ADVERTISED"] == f"{{hostname}}.{NETWORK}:7411"
    assert environment["DROVER_WORKER_INTERNAL_LISTEN"] == "0.0.0.0:7421"
    assert environment["DROVER_WORKER_INTERNAL_ADVERTISED"] == f"{{hostname}}.{NETWORK}:7421"
    assert compose["networks"]["default"]["name"] == NETWORK


def test_each_waits_for_certificates_and_workers_for_healthy_services(
    compose: dict[str, Any],
) -> None:
    certs = {"certs": {"condition": "service_completed_successfully"}}
    for name in SERVICES:
        assert compose["services"][name]["depends_on"] == certs
    assert compose["services"]["worker"]["depends_on"] == {
        **certs,
        **{service: {"condition": "service_healthy"} for service in SERVICES},
    }


def test_everybody_speaks_tls_with_what_the_certs_service_puts_there(
    everything: dict[str, Any], compose: dict[str, Any], tmp_path: Path
) -> None:
    certs = everything["services"]["certs"]
    (script,) = certs["command"][2:]
    there = tmp_path / "bin"
    there.mkdir()
    (there / "drover").write_text(f'#!/bin/sh\nexec {sys.executable} -m drover.cli.main "$@"\n')
    (there / "drover").chmod(0o755)
    for each in ("authority", "certs", "gateway", "clients"):
        (tmp_path / each).mkdir()
        script = script.replace(f"/{each}", f"{tmp_path}/{each}")
    environ = {"PATH": f"{there}:{os.environ['PATH']}", "DROVER_NETWORK": "drover.internal"}
    run = ("sh", "-euc", script.replace("$$", "$"))
    subprocess.run(run, env=environ, check=True, capture_output=True, text=True)
    made = {
        each: {p.name for p in (tmp_path / each).iterdir()}
        for each in ("certs", "gateway", "clients")
    }
    assert made["certs"] == {"access.yaml", "ca.pem", "service-key.pem", "service.pem"}
    people = {
        f"{role}{end}.pem" for role in ("admin", "operator", "viewer") for end in ("", "-key")
    }
    assert made["clients"] == {"ca.pem", *people}
    assert made["gateway"] == {"ca.pem", "gateway.pem", "gateway-key.pem"}
    assert is_for(read_certificate(files_of(tmp_path / "gateway", "gateway")), "gateway")
    again = subprocess.run(run, env=environ, check=True, capture_output=True, text=True)
    assert again.stdout.startswith("kept ")
    own = read_certificate(files_of(tmp_path / "certs", "service"))
    for host in (*LISTENING, "3f2a1b.drover.internal", "localhost"):
        assert is_for(own, host)
    for service in compose["services"].values():
        told = {
            name: service["environment"][f"DROVER_{name}"]
            for name in ("TLS_CERT", "TLS_KEY", "TLS_CA", "ACCESS_FILE")
        }
        assert set(told.values()) == {f"/certs/{name}" for name in made["certs"]}
        assert "DROVER_ALLOW_PLAINTEXT" not in service["environment"]
        assert "certs:/certs:ro" in service["volumes"]
        assert not any(each.startswith(("authority", "clients")) for each in service["volumes"])


def test_the_command_comes_from_a_client(everything: dict[str, Any]) -> None:
    service = everything["services"]["drover"]
    assert service["volumes"] == ["clients:/clients:ro"]
    assert service["environment"]["DROVER_TLS_CERT"] == "/clients/${DROVER_AS:-admin}.pem"
    assert service["environment"]["DROVER_ADDRESS"] == "worker:7411"


@pytest.mark.parametrize("name", LISTENING)
def test_every_variable_is_a_setting_of_the_service(compose: dict[str, Any], name: str) -> None:
    environment = dict(compose["services"][name]["environment"])
    module = name.replace("-", "_")
    assert environment.pop("DROVER_SERVICE", "drover_worker") == f"drover_{module}"
    assert (ROOT / f"services/{name}/drover_{module}/__main__.py").is_file()
    own = settings_fields(module)
    everyone = own | settings_fields("worker")
    for variable in environment:
        assert variable in everyone, f"{variable} is no setting"
        assert variable in own or variable.endswith("_ADDRESS"), f"{variable} is not for {name}"


def test_nobody_is_root_or_writes_anywhere_but_in_volumes(ours: dict[str, Any]) -> None:
    for service in ours.values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["tmpfs"] == ["/tmp:exec,mode=1777"]


def test_the_images_hold_what_they_start() -> None:
    service = (ROOT / "deploy/service.Dockerfile").read_text(encoding="utf-8")
    worker = (ROOT / "deploy/worker.Dockerfile").read_text(encoding="utf-8")
    for text in (service, worker):
        for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
            for source in sources.split():
                assert (ROOT / source).exists(), f"{source} is copied but not there"
        assert text.count("--require-hashes") == 2
        (extras,) = re.findall(r"pyproject\.toml(?:\[(.*)\]')? > ", text)
        assert extras == "" if text is service else set(extras.split(",")) == every_extra()
    needed = re.findall(r"needed\.py requirements\.lock (.+) > ", service)[-1].split()
    assert set(needed) == {*every_library_of_the_gateway(), "pyproject.toml"}
    assert "java" not in service.partition("\n")[2].lower()
    assert '"drover_worker"' in worker


def every_library_of_the_gateway() -> set[str]:
    """The libraries that only the gateway needs, also for its extras."""
    text = (ROOT / "services/gateway/pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    extras = [each for extra in project["optional-dependencies"].values() for each in extra]
    names = {re.split(r"[<>=\[ ]", each)[0] for each in (*project["dependencies"], *extras)}
    return names - {"drover-connect"}


def every_extra() -> set[str]:
    """The extras that a worker may need."""
    text = (ROOT / "shared/pyproject.toml").read_text(encoding="utf-8")
    return set(tomllib.loads(text)["project"]["optional-dependencies"]) - {"all", "cluster"}


def test_old_and_new_versions_of_compose_can_read_it(compose: dict[str, Any]) -> None:
    # docker-compose 1.29 refuses the whole file for a newer key, such as start_interval
    for service in compose["services"].values():
        assert set(service["healthcheck"]) <= {
            *("test", "interval", "timeout", "retries", "start_period")
        }


def test_only_forwarder_and_gateway_are_published_and_only_on_loopback(
    everything: dict[str, Any],
) -> None:
    published = {n: s["ports"] for n, s in everything["services"].items() if "ports" in s}
    assert published.pop("forwarder") == ["127.0.0.1:${DROVER_PORT:-7411}:7411"]
    assert published.pop("gateway") == ["127.0.0.1:${DROVER_REST_PORT:-8083}:8083"]
    assert set(published) == {n for n, profile in PROFILES.items() if profile == "observability"}
    forwarder = everything["services"]["forwarder"]
    assert forwarder["command"][1:] == [
        "-m",
        "drover.local.fleet_address",
        "0.0.0.0:7411",
        "worker:7411",
    ]
    assert "volumes" not in forwarder, "the forwarder needs no key"


def test_the_gateway_has_only_its_own_certificate(everything: dict[str, Any]) -> None:
    gateway = everything["services"]["gateway"]
    environment = dict(gateway["environment"])
    assert environment.pop("DROVER_SERVICE") == "drover_gateway"
    assert set(environment) <= settings_fields("gateway")
    assert environment["DROVER_GATEWAY_WORKERS"] == "worker:7411"
    for name, file in (("CERT", "gateway.pem"), ("KEY", "gateway-key.pem"), ("CA", "ca.pem")):
        assert environment[f"DROVER_TLS_{name}"] == f"/gateway/{file}"
    assert gateway["volumes"] == ["gateway:/gateway:ro"]
    assert gateway["healthcheck"]["test"][-1] == "https://127.0.0.1:8083"


def test_every_volume_is_one_that_the_image_lets_its_user_write(
    ours: dict[str, Any], everything: dict[str, Any]
) -> None:
    assert "${DROVER_FILES:-files}:/files" in ours["worker"]["volumes"]
    for service in ours.values():
        dockerfile = (ROOT / service["build"]["dockerfile"]).read_text(encoding="utf-8")
        for mount in service.get("volumes", ()):
            volume, directory = re.fullmatch(r"(.+?):(/\w[\w/]*)(?::ro)?", mount).groups()  # type: ignore[union-attr]
            assert volume.removeprefix("${DROVER_FILES:-").rstrip("}") in everything["volumes"]
            assert re.search(rf"install -d -o drover .*{directory}\b", dockerfile), mount


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
        build_stages.append(steps[: steps.index("FROM ${PYTHON_IMAGE} AS needed")])
    assert build_stages[0] == build_stages[1]
    assert any("python -m build" in step for step in build_stages[0])


@pytest.mark.parametrize("name", ["service", "worker"])
def test_a_process_runs_as_drover_and_is_told_to_stop(name: str) -> None:
    text = (ROOT / f"deploy/{name}.Dockerfile").read_text(encoding="utf-8")
    assert re.findall(r"^USER (\S+)", text, re.MULTILINE) == ["drover"]
    (command,) = re.findall(r"^CMD (.+)", text, re.MULTILINE)
    words = json.loads(command)  # a list: with a string, a shell would get the signal
    assert words[0] == "python" or words[2].startswith("exec python ")


def test_the_image_of_workers_has_an_archive_of_classes_that_every_user_can_take() -> None:
    text = (ROOT / "deploy/worker.Dockerfile").read_text(encoding="utf-8")
    (folder,) = re.findall(r"drover_worker\.engine\.class_archive (\S+)", text)
    assert Path(folder) == Path("/opt/drover") / INSTALLED_ARCHIVES.relative_to(sys.prefix)
    assert text.index(folder) < text.index("chmod -R a+rX") < text.index("USER drover")


def test_without_being_told_a_service_the_image_says_what_it_lacks() -> None:
    text = (ROOT / "deploy/service.Dockerfile").read_text(encoding="utf-8")
    (command,) = re.findall(r"^CMD (.+)", text, re.MULTILINE)
    ended = subprocess.run(json.loads(command), env={}, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert "DROVER_SERVICE: is to name the module of a service" in ended.stderr


def test_the_build_context_is_what_a_clean_clone_has_and_the_images_copy() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert lines.index("*") < min(n for n, line in enumerate(lines) if line.startswith("!"))
    allowed = {line[1:] for line in lines if line.startswith("!")}
    copied: set[str] = set()
    known = tuple(allowed)
    for name in ("service", "worker"):
        text = (ROOT / f"deploy/{name}.Dockerfile").read_text(encoding="utf-8")
        for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
            for source in sources.split():
                assert source.startswith(known), source
                copied |= {
                    each for each in known if source == each or source.startswith(f"{each}/")
                }
    assert copied == allowed
    assert "shared/drover/api/*/" in lines


def test_the_settings_that_the_deploy_guide_lists_exist() -> None:
    guide = (ROOT / "deploy/README.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(DROVER_[A-Z_]+)`", guide, re.MULTILINE))
    known: set[str] = set()
    for module in ("coordinator", "config_store", "gateway", "status_store", "worker"):
        known |= settings_fields(module)
    assert listed <= known
    assert len(listed) > 15


def test_prometheus_asks_every_process(compose: dict[str, Any]) -> None:
    text = (ROOT / "deploy/observability/prometheus-compose.yml").read_text(encoding="utf-8")
    config = yaml.safe_load(text)
    (job,) = config["scrape_configs"]
    asked = {target for each in job["static_configs"] for target in each["targets"]}
    _, port = split_address(compose["x-service"]["environment"]["DROVER_METRICS_LISTEN"])
    (found,) = job["dns_sd_configs"]
    assert (found["names"], found["type"], str(found["port"])) == (["worker"], "A", str(port))
    assert asked == {f"{name}:{port}" for name in (*SERVICES, "gateway")}
    for service in compose["services"].values():
        assert service["environment"]["DROVER_METRICS_LISTEN"] == f"0.0.0.0:{port}"
    other = yaml.safe_load((ROOT / "deploy/observability/prometheus.yml").read_text("utf-8"))
    # the two files differ only in their targets
    for each in (job, other["scrape_configs"][0]):
        each.pop("static_configs", None)
        each.pop("file_sd_configs", None)
        each.pop("dns_sd_configs", None)
    assert config == other


def test_prometheus_and_grafana_run_when_asked_for_with_what_we_ship(
    everything: dict[str, Any],
) -> None:
    for name in ("prometheus", "grafana"):
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
