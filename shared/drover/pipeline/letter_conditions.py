"""Which dead letters meet conditions, on the values that `drover dlq list` shows."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from drover.convert.lenient import LenientDecoder
from drover.record.arrow import Mask
from drover.transform.conditions import Condition


def meeting(
    records: pa.RecordBatch, conditions: Sequence[Condition], decode: LenientDecoder
) -> Mask:
    """Whether each dead letter meets all conditions; ``decode`` gives the keys and values that are
    compared.
    """
    if not conditions or not records.num_rows:
        return pa.array([True] * records.num_rows, pa.bool_())
    masks = []
    for decoded in decode(records):
        matched = pa.repeat(pa.scalar(True), decoded.num_rows)
        for condition in conditions:
            matched = pc.and_(matched, condition.matches(decoded))
        masks.append(matched)
    return pa.concat_arrays(masks)
