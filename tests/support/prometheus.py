"""A real Prometheus on loopback, with the shipped configuration."""

import json
import math
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from tests.support.addresses import free_address
from tests.support.debian import program
from tests.support.repository import REPOSITORY
from tests.support.waiting import wait_until

PACKAGE = "prometheus"
OBSERVABILITY = REPOSITORY / "deploy/observability"


@dataclass(frozen=True)
class Prometheus:
    """A running server."""

    address: str

    def query(self, expression: str) -> list[Mapping[str, Any]]:
        """The series of an instant query whose value is a number."""
        found = self.get("query", query=expression)["result"]
        return [each for each in found if not math.isnan(float(each["value"][1]))]

    def value(self, expression: str) -> float:
        """The value of the one series of an instant query."""
        (series,) = self.query(expression)
        return float(series["value"][1])

    def names(self) -> set[str]:
        """The names of all series."""
        return set(self.get("label/__name__/values"))

    def targets(self) -> Mapping[str, str]:
        """The scraped addresses and their health: up, down or unknown."""
        active = self.get("targets", state="active")["activeTargets"]
        return {each["scrapeUrl"]: each["health"] for each in active}

    def firing(self) -> list[Mapping[str, str]]:
        """The labels of the firing alerts."""
        alerts = self.get("alerts")["alerts"]
        return [each["labels"] for each in alerts if each["state"] == "firing"]

    def get(self, path: str, **parameters: str) -> Any:
        """The response of its API."""
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path} {parameters}: {error.read().decode()}") from error


def expressions(rate_interval: str) -> Iterator[tuple[str, str]]:
    """Every query of every dashboard with its place, for all connectors, tasks and groups.

    ``rate_interval`` is the value that Grafana would insert: at least four scrape intervals.
    """
    for path in sorted((OBSERVABILITY / "grafana/dashboards").glob("*.json")):
        dashboard = json.loads(path.read_text(encoding="utf-8"))
        variables = {f"${each['name']}": ".*" for each in dashboard["templating"]["list"]}
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                expression = target["expr"]
                for name, value in {**variables, "$__rate_interval": rate_interval}.items():
                    expression = expression.replace(name, value)
                yield f"{path.stem}: {panel['title']}", expression


@contextmanager
def running_prometheus(
    directory: Path,
    targets: Sequence[str],
    *,
    replaced: Mapping[str, tuple[str, str]] = MappingProxyType({}),
    scrape_s: int = 2,
) -> Iterator[Prometheus]:
    """A server that scrapes these targets; alerts fire after one second instead of minutes.

    ``replaced`` maps an alert to a part of its expression, for example a long interval, and the
    replacement. A process with many series needs a longer ``scrape_s``, which is also the timeout.
    """
    config = yaml.safe_load((OBSERVABILITY / "prometheus.yml").read_text(encoding="utf-8"))
    rules = yaml.safe_load((OBSERVABILITY / "alerts.yml").read_text(encoding="utf-8"))
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        rule["for"] = "1s"
        old, new = replaced.get(rule["alert"], ("", ""))
        assert old in rule["expr"], rule
        rule["expr"] = rule["expr"].replace(old, new)
    (directory / "alerts.yml").write_text(yaml.safe_dump(rules))
    (directory / "targets.json").write_text(json.dumps([{"targets": list(targets)}]))
    config["global"] = {"scrape_interval": f"{scrape_s}s", "evaluation_interval": "1s"}
    (job,) = config["scrape_configs"]
    job["scrape_timeout"] = f"{scrape_s}s"
    job["file_sd_configs"][0]["files"] = [str(directory / "targets.json")]
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = free_address()
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                str(program("prometheus", PACKAGE)),
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'tsdb'}",
                f"--web.listen-address={address}",
            ],
            stdout=log,
            stderr=log,
        )
    try:

        def ready() -> bool:
            told = (directory / "prometheus.log").read_text(errors="replace")
            assert process.poll() is None, f"prometheus ended: {told[-2_000:]}"
            with suppress(OSError):
                urllib.request.urlopen(f"http://{address}/-/ready", timeout=5).close()
                return True
            return False

        wait_until(ready, describe="Prometheus is ready")
        yield Prometheus(address)
    finally:
        process.kill()
        process.wait()
