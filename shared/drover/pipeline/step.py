"""The unit of pipelines."""

from collections.abc import Iterable
from typing import Protocol

import pyarrow as pa


class Step(Protocol):
    """One converter or transform. Picklable; runs on executors."""

    @property
    def name(self) -> str:
        """Its name in the connector's config and in error messages."""

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """Convert one batch; returns any number of batches, each with its own schema."""
