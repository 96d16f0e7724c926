"""DatagenSource: generated rows, the same in every run."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from drover.connector import (
    REPLAYED,
    TOPIC_NAME,
    ArrowRows,
    Check,
    ConfigDef,
    ConfigKey,
    ConfigType,
    ConnectorContext,
    Importance,
    InRange,
    NonEmpty,
    OffsetChange,
    OffsetForm,
    OneOf,
    SourceBatch,
    SourceConnector,
    SourceTask,
    SourceTaskContext,
    Violation,
    core_count,
)
from drover.connectors.datagen.row_generator import QUICKSTARTS, RowGenerator, ddl_faults
from drover.connectors.ddl import parse_ddl
from drover.connectors.key_columns import key_columns
from drover.connectors.offset_changes import refuse_misshapen

QUICKSTART = "quickstart"
SCHEMA = "schema"
SEED = "seed"
MAX_RECORDS = "max.records"
TOPIC = "topic"
KEY = "key"
BATCH_SIZE = "batch.size"
STEP_MS = "timestamp.step.ms"
#: The lanes of a task, as "first/step".
TASK_LANES = "task.lanes"

#: Row numbers start at 0 and are assigned to lanes in blocks. A lane always has the same rows, so
#: another number of tasks changes which task generates a row, but not the row.
LANE_COUNT = 16
BLOCK_ROWS = 1000

_ARROW_ROWS = 65_536
#: An additional Spark partition does not pay off for fewer rows.
_SPARK_PARTITION_ROWS = 20_000

#: Rows ``start`` to ``end`` - 1.
NumberRange = tuple[int, int]


@dataclass(frozen=True)
class RowReader:
    """Generates the rows of groups of ranges; for ArrowRows."""

    generator: RowGenerator
    groups: tuple[tuple[NumberRange, ...], ...]

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        """The rows of a group, in order."""
        ranges = [np.arange(*each, dtype=np.uint64) for each in self.groups[number]]
        numbers = np.concatenate(ranges)
        for begin in range(0, len(numbers), _ARROW_ROWS):
            yield self.generator.rows(numbers[begin : begin + _ARROW_ROWS])


class DatagenSourceTask(SourceTask):
    """Generates the rows of some lanes, in the order of their numbers."""

    reads_ahead = True

    def start(self, context: SourceTaskContext) -> None:
        """Resume each lane at its committed offset."""
        self._context = context
        config = context.config
        first, step = (int(part) for part in config[TASK_LANES].split("/"))
        committed = {
            partition.get("lane"): int(offset["next"]) for partition, offset in context.offsets()
        }
        self._next = {
            lane: committed.get(lane, lane * BLOCK_ROWS) for lane in range(first, LANE_COUNT, step)
        }
        self._generator = RowGenerator(
            config[SCHEMA] or QUICKSTARTS[config[QUICKSTART]], config[SEED], config[STEP_MS]
        )

    def poll(self) -> SourceBatch | None:
        """The next rows of the lanes."""
        config = self._context.config
        count = min(config[BATCH_SIZE], config["batch.max.records"])
        ranges, self._next, moved = next_ranges(self._next, count, config[MAX_RECORDS] or None)
        if not ranges:
            return None
        spark = self._context.spark
        groups = even_groups(ranges, core_count(spark.sparkContext))
        rows = ArrowRows(spark, RowReader(self._generator, groups), len(groups), None)
        return SourceBatch.table(
            rows,
            [({"lane": lane}, {"next": self._next[lane]}) for lane in moved],
            topic=config[TOPIC] or config[QUICKSTART],
            key=key_columns(config[KEY]),
        )


class DatagenSource(SourceConnector):
    """Generates rows: orders, clicks, sensor readings, or rows with the columns of a schema.

    Row n is a function of ``seed``, n and the column: it is the same in every run, with any number
    of tasks. The first column is n if its name ends in "id"; other values depend on type and name
    (city, email, price, …); timestamps increase with n.
    """

    version = "0.1.0"
    aliases = ("DatagenSource",)
    guarantees = REPLAYED
    offset_forms = (OffsetForm({"lane": int}, {"next": int}),)
    structured: ClassVar[bool] = True
    task_class = DatagenSourceTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See the documentation of each key."""
        return ConfigDef(
            ConfigKey(
                QUICKSTART,
                ConfigType.STRING,
                default=None,
                importance=Importance.HIGH,
                group="Rows",
                documentation="A ready-made kind of rows; use schema for other columns.",
                validator=OneOf(*QUICKSTARTS),
            ),
            ConfigKey(
                SCHEMA,
                ConfigType.STRING,
                default=None,
                importance=Importance.HIGH,
                group="Rows",
                documentation="The columns, such as: id bigint, name string, price decimal(10,2), "
                "at timestamp.",
                validator=Check(lambda text: "; ".join(ddl_faults(text)) or None),
            ),
            ConfigKey(
                TOPIC,
                ConfigType.STRING,
                default=None,
                importance=Importance.HIGH,
                group="Topic",
                documentation="The topic to write to; by default the name of the quickstart. "
                "Required with schema.",
                validator=TOPIC_NAME,
            ),
            ConfigKey(
                MAX_RECORDS,
                ConfigType.LONG,
                default=1_000_000,
                group="Rows",
                documentation="How many rows are generated; 0 for no limit.",
                validator=InRange(0, 2**53),
            ),
            ConfigKey(
                KEY,
                ConfigType.LIST,
                default=None,
                group="Topic",
                documentation="The column for the record's key; several columns become a struct. "
                "Without it records have no key.",
                validator=NonEmpty(),
            ),
            ConfigKey(
                SEED,
                ConfigType.LONG,
                default=0,
                group="Rows",
                documentation="Different seeds give different rows.",
            ),
            ConfigKey(
                STEP_MS,
                ConfigType.LONG,
                default=1000,
                importance=Importance.LOW,
                group="Rows",
                documentation="The average distance between the timestamps of two rows. The first "
                "one is at the start of 2024.",
                validator=InRange(1, 86_400_000),
            ),
            ConfigKey(
                BATCH_SIZE,
                ConfigType.INT,
                default=100_000,
                importance=Importance.LOW,
                group="Rows",
                documentation="How many rows a batch has, unless batch.max.records is less.",
                validator=InRange(1),
            ),
        )

    @classmethod
    def validate(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        """Exactly one of quickstart and schema is set, and the key names existing columns."""
        quickstart, ddl = config.get(QUICKSTART), config.get(SCHEMA)
        faults = []
        if quickstart is not None and ddl is not None:
            faults.append(Violation(SCHEMA, f"must not be given together with {QUICKSTART}"))
        elif quickstart is None and ddl is None and {QUICKSTART, SCHEMA} <= config.keys():
            faults.append(
                Violation(
                    QUICKSTART, f"is required ({', '.join(QUICKSTARTS)}), or columns in {SCHEMA}"
                )
            )
        elif ddl is not None and TOPIC in config and config[TOPIC] is None:
            faults.append(Violation(TOPIC, f"is required with {SCHEMA}"))
        ddl = ddl or QUICKSTARTS.get(quickstart or "")
        if ddl is not None:
            columns = parse_ddl(ddl).names
            faults += [
                Violation(
                    KEY, f"names {name!r}, which must be one of the columns {', '.join(columns)}"
                )
                for name in config.get(KEY) or []
                if name not in columns
            ]
        return faults

    @classmethod
    def alter_offsets(cls, config: Mapping[str, Any], changes: Sequence[OffsetChange]) -> bool:
        """No state exists outside the offsets."""
        del config
        refuse_misshapen(changes, partition={"lane": int}, counts=("next",))
        return True

    def start(self, context: ConnectorContext, config: Mapping[str, Any]) -> None:
        """The connector object does no work."""

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """The lanes, assigned round-robin."""
        count = min(max_tasks, LANE_COUNT)
        return [{TASK_LANES: f"{index}/{count}"} for index in range(count)]


def next_ranges(
    positions: Mapping[int, int], count: int, end: int | None
) -> tuple[list[NumberRange], dict[int, int], list[int]]:
    """The next ``count`` rows of the lanes at ``positions``, up to ``end``.

    Returns:
        The ranges in order, adjacent ones merged; the new positions; the lanes that moved.
    """
    behind = dict(positions)
    ranges: list[NumberRange] = []
    moved: set[int] = set()
    while count > 0:
        lane = min(behind, key=lambda each: behind[each])
        start = behind[lane]
        if end is not None and start >= end:
            break
        block_end = (start // BLOCK_ROWS + 1) * BLOCK_ROWS
        stop = min(start + count, block_end, end if end is not None else block_end)
        behind[lane] = stop if stop < block_end else stop + (LANE_COUNT - 1) * BLOCK_ROWS
        if ranges and ranges[-1][1] == start:
            ranges[-1] = (ranges[-1][0], stop)
        else:
            ranges.append((start, stop))
        moved.add(lane)
        count -= stop - start
    return ranges, behind, sorted(moved)


def even_groups(
    ranges: Sequence[NumberRange], group_count: int
) -> tuple[tuple[NumberRange, ...], ...]:
    """Split the ranges, in order, into at most ``group_count`` groups of similar size."""
    total = sum(end - start for start, end in ranges)
    wanted = max(_SPARK_PARTITION_ROWS, -(-total // group_count))
    groups: list[list[NumberRange]] = [[]]
    free = wanted
    for start, end in ranges:
        while start < end:
            if free == 0:
                groups.append([])
                free = wanted
            stop = min(end, start + free)
            groups[-1].append((start, stop))
            free -= stop - start
            start = stop
    return tuple(tuple(group) for group in groups)
