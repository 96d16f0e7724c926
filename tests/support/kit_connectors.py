"""Small connectors for tests of the author's API and of the test kit."""

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from drover.connector import (
    ConfigDef,
    ConfigKey,
    ConfigType,
    RetriableError,
    SinkBatch,
    SinkConnector,
    SinkTask,
    SinkTaskContext,
    SourceBatch,
    SourceConnector,
    SourceTask,
    SourceTaskContext,
    TopicPartition,
    Written,
    sink,
    source,
)
from drover.connector.records import ERROR_COLUMN, ORIGIN_COLUMN, RAW_COLUMN, records_of

PATH = ConfigKey("path", ConfigType.STRING)
MODE = ConfigKey("mode", ConfigType.STRING, default="")


@source("Counter", ConfigDef(ConfigKey("limit", ConfigType.INT), MODE))
def counter(context: SourceTaskContext) -> Iterator[Any]:
    """Counts to a limit, ten at a time."""
    limit = context.config["limit"]
    mode = context.config["mode"]
    at = (context.offset({}) or {"next": 0})["next"]
    while not context.stopping():
        if at >= limit and mode == "ends":
            return
        if at >= limit and mode == "raises":
            raise RuntimeError("no more numbers")
        if at >= limit and mode == "odd":
            yield {"n": at}
        rows = [{"n": n} for n in range(at, min(at + 10, limit))]
        at += len(rows)
        yield rows and SourceBatch.table(rows, [({}, {"next": at})], topic="numbers", key="n")


_failures: list[int] = []


@source("Hesitant")
def hesitant(context: SourceTaskContext) -> Iterator[Any]:
    """Raises RetriableError once, between its two batches."""
    at = (context.offset({}) or {"next": 0})["next"]
    while not context.stopping():
        if at == 2:
            yield None
            continue
        if at == 1 and not _failures:
            _failures.append(at)
            raise RetriableError("not yet")
        at += 1
        yield SourceBatch.table([{"n": at}], [({}, {"next": at})], topic="numbers")


@source("Customers", structured=True)
def customers(context: SourceTaskContext) -> Iterator[Any]:
    """A customer, a deletion and an unreadable row, as a table of records."""
    while not context.stopping():
        if context.offset({}):
            yield None
            continue
        values = pa.array([{"city": "Oslo"}, None, None], pa.struct([("city", pa.string())]))
        table = {
            "key": ["1", "2", None],
            "value": values,
            ORIGIN_COLUMN: ["row 1", "row 2", "row 3"],
            ERROR_COLUMN: [None, None, "no customer"],
            RAW_COLUMN: [None, None, b"?"],
        }
        yield SourceBatch(pa.table(table), [({}, {"rows": 3})], topic="customers")


@sink("Lines", ConfigDef(PATH))
def lines(context: SinkTaskContext, batch: SinkBatch) -> str:
    """Appends without deduplication: at least once."""
    with Path(context.config["path"]).open("a") as file:
        for row in batch.arrow().run(iter):
            file.write(f"{row['n']}\n")
    return "done"


@sink("Records", ConfigDef(PATH))
def records(context: SinkTaskContext, batch: SinkBatch) -> None:
    """Appends the parts of each record, deletions included."""
    with Path(context.config["path"]).open("a") as file:
        for each in batch.records():
            deleted = "deleted" if each.is_tombstone else "set"
            file.write(f"{each.place} {each.key!r} {deleted} {each.value!r} {each.headers!r}\n")


@sink("Bytes", ConfigDef(PATH), structured=False)
def bytes_records(context: SinkTaskContext, batch: SinkBatch) -> None:
    """Appends keys and values as they are in the topic, read on executors."""
    rows = batch.run_in_arrow(shown_on_executors)
    Path(context.config["path"]).write_text("".join(f"{row['shown']}\n" for row in rows))


def shown_on_executors(batches: Iterator[Any]) -> Iterator[Any]:
    """The keys and values of records as text; runs on executors."""
    for batch in batches:
        shown = [f"{each.key!r} {each.value!r}" for each in records_of(batch)]
        yield pa.RecordBatch.from_pydict({"shown": shown})


@sink("Latest", ConfigDef(PATH))
def latest(context: SinkTaskContext, batch: SinkBatch) -> None:
    """Appends the last row of each key, by topic partition."""
    with Path(context.config["path"]).open("a") as file:
        for part in batch.parts("partition"):
            rows = part.latest_by_key().table.collect()
            file.write(f"{part.ranges[0].partition}: {[(row.id, row.n) for row in rows]}\n")


@sink("Gathered", ConfigDef(PATH, MODE))
def gathered(context: SinkTaskContext) -> Generator[Any, SinkBatch, None]:
    """Opens its file once; a generator."""
    mode = context.config["mode"]
    with Path(context.config["path"]).open("a") as file:
        try:
            batch = yield
            while mode != "ends":
                for row in batch.arrow().run(iter):
                    file.write(f"{row['n']}\n")
                batch = yield 7 if mode == "odd" else "written"
        finally:
            file.write("closed\n")


_interruptions: list[int] = []


@sink("Journal", ConfigDef(PATH), tasks=lambda config, tasks_max: [{}])
def journal(context: SinkTaskContext) -> Generator[Any, SinkBatch, None]:
    """Appends to one file, and truncates it to the committed length; its third batch fails halfway
    once, so the task restarts.
    """
    with Path(context.config["path"]).open("ab") as file:
        lengths = (int(each.metadata) for each in context.committed.values())
        file.truncate(max(lengths, default=0))
        answer = None
        while True:
            batch = yield answer
            for row in batch.arrow().run(iter):
                file.write(f"{row['n']}\n".encode())
                file.flush()
                if row["n"] == 3 and not _interruptions:
                    _interruptions.append(3)
                    raise RetriableError("not yet")
            answer = str(file.seek(0, 2))


class BufferTask(SinkTask):
    """Holds rows back until there are five, or until a time has passed."""

    def start(self, context: SinkTaskContext) -> None:
        self._context = context
        self._path = Path(context.config["path"])
        self._rows: list[Any] = []
        self._next: dict[TopicPartition, int] = {}

    def write(self, batch: SinkBatch) -> Written:
        self._rows += batch.arrow().run(iter)
        for each in batch.ranges:
            self._next[TopicPartition(each.topic, each.partition)] = each.end_offset
        if len(self._rows) >= 5:
            return self._flush()
        self._context.call_after(60_000)
        return Written(up_to={})

    def idle(self) -> Written:
        return self._flush()

    def _flush(self) -> Written:
        with self._path.open("a") as file:
            file.write(f"{sorted(row['n'] for row in self._rows)}\n")
        self._rows = []
        return Written(up_to=self._next)


class Buffer(SinkConnector):
    """See BufferTask."""

    task_class = BufferTask
    structured = True

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef(PATH)

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [{}]


class AskingTask(SinkTask):
    """Records the offsets that it receives, and makes the requests of its mode."""

    def start(self, context: SinkTaskContext) -> None:
        self.context = context
        self.mode = context.config["mode"]
        self.given: list[tuple[int, int, int]] = []

    def positions(self) -> dict[TopicPartition, int]:
        return {TopicPartition("records", 0): 2} if self.mode == "knows" else {}

    def write(self, batch: SinkBatch) -> str | Written:
        first, second = TopicPartition("records", 0), TopicPartition("records", 1)
        fresh = not self.given
        self.given += [
            (each.partition, each.start_offset, each.end_offset) for each in batch.ranges
        ]
        if self.mode == "pauses" and fresh:
            self.context.pause(second)
        if self.mode == "rewinds" and fresh:
            self.context.rewind({first: 1})
        if self.mode == "beyond":
            return Written(up_to={first: 99})
        if self.mode == "others":
            return Written(up_to={TopicPartition("other", 0): 1})
        return ""


class Asking(SinkConnector):
    """See AskingTask."""

    task_class = AskingTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef(MODE)

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [{}]


class AckingTask(SourceTask):
    """Emits two records and records its ``committed`` calls; the first call fails as retriable."""

    def start(self, context: SourceTaskContext) -> None:
        self._at = (context.offset({}) or {"next": 0})["next"]
        self.told: list[Any] = []

    def poll(self) -> SourceBatch | None:
        if self._at == 2:
            return None
        self._at += 1
        return SourceBatch.table([{"n": self._at}], [({}, {"next": self._at})], topic="numbers")

    def committed(self, offsets: Any) -> None:
        self.told.append((self._at, *offsets))
        if len(self.told) == 1:
            raise RetriableError("busy")


class Acking(SourceConnector):
    """See AckingTask."""

    task_class = AckingTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef()

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [{}]
