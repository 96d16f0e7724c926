"""Writes records of an operator's input to a topic: everything is checked, then all is written."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drover.api.common.v1 import topics_pb2
from drover.api.engine.v1 import engine_pb2
from drover.connector.record_settings import KEY_CONVERTER, VALUE_CONVERTER
from drover.convert.converter import Converter
from drover.dataplane import routing
from drover.dataplane.partitioner import partitions_for_keys
from drover.dataplane.plane import DataPlane
from drover.errors import InvalidArgumentError, Violation
from drover_worker.engine.topics.produced_records import encode, parse, raise_faults
from drover_worker.engine.topics.reads import existing_bounds
from drover_worker.engine.topics.record_query import AUTO, connector_faults, named_converter

_PLACE = "options"


def produce_records(
    plane: DataPlane, command: engine_pb2.ProduceRecords, connector_config: Mapping[str, str]
) -> engine_pb2.ProducedRecords:
    """Write the records of an input; see the command.

    Raises:
        InvalidArgumentError: INVALID_REQUEST with every fault of the options or of the lines, or
            the topic is internal to the cluster; TOO_LARGE.
        NotFoundError: TOPIC_NOT_FOUND.
        UnavailableError: STORAGE_UNAVAILABLE.
    """
    options = command.options
    key, value = _converters(options, connector_config)
    bounds = existing_bounds(plane, options.topic)
    records = parse(options, Path(command.path).read_bytes(), len(bounds))
    batch = encode(
        records,
        key,
        value,
        topic=options.topic,
        now_ms=time.time_ns() // 1_000_000,
        record_bytes_max=plane.record_bytes_max_of(options.topic),
    )
    raise_faults(records.faults)
    if not batch.num_rows:
        return engine_pb2.ProducedRecords()
    parts = _parts(batch, records.partitions, len(bounds))
    appended = plane.append(options.topic, parts, options.request_id)
    return engine_pb2.ProducedRecords(
        record_count=appended.record_count, repeated_call=appended.repeated
    )


def _converters(
    options: topics_pb2.ProduceOptions, connector_config: Mapping[str, str]
) -> tuple[Converter, Converter]:
    faults = connector_faults(options.config, connector_config, _PLACE)
    settings = {**connector_config, **options.config}
    as_lines = options.format == topics_pb2.PRODUCE_FORMAT_LINES
    found = []
    for setting, name, default in (
        (KEY_CONVERTER, options.key_converter, "string"),
        (VALUE_CONVERTER, options.value_converter, "string" if as_lines else "json"),
    ):
        chosen = name.strip() or settings.get(setting, "").strip() or default
        if chosen == AUTO:
            field = f"{_PLACE}.{'key' if setting == KEY_CONVERTER else 'value'}_converter"
            faults.append(Violation(field, "must name a converter: auto only reads"))
            continue
        converter = named_converter(setting, chosen, settings, _PLACE, faults)
        if converter is not None:
            found.append(converter)
    if faults:
        raise InvalidArgumentError.listing(faults)
    key, value = found
    return key, value


def _parts(
    batch: pa.RecordBatch, explicit: list[int | None], partition_count: int
) -> dict[int, Any]:
    """The records of each partition in order: the partition of the input, else of the key; records
    without both are spread.
    """
    places = partitions_for_keys(batch.column("key"), partition_count)
    places = pc.coalesce(
        pa.array(explicit, pa.int32()),
        places,
        routing.spread_places(batch.num_rows, partition_count),
    )
    numbers = np.asarray(places)
    return {
        int(number): batch.take(pa.array(np.flatnonzero(numbers == number)))
        for number in np.unique(numbers)
    }
