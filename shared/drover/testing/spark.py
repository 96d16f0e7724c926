"""A Spark session for tests of connectors."""

import os
import sys

from pyspark.sql import SparkSession


def local_spark() -> SparkSession:
    """The existing session, or a new one on two cores of this machine.

    Executors can import the modules that this process can import.
    """
    # Spark's own setting for this applies to spark-submit only
    os.environ["PYSPARK_PYTHON"] = sys.executable
    found: SparkSession = (
        SparkSession.builder.master("local[2]")
        .appName("drover-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.authenticate", "true")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.executorEnv.PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    return found
