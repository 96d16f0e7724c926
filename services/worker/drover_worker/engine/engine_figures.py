"""Figures that the engine reports: Spark jobs, the JVM's heap, hung threads."""

from typing import Any

from pyspark.sql import SparkSession

from drover.api.engine.v1 import engine_pb2


def engine_figures(spark: SparkSession, *, abandoned_count: int) -> engine_pb2.EngineFigures:
    """The current figures; costs a few calls into the JVM, milliseconds in total."""
    context: Any = spark.sparkContext
    runtime = context._jvm.java.lang.Runtime.getRuntime()
    return engine_pb2.EngineFigures(
        job_count=context._jsc.sc().dagScheduler().numTotalJobs(),
        active_job_count=len(context.statusTracker().getActiveJobsIds()),
        heap_used_bytes=runtime.totalMemory() - runtime.freeMemory(),
        heap_max_bytes=runtime.maxMemory(),
        abandoned_thread_count=abandoned_count,
    )
