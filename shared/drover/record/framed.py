"""Encoded values that have the same bytes around them, such as a schema in JSON."""

from dataclasses import dataclass
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from drover.record.arrow import Binaries

_BEFORE, _AFTER = b"drover.before", b"drover.after"


@dataclass(frozen=True, slots=True)
class Framed:
    """The bytes of each value are ``before``, its own bytes and ``after``.

    A schema that every record contains can be larger than all of its values. Here it is stored
    once for a batch, until a topic's record batch is built.

    Attributes:
        values: A binary array; a null is null as a whole.
        before: The bytes before each value.
        after: The bytes after each value.
    """

    values: Binaries
    before: bytes = b""
    after: bytes = b""

    @classmethod
    def of(cls, batch: pa.RecordBatch, name: str) -> Self:
        """The column of a batch; without a frame if its field has none."""
        metadata = batch.schema.field(name).metadata or {}
        return cls(batch.column(name), metadata.get(_BEFORE, b""), metadata.get(_AFTER, b""))

    @property
    def frame_bytes(self) -> int:
        """The size of the frame of one value."""
        return len(self.before) + len(self.after)

    def field(self, name: str) -> pa.Field:
        """The field for a batch with these values as a column."""
        framed = {_BEFORE: self.before, _AFTER: self.after} if self.frame_bytes else None
        return pa.field(name, pa.binary(), metadata=framed)

    def joined(self) -> Binaries:
        """The whole bytes of each value."""
        if not self.frame_bytes:
            return self.values
        before, after, nothing = (
            pa.scalar(each, pa.binary()) for each in (self.before, self.after, b"")
        )
        return pc.binary_join_element_wise(before, self.values, after, nothing)
