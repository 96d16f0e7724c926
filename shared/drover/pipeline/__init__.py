"""The steps that records pass between a task and its topics, on executors.

    source: rows of the task -> transforms -> converters -> topics
    sink:   topics -> converters -> transforms -> rows for the task

A pipeline is a function on Arrow record batches. The data plane composes it with the function that
reads or writes a topic, so it runs in the same pass and adds no Spark job. Without steps it returns
its input iterator.
"""

from drover.pipeline.failures import FailTask, Policy, RecordFailedError, Tolerate
from drover.pipeline.report import FailedRecord, PassReport
from drover.pipeline.stages import Pipeline, Stage, sink_pipeline, source_pipeline
from drover.pipeline.step import Step

__all__ = [
    "FailTask",
    "FailedRecord",
    "PassReport",
    "Pipeline",
    "Policy",
    "RecordFailedError",
    "Stage",
    "Step",
    "Tolerate",
    "sink_pipeline",
    "source_pipeline",
]
