"""One Spark session for all tests that need one."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from drover_worker.engine.settings import LOCAL_JVM_OPTIONS
from tests.spark.pipeline import Pipeline


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # Spark's own setting for this works only with spark-submit
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .appName("drover-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.extraJavaOptions", LOCAL_JVM_OPTIONS)
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def drover_spark(spark: SparkSession) -> SparkSession:
    """The Spark session of the kits' fixtures."""
    return spark


@pytest.fixture
def pipeline(spark: SparkSession, tmp_path: Path) -> Iterator[Pipeline]:
    pipeline = Pipeline(spark, tmp_path)
    yield pipeline
    pipeline.close()
