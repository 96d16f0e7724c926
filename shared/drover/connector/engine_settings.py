"""The settings for the engine in which a connector and its tasks run."""

from drover.config.config_def import ConfigDef, ConfigKey, ConfigType, Importance
from drover.config.validators import Check, InRange, OneOf
from drover.model.engines import (
    ENGINE,
    ENGINE_CORES,
    ENGINE_MEMORY,
    MEMORY_MIN_BYTES,
    OWN,
    SHARED,
)
from drover.model.sizes import size_bytes, size_text

_GROUP = "Engine"


def _memory_fault(text: str) -> str | None:
    size = size_bytes(text)
    if size is None:
        return f"must be a size such as 1g or 1536m, not {text[:80]!r}"
    if size < MEMORY_MIN_BYTES:
        return (
            f"must be at least {size_text(MEMORY_MIN_BYTES)}, not {size_text(size)}: half of it is"
            " the heap of Spark's JVM, which needs 450 MiB"
        )
    return None


ENGINE_SETTINGS = ConfigDef(
    ConfigKey(
        ENGINE,
        ConfigType.STRING,
        default=None,
        importance=Importance.LOW,
        group=_GROUP,
        documentation="Where the connector and its tasks run on a worker: in the engine that the "
        "worker's connectors share (shared), or in an engine process with a Spark session for this "
        "connector alone (own). By default as DROVER_ENGINE of the worker.",
        validator=OneOf(SHARED, OWN),
    ),
    ConfigKey(
        ENGINE_MEMORY,
        ConfigType.STRING,
        default=None,
        importance=Importance.LOW,
        group=_GROUP,
        documentation="The memory of the connector's own engine with all its processes, such as "
        "2g: half of it is the heap of Spark's JVM. Only with engine=own. By default the engine "
        "has the heap of the shared engine, and no limit.",
        validator=Check(_memory_fault),
    ),
    ConfigKey(
        ENGINE_CORES,
        ConfigType.INT,
        default=None,
        importance=Importance.LOW,
        group=_GROUP,
        documentation="How many cores the connector's own engine uses (spark.master is then "
        "local[N]). Only with engine=own. By default as DROVER_SPARK_MASTER of the worker.",
        validator=InRange(1),
    ),
)
