"""The names of a sink's topics after its transforms, as far as they are known without records."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from drover.record.batch import TOPIC, make_batch
from drover.record.errors import RecordError
from drover.transform.chain import TRANSFORMS_KEY, build_chain
from drover.transform.predicates_topic import TopicNameMatches
from drover.transform.regex_router import RegexRouter
from drover.transform.step import TransformStep
from drover.transform.timestamp_router import TimestampRouter

_BUILT_IN = "drover.transform."


def routed_topics(config: Mapping[str, Any]) -> dict[str, str | None]:
    """For each topic of ``topics``, its name after the transforms; None if this depends on the
    records, as with TimestampRouter.

    Args:
        config: The parsed settings, without violations.
    """
    topics = config.get("topics") or ()
    if not config.get(TRANSFORMS_KEY):
        return dict(zip(topics, topics, strict=True))
    steps = build_chain(config)
    return {each: _routed(each, steps) for each in topics}


def _routed(topic: str, steps: tuple[TransformStep, ...]) -> str | None:
    for step in steps:
        if isinstance(step.transform, RegexRouter):
            if step.predicate is not None and not isinstance(step.predicate, TopicNameMatches):
                return None
            try:
                (batch,) = step(make_batch(1, topic=pa.array([topic])))
            except RecordError:
                return None
            topic = batch.column(TOPIC)[0].as_py()
        elif _may_rename(step):
            return None
    return topic


def _may_rename(step: TransformStep) -> bool:
    """Whether a transform may rename topics by the records."""
    from drover.transform.sql.transform import Sql  # its import is slow

    transform = step.transform
    if isinstance(transform, Sql):
        return transform.computes_topics
    is_built_in = type(transform).__module__.startswith(_BUILT_IN)
    return isinstance(transform, TimestampRouter) or not is_built_in
