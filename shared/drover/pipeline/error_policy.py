"""What happens to records that a step cannot handle."""

from collections.abc import Iterable
from typing import Protocol

import pyarrow as pa

from drover.pipeline.step import Step


class ErrorPolicy(Protocol):
    """Runs each step of a stage and decides what its failure means. It is pickled."""

    def apply(self, stage: str, step: Step, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """The batches that ``step`` makes of ``batch``; ``stage`` is for messages."""


class FailTask:
    """The first failure fails the task (errors.tolerance=none)."""

    def apply(self, stage: str, step: Step, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """See ErrorPolicy. The step's exception is raised with a note that names the step."""
        try:
            return list(step(batch))
        except Exception as error:
            error.add_note(f"in step {step.name!r} of the {stage}")
            raise
