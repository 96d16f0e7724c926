"""Steps composed into stages, and stages into pipelines."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from drover.pipeline.error_policy import ErrorPolicy, FailTask
from drover.pipeline.step import Step

CONVERTERS = "converters"
TRANSFORMS = "transforms"


@dataclass(frozen=True, slots=True)
class Stage:
    """Steps in order, under one error policy."""

    name: str
    steps: tuple[Step, ...]
    policy: ErrorPolicy

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run every batch through the steps, one batch at a time."""
        for step in self.steps:
            batches = self._run(step, batches)
        return batches

    def _run(self, step: Step, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from self.policy.apply(self.name, step, batch)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Stages in order; a function for ArrowRows and mapInArrow."""

    stages: tuple[Stage, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run every batch through the stages; lazily, in order."""
        for stage in self.stages:
            batches = stage(batches)
        return batches


def source_pipeline(
    *,
    transforms: tuple[Step, ...] = (),
    converters: tuple[Step, ...] = (),
    policy: ErrorPolicy | None = None,
) -> Pipeline:
    """From a source task's rows to records of topics; the policy is FailTask by default."""
    policy = policy or FailTask()
    return Pipeline((Stage(TRANSFORMS, transforms, policy), Stage(CONVERTERS, converters, policy)))


def sink_pipeline(
    *,
    converters: tuple[Step, ...] = (),
    transforms: tuple[Step, ...] = (),
    policy: ErrorPolicy | None = None,
) -> Pipeline:
    """From records of topics to a sink task's rows; the policy is FailTask by default."""
    policy = policy or FailTask()
    return Pipeline((Stage(CONVERTERS, converters, policy), Stage(TRANSFORMS, transforms, policy)))
