"""The metrics table is consistent and documented; metrics named elsewhere are in it."""

import re
from collections import Counter

import pytest

from drover.metrics.metric import Kind, Metric
from drover.metrics.table import METRICS
from tests.support.docs_tables import marks
from tests.support.repository import REPOSITORY

PAGE = REPOSITORY / "docs/metrics.md"
UNITS = ("_seconds", "_bytes", "_records", "_total", "_offset", "_info", "_timestamp_seconds")
#: Kafka Connect's groups of attributes that are queries here: rates, averages and ratios of
#: metrics.
GROUPS = {
    "app-info",
    "connector-metrics",
    "connector-task-metrics",
    "source-task-metrics",
    "sink-task-metrics",
    "task-error-metrics",
    "connect-worker-metrics",
    "connect-worker-rebalance-metrics",
    "connect-coordinator-metrics",
}


def test_every_metric_has_one_name() -> None:
    assert [
        name for name, count in Counter(each.name for each in METRICS).items() if count > 1
    ] == []


@pytest.mark.parametrize("metric", METRICS, ids=lambda each: each.name)
def test_a_metric_is_named_by_prometheus_rules(metric: Metric) -> None:
    assert re.fullmatch(r"(drover|process)_[a-z][a-z_]*[a-z]", metric.name)
    assert (metric.kind is Kind.COUNTER) == metric.name.endswith("_total")
    if metric.kind in (Kind.SUMMARY, Kind.HISTOGRAM):
        assert metric.name.endswith("_seconds")
    assert metric.meaning.endswith(".")
    assert not {"le", "quantile", "job", "instance"} & set(metric.labels)


def test_every_metric_is_in_the_docs() -> None:
    shown = {mark.removeprefix("metrics of ") for mark in marks(PAGE.read_text(encoding="utf-8"))}
    assert shown == {each.where for each in METRICS}


def test_every_group_of_kafka_connects_metrics_is_beside_ours() -> None:
    named = {
        part.split(":")[0].strip() for each in METRICS if each.jmx for part in each.jmx.split("; ")
    }
    assert named == GROUPS
