"""The unit that pipelines are made of."""

from collections.abc import Iterable
from typing import Protocol

import pyarrow as pa


class Step(Protocol):
    """One converter or transform. It is pickled and runs on executors."""

    @property
    def name(self) -> str:
        """What the connector's config and error messages call it."""

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """Convert one batch; the result may be several, each with a schema of its own, or none."""
