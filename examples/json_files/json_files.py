"""Connectors for directories of JSON files, a source and a sink."""

from pathlib import Path

from drover.connector import (
    ConfigDef,
    ConfigKey,
    ConfigType,
    SinkBatch,
    SinkConnector,
    SinkTask,
    SinkTaskContext,
    SourceBatch,
    SourceConnector,
    SourceTask,
    SourceTaskContext,
)


class JsonFilesTask(SourceTask):
    def start(self, context: SourceTaskContext) -> None:
        self._context = context
        self._directory = Path(context.config["directory"])
        self._partition = {"directory": str(self._directory)}
        self._last = (context.offset(self._partition) or {"last": ""})["last"]

    def poll(self) -> SourceBatch | None:
        names = sorted(p.name for p in self._directory.glob("*.json") if p.name > self._last)[:100]
        if not names:
            return None
        rows = self._context.spark.read.json([str(self._directory / name) for name in names])
        self._last = names[-1]
        return SourceBatch(
            rows.selectExpr("to_json(struct(*)) AS value"),
            [(self._partition, {"last": self._last})],
            topic=self._context.config["topic"],
        )


class JsonFiles(SourceConnector):
    """New JSON files of a directory, in the order of their names; each row is a record."""

    version = "1.0"
    task_class = JsonFilesTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef(
            ConfigKey("directory", ConfigType.STRING, documentation="Where the files appear."),
            ConfigKey("topic", ConfigType.STRING, documentation="Where the records go."),
        )

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [{}]


class JsonFolderTask(SinkTask):
    def start(self, context: SinkTaskContext) -> None:
        self._root = context.config["directory"]

    def write(self, batch: SinkBatch) -> str:
        # a batch that comes again begins at the same offsets, so it replaces what it wrote
        for each in batch.ranges:
            folder = f"{each.topic}-{each.partition}-{each.start_offset:020}"
            rows = batch.frame.where(f"topic = '{each.topic}' AND partition = {each.partition}")
            values = rows.selectExpr("cast(value AS string) AS value")
            values.write.mode("overwrite").text(f"{self._root}/{folder}")
        return ""


class JsonFolder(SinkConnector):
    """The records of topics as folders of text files, a record a line."""

    version = "1.0"
    task_class = JsonFolderTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef(
            ConfigKey("directory", ConfigType.STRING, documentation="Where the folders go.")
        )

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        # the engine deals the partitions out to as many tasks as there are configs
        return [{} for _ in range(max_tasks)]
