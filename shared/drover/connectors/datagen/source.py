"""DatagenSource: made-up rows, the same in every run."""

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
#: Which lanes a task has, as "first/step".
TASK_LANES = "task.lanes"

#: Rows are numbered from 0 and dealt to lanes in blocks; a lane always has the same rows, so that
#: another number of tasks changes who makes a row, and nothing else.
LANE_COUNT = 16
BLOCK_ROWS = 1000

_ARROW_ROWS = 65_536
#: Fewer rows than this are not worth another Spark partition.
_SPARK_PARTITION_ROWS = 20_000

#: Rows ``start`` to ``end`` - 1.
NumberRange = tuple[int, int]


@dataclass(frozen=True)
class RowReader:
    """Makes the rows of groups of ranges; for ArrowRows."""

    generator: RowGenerator
    groups: tuple[tuple[NumberRange, ...], ...]

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        """The rows of a group, in order."""
        ranges = [np.arange(*each, dtype=np.uint64) for each in self.groups[number]]
        numbers = np.concatenate(ranges)
        for begin in range(0, len(numbers), _ARROW_ROWS):
            yield self.generator.rows(numbers[begin : begin + _ARROW_ROWS])


class DatagenSourceTask(SourceTask):
    """Makes the rows of some lanes, in the order of their numbers."""

    reads_ahead = True

    def start(self, context: SourceTaskContext) -> None:
        """Take up each lane where its committed offset says."""
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
    """Makes rows up: orders, clicks or readings of sensors, or of columns that a schema names.

    Row n is a function of ``seed``, n and the column: it is the same in every run, however many
    tasks there are. The first column is n when its name ends in "id"; other values go by type and
    name (city, email, price, …); timestamps advance with n.
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
                documentation="Rows of a kind that is ready made; else schema names their columns.",
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
                documentation="The topic to write to; by default it is called as the quickstart. "
                "Required with schema.",
                validator=TOPIC_NAME,
            ),
            ConfigKey(
                MAX_RECORDS,
                ConfigType.LONG,
                default=1_000_000,
                group="Rows",
                documentation="How many rows there are; 0 for rows without end.",
                validator=InRange(0, 2**53),
            ),
            ConfigKey(
                KEY,
                ConfigType.LIST,
                default=None,
                group="Topic",
                documentation="The column that is the record's key, or several, whose struct is; "
                "without it records have no key.",
                validator=NonEmpty(),
            ),
            ConfigKey(
                SEED,
                ConfigType.LONG,
                default=0,
                group="Rows",
                documentation="Another seed gives other rows.",
            ),
            ConfigKey(
                STEP_MS,
                ConfigType.LONG,
                default=1000,
                importance=Importance.LOW,
                group="Rows",
                documentation="How far apart the timestamps of two rows are, on average. The first "
                "is in the first moments of 2024.",
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
        """Columns come from one place, and the key is one of them."""
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
                Violation(KEY, f"names {name!r}, which is none of the columns {', '.join(columns)}")
                for name in config.get(KEY) or []
                if name not in columns
            ]
        return faults

    @classmethod
    def alter_offsets(cls, config: Mapping[str, Any], changes: Sequence[OffsetChange]) -> bool:
        """Nothing is kept elsewhere."""
        del config
        refuse_misshapen(changes, partition={"lane": int}, counts=("next",))
        return True

    def start(self, context: ConnectorContext, config: Mapping[str, Any]) -> None:
        """Nothing runs here."""

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """The lanes dealt out in turn."""
        count = min(max_tasks, LANE_COUNT)
        return [{TASK_LANES: f"{index}/{count}"} for index in range(count)]


def next_ranges(
    positions: Mapping[int, int], count: int, end: int | None
) -> tuple[list[NumberRange], dict[int, int], list[int]]:
    """The next ``count`` rows of the lanes at ``positions``, none from ``end`` on.

    Returns:
        The ranges in order, neighbours as one; the positions behind them; the lanes that moved.
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
    """The ranges, in order, as at most ``group_count`` groups of about as many rows."""
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
