"""Alerts and dashboards name existing metrics; each alert has a docs section and a test."""

import json
import re
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
import yaml

from drover.metrics.metric import Kind
from drover.metrics.table import METRICS
from tests.support.repository import REPOSITORY

OBSERVABILITY = REPOSITORY / "deploy/observability"
DASHBOARDS = sorted((OBSERVABILITY / "grafana/dashboards").glob("*.json"))
PARTS = {Kind.SUMMARY: ("_count", "_sum"), Kind.HISTOGRAM: ("_bucket", "_count", "_sum")}
KNOWN = {f"{each.name}{part}": each for each in METRICS for part in PARTS.get(each.kind, ("",))}
NAME = re.compile(r"\b(?:drover|process)_[a-z_]+\b")
WIDTH = 24
#: Tests in which alerts fire.
FIRING = ("e2e/test_alerts*.py", "e2e/test_metrics.py", "kafka/test_alerts*.py")


def rules() -> list[dict[str, Any]]:
    text = (OBSERVABILITY / "alerts.yml").read_text(encoding="utf-8")
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


def dashboard(path: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def expressions(path: Any) -> list[str]:
    return [target["expr"] for panel in dashboard(path)["panels"] for target in panel["targets"]]


def faults_of(expression: str) -> list[str]:
    """Unknown metrics of an expression, and unknown labels of its selectors."""
    faults = [name for name in NAME.findall(expression) if name not in KNOWN]
    for name, selector in re.findall(r"\b((?:drover|process)_[a-z_]+)\{([^}]*)\}", expression):
        if name in KNOWN:
            labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector)) - {
                "instance",
                "job",
                "le",
            }
            faults += [f"{name}: {each}" for each in labels - set(KNOWN[name].labels)]
    return faults


def test_alerts_name_metrics_and_labels_that_there_are() -> None:
    assert {
        rule["alert"]: faults_of(rule["expr"]) for rule in rules() if faults_of(rule["expr"])
    } == {}


def test_each_alert_has_a_page_and_a_test() -> None:
    names = [rule["alert"] for rule in rules()]
    page = (REPOSITORY / "docs/alerts.md").read_text(encoding="utf-8")
    assert re.findall(r"^### (\w+)$", page, re.M) == names
    for rule in rules():
        assert rule["annotations"]["runbook"] == f"docs/alerts.md#{rule['alert'].lower()}"
        assert rule["annotations"]["summary"] in page
        assert rule["labels"]["severity"] in ("critical", "warning")
    text = (OBSERVABILITY / "alerts.test.yml").read_text(encoding="utf-8")
    fired = Counter(
        case["alertname"]
        for test in yaml.safe_load(text)["tests"]
        for case in test["alert_rule_test"]
        if case["exp_alerts"]
    )
    assert fired == Counter(names)


def test_each_alert_is_seen_to_fire_in_a_real_prometheus() -> None:
    paths = [path for each in FIRING for path in (REPOSITORY / "tests").glob(each)]
    seen = {name for path in paths for name in re.findall(r'"(Drover\w+)"', path.read_text())}
    assert {rule["alert"] for rule in rules()} - seen == set()


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda each: each.stem)
def test_a_dashboards_panels_name_metrics_that_there_are(path: Any) -> None:
    assert [fault for each in expressions(path) for fault in faults_of(each)] == []


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda each: each.stem)
def test_a_dashboard_can_be_provisioned(path: Any) -> None:
    found = dashboard(path)
    assert found["uid"] == path.stem
    assert "drover" in found["tags"]
    ids = [panel["id"] for panel in found["panels"]]
    assert ids == sorted(set(ids))
    for panel in found["panels"]:
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"]["uid"] == "${datasource}"
    places = [panel["gridPos"] for panel in found["panels"]]
    for left, right in pairwise(places):  # side by side, in rows
        assert right["y"] > left["y"] or right["x"] >= left["x"] + left["w"]
        assert right["x"] + right["w"] <= WIDTH


def test_every_metric_of_tasks_and_workers_is_in_a_dashboard() -> None:
    shown = {
        KNOWN[name]
        for path in DASHBOARDS
        for each in expressions(path)
        for name in NAME.findall(each)
    }
    unseen = {each.name for each in METRICS if each not in shown}
    # used only by alerts, or redundant with shown metrics
    assert unseen == {
        "drover_serving",
        "drover_storage_serving",
        "drover_certificate_end_timestamp_seconds",
        "drover_series_left_out",
        "drover_engine_starts_total",
        "process_virtual_memory_bytes",
        "process_start_time_seconds",
        "process_open_fds",
        "process_max_fds",
    }
