"""Reports of a task's passes are released with the task."""

import gc

import pytest
from pyspark.accumulators import _accumulatorRegistry
from pyspark.sql import SparkSession

from drover.pipeline import PassReport
from drover_worker.engine.tasks.pass_reports import PassReports

pytestmark = pytest.mark.spark


def test_nothing_is_kept_of_a_task_that_is_gone(spark: SparkSession) -> None:
    gc.collect()
    before = set(_accumulatorRegistry)
    reports = PassReports(spark)
    reports.sender.add({0: PassReport(read_count=3)})
    found = reports.total()
    assert found is not None
    assert found.read_count == 3
    assert len(set(_accumulatorRegistry) - before) == 1
    del reports
    gc.collect()
    assert set(_accumulatorRegistry) == before
